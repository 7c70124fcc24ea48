/* SPDX-License-Identifier: Apache-2.0
 * rebase_ref.c: the 32-blocks of a group, re-expressed against the group's largest scale. */
#include "cpu.h"
#include "quantize_block.h"
#include "scales.h"

typedef struct group {
    const unsigned char *in;
    unsigned char *out;
    int64_t row, first, last; /* blocks first..last-1 of a row */
    int64_t cols;
} group;

static unsigned int scale_code(const moii_scales *s, int64_t row, int64_t block)
{
    return ((const unsigned char *)s->data)[moi_scale_index(s->format->layout, MOI_E8M0, row, block, s->rows, s->blocks)];
}

static bool all_zero(const group *g, int64_t block)
{
    for (int64_t c = block * MOII_MX_BLOCK; c < moii_min((block + 1) * MOII_MX_BLOCK, g->cols); c++)
        if (g->in[c] & 0x7F) return false;
    return true;
}

/* E*, or 0xFF if a block of the group has a NaN scale. */
static unsigned int common_scale(const group *g, const moii_scales *s)
{
    unsigned int top = 0;
    for (int64_t b = g->first; b < g->last; b++) {
        unsigned int e = scale_code(s, g->row, b);
        if (e == 0xFF) return 0xFF;
        if (e > top && !all_zero(g, b)) top = e;
    }
    return top;
}

static void shift_block(const group *g, int64_t block, bool nan, int shift)
{
    /* beyond 2^-60 every code rounds to zero anyway, and the factor stays a normal FP32 */
    float factor = moii_float_of((unsigned int)(127 - (shift < 60 ? shift : 60)) << 23);
    for (int64_t c = block * MOII_MX_BLOCK; c < moii_min((block + 1) * MOII_MX_BLOCK, g->cols); c++)
        g->out[c] = (unsigned char)(nan ? 0x7F : moii_e4m3_encode(moii_e4m3_decode(g->in[c]) * factor));
}

/* Rebases one group; gives its largest shift and its bound. */
static int rebase_group(const group *g, const moii_scales *from, const moii_scales *to, void *to_data, float *bound)
{
    unsigned int top = common_scale(g, from);
    int worst = 0;
    for (int64_t b = g->first; b < g->last; b++) {
        int shift = (int)top - (int)scale_code(from, g->row, b);
        if (top == 0xFF || all_zero(g, b)) shift = 0;
        if (shift > worst) worst = shift;
        shift_block(g, b, top == 0xFF, shift);
        moii_scale_put(to, to_data, g->row, b, top);
    }
    *bound = top == 0xFF ? moii_e8m0_decode(0xFF) : worst ? 0x1p-10f * moii_e8m0_decode(top) : 0.0f;
    return worst;
}

void moii_rebase_side(const moii_side *s, moi_mx_scales mx, int64_t from_row, int64_t to_row)
{
    const int64_t whole[2] = { 0, s->cols }, *offsets = s->groups ? s->offsets : whole;
    moii_scales scales = moii_scales_of(s->format, s->scale, s->rows, s->cols, s->groups);
    int64_t stride = moii_ld_bytes(s->format, s->ld, moi_ragged_cols(s->format, s->cols, s->groups));
    for (int64_t r = from_row; r < to_row; r++)
        for (int64_t i = 0; i < moii_max(s->groups, 1); i++) {
            const int64_t length = offsets[i + 1] - offsets[i], start = moii_ragged_start(s->format, offsets[i], i), first = start / MOII_MX_BLOCK;
            const int64_t last = first + moii_ceil_div(length, MOII_MX_BLOCK), width = mx == MOI_MX_PER_128 ? MOII_BLK / MOII_MX_BLOCK : last - first;
            unsigned char *row = (unsigned char *)s->data + r * stride;
            for (int64_t b = first; b < last; b += width) {
                group g = { row, row, r, b, moii_min(b + width, last), start + length };
                float bound;
                rebase_group(&g, &scales, &scales, s->scale, &bound);
            }
        }
}

/* All rows; gives their largest shift. */
static int rebase_rows(const moi_rebase_desc *d, const moi_rebase_args *a)
{
    moii_scales from = moii_scales_of(&d->format, a->in.scale, a->rows, d->cols, 0);
    moii_scales to = moii_scales_of(&d->format, a->out.scale, a->rows, d->cols, 0);
    int64_t width = d->group ? d->group / MOII_MX_BLOCK : from.blocks, groups = width ? moii_ceil_div(from.blocks, width) : 0;
    int worst = 0;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < groups; i++) {
            group g = { (const unsigned char *)a->in.data + r * (a->in.ld ? a->in.ld : d->cols),
                        (unsigned char *)a->out.data + r * (a->out.ld ? a->out.ld : d->cols),
                        r, i * width, moii_min((i + 1) * width, from.blocks), d->cols };
            float bound;
            int shift = rebase_group(&g, &from, &to, a->out.scale, &bound);
            if (shift > worst) worst = shift;
            if (a->bound) a->bound[r * groups + i] = bound;
        }
    return worst;
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_rebase_desc *d = &plan->desc.rebase;
    const moi_rebase_args *a = args_;
    (void)workspace, (void)stream;
    moii_scales to = moii_scales_of(&d->format, a->out.scale, a->rows, d->cols, 0);
    int worst = rebase_rows(d, a);
    if (a->rows && d->cols) moii_scales_pad(&to, a->out.scale);
    if (a->max_shift) *a->max_shift = worst;
    return MOI_OK;
}

const moii_impl moii_impl_rebase_ref = {
    .name = "rebase_ref", .op = MOII_OP_REBASE, .backend = MOI_BACKEND_CPU,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32), .is_reference = true, .run = run,
};
