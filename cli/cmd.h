/* SPDX-License-Identifier: Apache-2.0
 * cmd.h: what the commands share. */
#ifndef CMD_H
#define CMD_H

enum { CMD_DONE = 0, CMD_FAILED = 1, CMD_USAGE = 2, CMD_STOPPED = 130 };

typedef struct cmd {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} cmd;

int cmd_info(int argc, char **argv);

#endif
