/* SPDX-License-Identifier: Apache-2.0
 * cmd_kernels.c: moiety kernels: lists the GPU kernels, or compiles them into a folder, on a machine with or without a GPU. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "cmd.h"

typedef struct tally { bool compiling; int kernels, compiled, failed; double seconds; int64_t bytes; } tally;

static void show(void *user, const moi_kernel_info *k)
{
    tally *t = user;
    t->kernels++;
    if (!t->compiling) {
        printf("%-28s %-8s %-40s <= %d registers\n", k->stem, k->arch, k->defines, k->register_limit);
        return;
    }
    t->compiled += k->compiled;
    t->seconds += k->seconds;
    t->bytes += k->cubin_bytes;
    if (k->status) {
        t->failed++;
        fprintf(stderr, "moiety kernels: %s %s %s: %s\n", k->stem, k->arch, k->defines, k->error);
        return;
    }
    printf("%-28s %-8s %-28s %3d of %3d registers, %d bytes local, %6lld bytes, %s\n", k->stem, k->arch, k->defines, k->registers,
           k->register_limit, k->local_bytes, (long long)k->cubin_bytes, k->compiled ? "compiled" : "was there");
}

/* "I/N" */
static bool read_part(const char *text, moi_kernels_config *c)
{
    int end = 0;
    if (!text) return true;
    return sscanf(text, "%9d/%9d%n", &c->part, &c->parts, &end) == 2 && !text[end] && c->parts > 0 && c->part >= 0 && c->part < c->parts;
}

int cmd_kernels(int argc, char **argv)
{
    const char *what = NULL, *archs = NULL, *folder = NULL, *part = NULL;
    int64_t threads = 0;
    arg table[] = {
        { "WHAT", ARG_CHOICE, &what, "list|compile", "list: the kernels and what they are written for; compile: fill a folder", .required = true },
        { "arch", ARG_TEXT, &archs, "LIST", "only these architectures, as sm_90a,sm_100a", .required = false },
        { "out", ARG_TEXT, &folder, "DIR", "compile: the folder; ship it and name it by MOI_KERNELS", .required = false },
        { "part", ARG_TEXT, &part, "I/N", "only every N-th kernel from the I-th on, counted from 0", .required = false },
        { "threads", ARG_INT, &threads, "N", "threads that compile, 0: all", .min = 0, .max = 1024 },
    };
    args_spec spec = ARGS_SPEC("kernels", "Lists the GPU kernels, or compiles them ahead of time with NVRTC, which needs no GPU.  A kernel that spills or\n"
                                          "uses local memory or more registers than it states is an error.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    bool compiling = !strcmp(what, "compile");
    if (compiling != (folder != NULL)) {
        fprintf(stderr, "moiety kernels: %s\n", compiling ? "compile needs --out" : "list takes no --out");
        return CMD_USAGE;
    }
    tally t = { .compiling = compiling };
    moi_kernels_config config = MOI_KERNELS_CONFIG_INIT;
    if (!read_part(part, &config)) {
        fprintf(stderr, "moiety kernels: --part wants I/N with I from 0 to N - 1, got '%s'\n", part);
        return CMD_USAGE;
    }
    config.archs = archs;
    config.folder = folder;
    config.threads = (int32_t)threads;
    config.each = show;
    config.user = &t;
    moi_status status = moi_kernels_compile(&config);
    if (status && !t.failed) return cmd_failed("kernels");
    if (compiling)
        printf("%d kernels, %d compiled in %.1f s of work, %.1f KB in %s\n", t.kernels, t.compiled, t.seconds, (double)t.bytes / 1e3, folder);
    return status ? CMD_FAILED : CMD_DONE;
}
