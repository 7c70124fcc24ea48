/* SPDX-License-Identifier: Apache-2.0
 * args.h: a command's options as a table, from which parsing, checking and --help all follow. */
#ifndef ARGS_H
#define ARGS_H

#include <stdbool.h>
#include <stdint.h>

enum { ARG_LIST_MOST = 32 };

typedef enum arg_kind {
    ARG_FLAG,  /* --name             value: bool *         */
    ARG_INT,   /* --name 12          value: int64_t *      */
    ARG_REAL,  /* --name 0.5         value: double *       */
    ARG_TEXT,  /* --name anything    value: const char **  */
    ARG_LIST,  /* --name a --name b  value: arg_list *     */
    ARG_CHOICE /* --name bf16        value: const char **, `shows` lists the choices: "bf16|mx32" */
} arg_kind;

typedef struct arg_list {
    const char *at[ARG_LIST_MOST];
    int n;
} arg_list;

/* What *value holds before parsing is the default, and --help shows it. */
typedef struct arg {
    const char *name;  /* "steps" means --steps; a name in capitals is an argument without a name */
    arg_kind kind;
    void *value;
    const char *shows; /* what --help writes behind the name: "N", "FILE" */
    const char *help;
    double min, max;   /* INT and REAL: allowed range; both 0: any */
    bool required;
    bool given;        /* set by args_parse */
} arg;

typedef struct args_spec {
    const char *command, *about; /* about: one or more lines, each ended by a newline */
    arg *table;
    int count;
} args_spec;
#define ARGS_SPEC(command, about, table) { (command), (about), (table), (int)(sizeof(table) / sizeof *(table)) }

enum { ARGS_GO = -1 };

/* ARGS_GO, or the exit code to return at once: 0 after --help, 2 after a message that names the wrong argument. */
int args_parse(const args_spec *spec, int argc, char **argv);
/* Whether the command line gave the option. */
bool args_given(const args_spec *spec, const char *name);

#endif
