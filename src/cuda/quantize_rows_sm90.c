/* SPDX-License-Identifier: Apache-2.0
 * quantize_rows_sm90.c: launches quantize_rows_sm90.cu: MXFP8 with one scale for each row, from one read. */
#include <stdio.h>

#include "format.h"
#include "kernels/quantize_rows_sm90_args.h"
#include "kernels/repeat_scales_args.h"
#include "tile8.h"

enum { MANY = QUANTIZE_ROWS_SM90_MANY_PACKETS, FEW = QUANTIZE_ROWS_SM90_FEW_PACKETS, MOST_BATCH = 65535 };

/* The widest row where each thread holds so many packets. */
static int64_t most_cols(int packets) { return 8 * packets * QUANTIZE_ROWS_SM90_THREADS(packets); }

/* What one variant is compiled for; whole: rows in packets alone. */
typedef struct shape { bool bf16, whole; int packets; } shape;
static const shape shapes[] = {
    { false, false, MANY }, { false, true, MANY }, { true, false, MANY }, { true, true, MANY }, { true, false, FEW }, { true, true, FEW },
};

static void defines_for(shape s, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "BF16=%d WHOLE=%d PACKETS=%d", s.bf16, s.whole, s.packets);
}
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(shapes[i], defines); }

static const moii_kernel kernel = {
    .stem = "quantize_rows_sm90", .archs = "sm_90a sm_100a", .registers = 128, .variants = sizeof shapes / sizeof *shapes, .variant = variant,
};

/* A row's scales lie far from each other, one by one in layout COL and four by four in tiled: they are written once for each row and then repeated, many
 * rows at a time; few rows of the tiled layout rather without a second launch. */
static const moii_kernel repeat = { .stem = "repeat_scales", .archs = "sm_90a sm_100a", .registers = 32 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    *why = "only for row-wise results with rowwise_mx per row";
    if (d->rowwise_mx != MOI_MX_PER_ROW || d->want != MOI_WANT_ROWWISE) return false;
    *why = "in must be BF16 or FP32";
    if (d->in == MOI_F16) return false;
    *why = "rows must be at most 2^30, cols 32768, batch 65535";
    if (d->max_rows > 1 << 30 || d->cols > most_cols(MANY) || d->batch > MOST_BATCH) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

/* Kernels for rows that are not in whole packets, and for those that are, and behind both. */
enum { PIECES, WHOLE, FORMS, REPEAT = FORMS, KERNELS };

/* From BF16, rows that are not too wide: fewer registers are faster. */
static int packets_of(const moi_quantize_desc *d) { return d->in == MOI_BF16 && d->cols <= most_cols(FEW) ? FEW : MANY; }

static int threads_of(const moi_quantize_desc *d) { return (int)moii_round_up(moii_ceil_div(d->cols, 8 * packets_of(d)), 32); }

static moi_status plan_it(moi_plan *plan)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    moii_gpu_kernel *k = moii_gpu_state(plan, KERNELS * sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    for (int i = 0; i < FORMS; i++) {
        k[i].kernel = &kernel;
        defines_for((shape){ d->in == MOI_BF16, i == WHOLE, packets_of(d) }, k[i].defines);
    }
    k[REPEAT].kernel = &repeat;
    return moii_gpu_prepare(plan->ctx, k, d->rowwise.layout == MOI_LAYOUT_ROW ? FORMS : KERNELS);
}

static bool repeats(const moi_quantize_desc *d, const quantize_rows_sm90_args *a)
{
    enum { MANY_ROWS = 32768, FIRST = 4 };
    return d->rowwise.layout == MOI_LAYOUT_COL || (d->rowwise.layout == MOI_LAYOUT_TILED && a->rows >= MANY_ROWS && a->row.blocks > FIRST);
}

static moi_status run_repeat(const moi_plan *plan, const quantize_rows_sm90_args *a, moi_stream stream)
{
    enum { THREADS = 256, CHUNK = 16, COPIES = 16, ATOM = 512, ATOM_BLOCKS = 4 };
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moii_gpu_kernel *k = plan->state;
    repeat_scales_args r = { .scale = a->row.scale, .bytes = a->row.scale_bytes, .last = UINT32_MAX };
    if (d->rowwise.layout == MOI_LAYOUT_COL) {
        r.run = r.chunks = (unsigned int)moii_ceil_div(a->rows, CHUNK), r.copies = (unsigned int)a->row.blocks;
    } else {
        r.run = ATOM / CHUNK, r.chunks = (unsigned int)moii_ceil_div(a->rows, MOII_TILE) * r.run;
        r.copies = (unsigned int)moii_ceil_div(a->row.blocks, ATOM_BLOCKS);
        r.last >>= 8 * (r.copies * ATOM_BLOCKS - a->row.blocks);
    }
    moii_gpu_launch launch = { .grid = { moii_ceil_div(r.chunks, THREADS), moii_ceil_div(r.copies, COPIES), d->batch }, .threads = THREADS,
                               .overlap = true };
    return moii_gpu_run(plan, &k[REPEAT], &launch, &r, stream);
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
    const int form = a.vectors && a.cols % 8 == 0 && a.row.stride % 8 == 0 ? WHOLE : PIECES;
    const int64_t parts = moii_round_up(a.rows, MOII_TILE) / QUANTIZE_ROWS_SM90_ROWS(packets_of(d));
    moii_gpu_launch launch = { .grid = { parts, d->batch }, .threads = threads_of(d) };
    a.once = repeats(d, &a);
    moi_status status = moii_gpu_run(plan, &k[form], &launch, &a, stream);
    return status || !a.once ? status : run_repeat(plan, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, &repeat, NULL };

const moii_impl moii_impl_quantize_rows_sm90 = {
    .name = "quantize_rows_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
