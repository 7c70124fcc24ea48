/* SPDX-License-Identifier: Apache-2.0
 * cmd_bench.c: moiety bench: which cases run on which rows. */
#include <errno.h>
#include <omp.h>
#include <string.h>

#include "../bench/bench.h"
#include "args.h"
#include "cmd.h"

static bool in_set(const shapes *s, int line, bool quick, bool all)
{
    const char *set = shapes_text(s, line, "set", quick ? "quick" : "bar");
    if (quick) return !strcmp(set, "quick");
    return !strcmp(set, "bar") || (!all && !strcmp(set, "more"));
}

/* One line on every row of the operation, or on the one asked for. */
static void run_line(bench *b, const bench_op *op, const shapes *s, int line)
{
    moi_row_info r;
    if (!b->rows || strcmp(b->rows, "all") || !strcmp(op->name, "moe") || !strcmp(op->name, "model")) {
        op->run(b, s, line, b->rows && strcmp(b->rows, "all") ? b->rows : NULL);
        return;
    }
    for (int i = 0; i < moi_row_count(); i++)
        if (!moi_row_get(i, &r) && !strcmp(r.op, op->name)) op->run(b, s, line, r.name);
}

static int run_op(bench *b, const bench_op *op, const char *path, bool all)
{
    static shapes s;
    bool read = path ? shapes_read(&s, path) : shapes_parse(&s, op->name, shapes_built_in(op->name));
    if (!read) return CMD_FAILED;
    for (int line = 0; line < s.lines; line++)
        if (in_set(&s, line, b->quick, all)) run_line(b, op, &s, line);
    return CMD_DONE;
}

static int run_all(bench *b, const char *op, const char *path)
{
    bool all = !strcmp(op, "all");
    int verdict = CMD_DONE;
    bench_header(b);
    for (int i = 0; i < bench_op_count && verdict == CMD_DONE; i++)
        if (all || !strcmp(op, bench_ops[i].name)) verdict = run_op(b, &bench_ops[i], path, all);
    printf("\n%d timed, %d refused\n", b->timed, b->refused);
    if (b->csv && fclose(b->csv)) {
        fprintf(stderr, "moiety bench: the CSV file cannot be written: %s\n", strerror(errno));
        verdict = CMD_FAILED;
    }
    return verdict == CMD_DONE && b->refused ? CMD_FAILED : verdict;
}

int cmd_bench(int argc, char **argv)
{
    const char *op = NULL, *path = NULL, *csv = NULL;
    int64_t threads = 0;
    bench b = { .commit = cmd_commit(), .random = 0x9E3779B97F4A7C15ull };
    arg table[] = {
        { "OP", ARG_CHOICE, &op, "quantize|dequantize|gemm|ggemm|moe|moe_decode|model|all", "the operation; all: the main cases of each", .required = true },
        { "shapes", ARG_TEXT, &path, "FILE", "cases to run instead of those built in (see bench/shapes)", .required = false },
        { "rows", ARG_TEXT, &b.rows, "ROW", "the row to run, or 'all'; without it, what the library chooses", .required = false },
        { "csv", ARG_TEXT, &csv, "FILE", "also write the results there", .required = false },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "quick", ARG_FLAG, &b.quick, NULL, "tiny cases, a few repetitions: shows that it works, not how fast", .required = false },
        { "corrupt", ARG_FLAG, &b.corrupt, NULL, "spoil each result, to see that the check refuses to time it", .required = false },
    };
    args_spec spec = ARGS_SPEC("bench", "Checks each row's results against what the library promises, refuses to time a wrong one, and times the\n"
                                        "others beside the machine's own limit, measured in turn with them: the BLAS library's sgemm, memcpy,\n"
                                        "or plain reading.  Exit code 1 if anything was refused.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (path && !strcmp(op, "all")) return fprintf(stderr, "moiety bench: --shapes needs one operation, not 'all'\n"), CMD_USAGE;
    if (!(b.ctx = cmd_ctx("bench", threads))) return CMD_FAILED;
    if (strncmp(moi_ctx_describe(b.ctx), "cpu", 3)) {
        fprintf(stderr, "moiety bench: times rows of the CPU, on buffers in host memory; MOI_BACKEND asks for another back end\n");
        moi_ctx_free(b.ctx);
        return CMD_FAILED;
    }
    if (csv && !(b.csv = fopen(csv, "w"))) {
        fprintf(stderr, "moiety bench: %s: %s\n", csv, strerror(errno));
        verdict = CMD_FAILED;
    } else {
        omp_set_num_threads(moi_ctx_threads(b.ctx)); /* the BLAS library's peer uses as many as we do */
        verdict = run_all(&b, op, path);
    }
    moi_ctx_free(b.ctx);
    return verdict;
}
