/* SPDX-License-Identifier: Apache-2.0
 * cmd.h: what the commands share.  A command is cmd_<name>.c and a line in main.c's table. */
#ifndef CMD_H
#define CMD_H

#include <stdbool.h>

#include "moiety.h"

enum { CMD_DONE = 0, CMD_FAILED = 1, CMD_USAGE = 2, CMD_STOPPED = 130 };

typedef struct cmd {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} cmd;

int cmd_bench(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_train(int argc, char **argv);

/* Says on stderr what failed, with moi_last_error; returns CMD_FAILED. */
int cmd_failed(const char *command);
/* A context with this many threads (0: all) on the back end that MOI_BACKEND names, or the CPU, which alone has all that training,
 * generating, converting and benches need; NULL after a message. */
moi_ctx *cmd_ctx(const char *command, int64_t threads);
/* "f32", "bf16", "mx32", "blk128": the recipes as --recipe takes them. */
#define CMD_RECIPES "f32|bf16|mx32|blk128"
moi_recipe cmd_recipe(const char *name);
/* The commit the program was built from, or "unknown". */
const char *cmd_commit(void);

#endif
