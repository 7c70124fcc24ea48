/* SPDX-License-Identifier: Apache-2.0
 * moe_layout.c: what lies where in the prepared weights and the saved activations, and how large they are. */
#include "moe.h"

/* Rows start at multiples of 16 elements: aligned for every element of a byte or more.  groups > 0: a column-wise result. */
moii_moe_operand moii_arena_operand(moii_arena *a, const moi_format *f, int64_t rows, int64_t cols, int64_t groups)
{
    moii_moe_operand o = { .ld = groups ? moi_colwise_ld(f, cols, groups) : moii_round_up(cols, 16) };
    o.data = moii_arena_take(a, rows * moi_row_bytes(f->elem, o.ld));
    if (!moii_format_plain(f)) o.scale = moii_arena_take(a, moi_scale_bytes(f, rows, cols, groups));
    return o;
}

/* Weights are dense and one expert's matrix follows the other. */
static moii_moe_operand weights(moii_arena *a, const moi_format *f, int64_t experts, int64_t rows, int64_t cols)
{
    moii_moe_operand o = { .ld = 0 };
    o.data = moii_arena_take(a, experts * rows * moi_row_bytes(f->elem, cols));
    if (!moii_format_plain(f)) o.scale = moii_arena_take(a, experts * moi_scale_bytes(f, rows, cols, 0));
    return o;
}

void moii_moe_lay_prepared(const moi_plan *plan, moii_arena *a, bool for_backward, moii_moe_prepared *out)
{
    const moi_moe_desc *d = &plan->desc.moe;
    const moii_moe_formats *f = &moii_moe_of(plan)->formats;
    *out = (moii_moe_prepared){ .gate_up = weights(a, &f->weight, d->experts, 2 * d->width, d->hidden) };
    out->down = weights(a, &f->weight, d->experts, d->hidden, d->width);
    if (!for_backward || !f->scaled) return;
    out->gate_up_t = weights(a, &f->weight, d->experts, d->hidden, 2 * d->width);
    out->down_t = weights(a, &f->weight, d->experts, d->width, d->hidden);
}

void moii_moe_lay_saved(const moi_plan *plan, moii_arena *a, int64_t tokens, bool training, moii_moe_saved *out)
{
    const moi_moe_desc *d = &plan->desc.moe;
    const moii_moe *m = moii_moe_of(plan);
    const moii_moe_formats *f = &m->formats;
    int64_t slots = tokens * d->top_k;
    *out = (moii_moe_saved){ .offsets = moii_arena_take(a, (d->experts + 1) * 8) };
    if (m->routed) {
        out->ids = moii_arena_take(a, slots * 4);
        out->row_of = moii_arena_take(a, slots * 4);
        out->token_of = moii_arena_take(a, slots * 4);
        out->weights = moii_arena_take(a, slots * 4);
        out->probs = moii_arena_take(a, tokens * d->experts * 4);
        out->y_sorted = moii_arena_take(a, slots * moi_row_bytes(d->io, d->hidden));
    }
    out->gate_up = moii_arena_take(a, slots * moi_row_bytes(f->inner, 2 * d->width));
    if (!f->scaled) {
        if (!moii_moe_reads_x(plan)) out->x.data = moii_arena_take(a, slots * moi_row_bytes(f->act.elem, d->hidden));
        out->act.data = moii_arena_take(a, slots * moi_row_bytes(f->act.elem, d->width));
    } else if (training) {
        out->x = moii_arena_operand(a, &f->act, d->hidden, slots, d->experts);
        out->act = moii_arena_operand(a, &f->act, d->width, slots, d->experts);
    }
}

int64_t moi_moe_prepared_bytes(const moi_plan *plan, bool for_backward)
{
    moii_arena a = { NULL, 0 };
    moii_moe_prepared p;
    if (!plan || plan->op != MOII_OP_MOE) return -1;
    moii_moe_lay_prepared(plan, &a, for_backward, &p);
    return a.used;
}

int64_t moi_moe_saved_bytes(const moi_plan *plan, int64_t tokens)
{
    moii_arena a = { NULL, 0 };
    moii_moe_saved s;
    if (!plan || plan->op != MOII_OP_MOE || tokens < 0 || tokens > plan->desc.moe.max_tokens) return -1;
    moii_moe_lay_saved(plan, &a, tokens, true, &s);
    return a.used;
}
