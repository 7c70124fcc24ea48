/* SPDX-License-Identifier: Apache-2.0 */
#include "support_quantize.h"

#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "format.h"

int64_t moit_quant_rows(const moit_quant *t, int side) { return side ? t->cols : t->rows; }
int64_t moit_quant_cols(const moit_quant *t, int side) { return side ? t->rows : t->cols; }
int64_t moit_quant_stored(const moit_quant *t, int side) { return side ? moi_ragged_cols(&t->f[1], t->rows, t->groups) : t->cols; }
int64_t moit_quant_ld(const moit_quant *t, int side) { return t->pad ? (moit_quant_stored(t, side) + 4 * t->pad) / 4 * 4 : 0; }
int64_t moit_quant_row_bytes(const moit_quant *t, int side)
{
    return moi_row_bytes(t->f[side].elem, moit_quant_ld(t, side) ? moit_quant_ld(t, side) : moit_quant_stored(t, side));
}

void moit_quant_outputs(moit_quant *t)
{
    for (int side = 0; side < 2; side++) {
        t->data[side] = t->scale[side] = NULL;
        if (!(t->want & 1u << side)) continue;
        t->data_bytes[side] = t->batch * moit_quant_rows(t, side) * moit_quant_row_bytes(t, side);
        t->scale_bytes[side] = t->batch * moi_scale_bytes(&t->f[side], moit_quant_rows(t, side), moit_quant_cols(t, side), side ? t->groups : 0);
        t->data[side] = moit_alloc(t->data_bytes[side]);
        t->scale[side] = moit_alloc(t->scale_bytes[side]);
        memset(t->data[side], 0x5A, (size_t)t->data_bytes[side]);
        memset(t->scale[side], 0x5A, (size_t)t->scale_bytes[side]);
    }
}

void moit_quant_free(moit_quant *t)
{
    for (int side = 0; side < 2; side++) moit_free(t->data[side]), moit_free(t->scale[side]);
}

bool moit_quant_run(const moit_quant *t, const char *row)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.row = row, d.in = t->in, d.rowwise = t->f[0], d.colwise = t->f[1], d.want = t->want;
    d.max_rows = t->rows + 3, d.cols = t->cols, d.batch = t->batch, d.groups = t->groups, d.rowwise_mx = t->mx[0], d.colwise_mx = t->mx[1];
    moi_plan *plan;
    moit_mem m = moit_mem_of(row);
    moi_status status = moi_quantize_plan_create(&plan, m.ctx, &d);
    if (status == MOI_ERR_UNSUPPORTED && m.gpu) return false;
    moit_ok(status);
    void *ws = moit_mem_workspace(&m, plan);
    int64_t in_ld = t->pad ? t->cols + 4 * t->pad : 0, in_bytes = moi_row_bytes(t->in, t->batch * t->rows * (in_ld ? in_ld : t->cols));
    moi_quantize_args a = { .size = sizeof a, .rows = t->rows, .in = { moit_in(&m, t->x, in_bytes), NULL, in_ld } };
    a.rowwise = (moi_result){ moit_out(&m, t->data[0], t->data_bytes[0]), moit_out(&m, t->scale[0], t->scale_bytes[0]), moit_quant_ld(t, 0) };
    a.colwise = (moi_result){ moit_out(&m, t->data[1], t->data_bytes[1]), moit_out(&m, t->scale[1], t->scale_bytes[1]), moit_quant_ld(t, 1) };
    a.offsets = moit_in(&m, t->offsets, (t->groups + 1) * 8);
    moit_mem_run(&m, moi_quantize_run(plan, &a, ws, moi_plan_workspace_bytes(plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moi_plan_free(plan);
    return true;
}

void moit_quant_input(moit_quant *t, uint64_t salt, int nonfinite)
{
    int64_t ld = t->pad ? t->cols + 4 * t->pad : t->cols, n = t->batch * t->rows * ld;
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    moit_rng rng = moit_seed("quantize", salt);
    moit_fill_nasty(&rng, x, n, nonfinite);
    t->x = moit_alloc(moi_row_bytes(t->in, n));
    for (int64_t i = 0; i < n; i++) moi_encode(t->in, t->x, i, x[i]);
    free(x);
}

void moit_quant_same(const moit_quant *a, const moit_quant *b, int side, const char *what)
{
    for (int64_t i = 0; i < a->data_bytes[side]; i++)
        if (((unsigned char *)a->data[side])[i] != ((unsigned char *)b->data[side])[i])
            fail_msg("%s: %s %lld x %lld, side %d, %s %s: data byte %lld", what, moi_dtype_name(a->in), (long long)a->rows,
                     (long long)a->cols, side, moi_recipe_name(a->f[side].recipe), moi_dtype_name(a->f[side].elem), (long long)i);
    for (int64_t i = 0; i < a->scale_bytes[side]; i++)
        if (((unsigned char *)a->scale[side])[i] != ((unsigned char *)b->scale[side])[i])
            fail_msg("%s: %s %lld x %lld, side %d, %s %s, layout %s, flags %u, ld +%lld, want %u: scale byte %lld is %02x, want %02x", what,
                     moi_dtype_name(a->in), (long long)a->rows, (long long)a->cols, side, moi_recipe_name(a->f[side].recipe), moi_dtype_name(a->f[side].elem),
                     moi_layout_name(a->f[side].layout), a->f[side].flags, (long long)a->pad, a->want, (long long)i, ((unsigned char *)b->scale[side])[i],
                     ((unsigned char *)a->scale[side])[i]);
}

void moit_quant_rows_agree(moit_quant *ref, int *ran)
{
    for (int r = 0; r < 16 && moit_any_row("quantize", r); r++) {
        moit_quant out = *ref;
        moit_quant_outputs(&out);
        if (moit_quant_run(&out, moit_any_row("quantize", r))) {
            if (ran) ran[r]++;
            for (int side = 0; side < 2; side++)
                if (ref->want & 1u << side) moit_quant_same(ref, &out, side, moit_any_row("quantize", r));
        }
        moit_quant_free(&out);
    }
    moit_quant_free(ref), moit_free(ref->x);
}

void moit_quant_all_agree(moit_quant *ref, int *ran)
{
    moit_quant_outputs(ref);
    moit_quant_run(ref, "quantize_ref");
    moit_quant_rows_agree(ref, ran);
}
