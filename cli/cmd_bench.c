/* SPDX-License-Identifier: Apache-2.0
 * cmd_bench.c: moiety bench: which cases run on which rows. */
#include <errno.h>
#include <omp.h>
#include <stdlib.h>
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

static bool on_gpu(const bench *b) { return b->ctx != b->host; }

/* One line on every row of the operation, or on the one asked for. */
static void run_line(bench *b, const bench_op *op, const shapes *s, int line)
{
    moi_row_info r;
    if (!b->rows || strcmp(b->rows, "all") || !strcmp(op->name, "moe") || !strcmp(op->name, "model")) {
        op->run(b, s, line, b->rows && strcmp(b->rows, "all") ? b->rows : NULL);
        return;
    }
    for (int i = 0; i < moi_row_count(); i++)
        if (!moi_row_get(i, &r) && !strcmp(r.op, op->name) && (r.backend == MOI_BACKEND_CUDA) == on_gpu(b)) op->run(b, s, line, r.name);
}

static int run_op(bench *b, const bench_op *op, const char *path, bool all)
{
    static shapes s;
    const char *built_in = shapes_built_in(on_gpu(b) ? "moe_decode_cuda" : op->name);
    bool read = path ? shapes_read(&s, path) : shapes_parse(&s, op->name, built_in);
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

/* The contexts.  false: an error has been told. */
static bool open_contexts(bench *b, const char *op, const char *backend, int64_t threads)
{
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.threads = (int32_t)threads;
    config.backend = !backend ? MOI_BACKEND_AUTO : !strcmp(backend, "cuda") ? MOI_BACKEND_CUDA : MOI_BACKEND_CPU;
    if (!backend && !getenv("MOI_BACKEND")) config.backend = MOI_BACKEND_CPU;
    if (moi_ctx_create(&b->ctx, &config)) return cmd_failed("bench"), false;
    b->host = b->ctx;
    if (!strncmp(moi_ctx_describe(b->ctx), "cpu", 3)) return true;
    config.backend = MOI_BACKEND_CPU;
    if (moi_ctx_create(&b->host, &config)) cmd_failed("bench");
    else if (!strcmp(op, "moe_decode")) return true;
    else fprintf(stderr, "moiety bench: of rows of the GPU it times moe_decode, got %s: --backend, MOI_BACKEND\n", op);
    return false;
}

int cmd_bench(int argc, char **argv)
{
    const char *op = NULL, *path = NULL, *csv = NULL, *backend = NULL;
    int64_t threads = 0;
    bench b = { .commit = cmd_commit(), .random = 0x9E3779B97F4A7C15ull };
    arg table[] = {
        { "OP", ARG_CHOICE, &op, "quantize|dequantize|gemm|ggemm|moe|moe_decode|decode|model|all",
          "the operation (decode: moe_decode); all: the main cases of each", .required = true },
        { "shapes", ARG_TEXT, &path, "FILE", "cases to run instead of those built in (see bench/shapes)", .required = false },
        { "rows", ARG_TEXT, &b.rows, "ROW", "the row to run, or 'all'; without it, what the library chooses", .required = false },
        { "csv", ARG_TEXT, &csv, "FILE", "also write the results there", .required = false },
        { "backend", ARG_CHOICE, &backend, "cpu|cuda", "whose rows; cuda: of moe_decode; default: MOI_BACKEND, or cpu", .required = false },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "quick", ARG_FLAG, &b.quick, NULL, "tiny cases, a few repetitions: shows that it works, not how fast", .required = false },
        { "corrupt", ARG_FLAG, &b.corrupt, NULL, "spoil each result, to see that the check refuses to time it", .required = false },
    };
    args_spec spec = ARGS_SPEC("bench", "Checks each row's results against what the library promises, refuses to time a wrong one, and times the\n"
                                        "others beside the machine's own limit, measured in turn with them: the BLAS library's sgemm, memcpy,\n"
                                        "plain reading, or the GPU's copies.  Exit code 1 if anything was refused.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (!strcmp(op, "decode")) op = "moe_decode";
    if (path && !strcmp(op, "all")) return fprintf(stderr, "moiety bench: --shapes needs one operation, not 'all'\n"), CMD_USAGE;
    if (!open_contexts(&b, op, backend, threads)) verdict = CMD_FAILED;
    else if (csv && !(b.csv = fopen(csv, "w"))) {
        fprintf(stderr, "moiety bench: %s: %s\n", csv, strerror(errno));
        verdict = CMD_FAILED;
    } else {
        omp_set_num_threads(moi_ctx_threads(b.host)); /* the BLAS library's peer uses as many as we do */
        verdict = run_all(&b, op, path);
    }
    if (b.host != b.ctx) moi_ctx_free(b.host);
    moi_ctx_free(b.ctx);
    return verdict;
}
