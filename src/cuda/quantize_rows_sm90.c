/* SPDX-License-Identifier: Apache-2.0
 * quantize_rows_sm90.c: launches quantize_rows_sm90.cu: MXFP8 with one scale for each row, from one read. */
#include <stdio.h>
#include <stdlib.h>

#include "format.h"
#include "kernels/quantize_rows_sm90_args.h"
#include "tile8.h"

enum { ROWS = QUANTIZE_ROWS_SM90_ROWS, THREAD_COLS = 8 * QUANTIZE_ROWS_SM90_PACKETS, MOST_COLS = THREAD_COLS * QUANTIZE_ROWS_SM90_THREADS,
       MOST_BATCH = 65535 };

static void defines_for(bool bf16, bool whole, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "BF16=%d WHOLE=%d", bf16, whole); }
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(i / 2, i % 2, defines); }

static const moii_kernel kernel = { .stem = "quantize_rows_sm90", .archs = "sm_90a sm_100a", .registers = 128, .variants = 4, .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    *why = "only for row-wise results with rowwise_mx per row";
    if (d->rowwise_mx != MOI_MX_PER_ROW || d->want != MOI_WANT_ROWWISE) return false;
    *why = "in must be BF16 or FP32";
    if (d->in == MOI_F16) return false;
    *why = "cols must be at most 32768, batch at most 65535";
    if (d->cols > MOST_COLS || d->batch > MOST_BATCH) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

static void unplan(moi_plan *plan) { free(plan->state); }

/* Two kernels: for rows that are not in whole packets, and for those that are. */
static moi_status plan_it(moi_plan *plan)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    moii_gpu_kernel *k = calloc(2, sizeof *k);
    MOII_REQUIRE(k, MOI_ERR_NOMEM, "quantize plan: no memory");
    plan->state = k;
    plan->unplan = unplan;
    for (int whole = 0; whole < 2; whole++) {
        k[whole].kernel = &kernel;
        defines_for(d->in == MOI_BF16, whole, k[whole].defines);
    }
    return moii_gpu_prepare(plan->ctx, k, 2);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *in = args;
    const moii_gpu_kernel *k = plan->state;
    (void)workspace;
    quantize_rows_sm90_args a = { .in = in->in.data, .rows = in->rows, .cols = d->cols, .in_ld = in->in.ld ? in->in.ld : d->cols };
    if (a.cols == 0 || a.rows == 0 || d->batch == 0) return MOI_OK;
    a.in_bytes = a.rows * moi_row_bytes(d->in, a.in_ld);
    a.vectors = moi_row_bytes(d->in, a.in_ld) % MOII_ALIGN == 0 && (d->batch == 1 || a.in_bytes % MOII_ALIGN == 0);
    a.row = moii_tile8_side(&d->rowwise, &in->rowwise, a.rows, a.cols, 0);
    bool whole = a.vectors && a.cols % 8 == 0 && a.row.stride % 8 == 0;
    moii_gpu_launch launch = { .grid = { moii_round_up(a.rows, MOII_TILE) / ROWS, d->batch },
                               .threads = (int)moii_round_up(moii_ceil_div(a.cols, THREAD_COLS), 32) };
    return moii_gpu_run(plan, &k[whole], &launch, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_rows_sm90 = {
    .name = "quantize_rows_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
