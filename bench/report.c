/* SPDX-License-Identifier: Apache-2.0
 * report.c: runs the cases and prints the lines. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

const bench_op bench_ops[] = {
    { "quantize", bench_quantize }, { "dequantize", bench_dequantize }, { "gemm", bench_gemm },
    { "ggemm", bench_ggemm },       { "moe", bench_moe },               { "moe_decode", bench_moe_decode },
    { "model", bench_model },
};
const int bench_op_count = (int)(sizeof bench_ops / sizeof *bench_ops);

static const char *date(void)
{
    static char text[32];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

/* "avx2" of "cpu: 2 threads, avx2"; "NVIDIA H200" and "capability 9.0" of "cuda: NVIDIA H200, capability 9.0, ...": the words up to the next comma. */
static const char *words(const char *from)
{
    static char text[2][96];
    static int turn;
    char *to = text[turn ^= 1];
    from += strspn(from, ", ");
    snprintf(to, sizeof text[0], "%.*s", (int)strcspn(from, ","), from);
    return *to ? to : "unknown";
}
static const char *isa(const bench *b)
{
    const char *comma = strchr(moi_ctx_describe(b->ctx), ',');
    return words(comma ? comma : "");
}
/* The CPU, or the GPU whose rows are timed. */
static const char *machine(const bench *b)
{
    const char *colon = strchr(moi_ctx_describe(b->ctx), ':');
    return b->ctx == b->host ? machine_name() : words(colon ? colon + 1 : "");
}

void bench_header(bench *b)
{
    printf("%s, %s, %.0f MB last-level cache\n\n", machine_name(), moi_ctx_describe(b->ctx), (double)machine_cache_bytes() / 1048576.0);
    printf("%-10s %-20s %-40s %11s %11s %11s %5s %9s %8s %9s\n", "op", "row", "case", "median us", "p10", "p90", "reps", "GFLOP/s", "GB/s",
           "of limit");
    if (b->csv)
        fprintf(b->csv, "commit,date,machine,threads,isa,op,row,case,reps,median_us,p10_us,p90_us,gflop_s,gb_s,limit,limit_value,"
                        "limit_unit,percent_of_limit\n");
}

bool bench_refuse(bench *b, const char *op, const char *name, const char *row, const char *why)
{
    printf("%-10s %-20s %-40s REFUSED: %s\n", op, row ? row : "-", name, why);
    fflush(stdout);
    b->refused++;
    return false;
}

bool bench_within(bench *b, const bench_case *c, double worst)
{
    char why[96];
    if (worst <= 1) return true;
    snprintf(why, sizeof why, "wrong result: the error is %.3g times the bound of moiety.h", worst);
    return bench_refuse(b, c->op, c->name, c->row, why);
}

bool bench_declined(bench *b, const char *op, const char *name, const char *row)
{
    if (!b->rows || strcmp(b->rows, "all")) return bench_refuse(b, op, name, row, moi_last_error());
    printf("%-10s %-20s %-40s declined\n", op, row, name);
    return true;
}

bool bench_time(bench *b, const bench_case *c)
{
    static timing of_work, of_limit;
    if (!timing_measure(&c->work, &c->limit->work, b->quick, &of_work, &of_limit))
        return bench_refuse(b, c->op, c->name, c->row, moi_last_error());
    timing_stats w = timing_summary(&of_work), l = timing_summary(&of_limit);
    double calls = c->calls ? (double)c->calls : 1;
    w.median /= calls, w.p10 /= calls, w.p90 /= calls;
    double gflops = c->flops / w.median * 1e-9, gbs = c->bytes / w.median * 1e-9;
    double limit = c->limit->amount / l.median * 1e-9;
    double percent = 100.0 * (strcmp(c->limit->unit, "GB/s") ? gflops : gbs) / limit;
    printf("%-10s %-20s %-40s %11.1f %11.1f %11.1f %5d %9.2f %8.2f %8.1f%%  (%s: %.1f %s)\n", c->op, c->row, c->name, w.median * 1e6,
           w.p10 * 1e6, w.p90 * 1e6, w.count, gflops, gbs, percent, c->limit->name, limit, c->limit->unit);
    fflush(stdout);
    if (b->csv)
        fprintf(b->csv, "%s,%s,%s,%d,%s,%s,%s,%s,%d,%.2f,%.2f,%.2f,%.3f,%.3f,%s,%.3f,%s,%.1f\n", b->commit, date(), machine(b),
                moi_ctx_threads(b->ctx), isa(b), c->op, c->row, c->name, w.count, w.median * 1e6, w.p10 * 1e6, w.p90 * 1e6, gflops,
                gbs, c->limit->name, limit, c->limit->unit, percent);
    b->timed++;
    return true;
}
