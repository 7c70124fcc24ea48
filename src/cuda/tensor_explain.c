/* SPDX-License-Identifier: Apache-2.0
 * tensor_explain.c: why a product is cut as it is, and how exact it will be, in words. */
#include <stdio.h>

#include "format.h"
#include "tensor_product.h"

typedef struct best { const moi_explain_config *to; const moii_tensor_product *p; moii_tensor_tile tile; double clocks; } best;

static void tell_tile(const best *b, const moii_tensor_tile *t, double clocks)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%3d x %3d, %2d stages, %d x 128 threads", moii_tile_rows(b->p, t), moii_tile_lines(b->p, t), t->stages,
                     t->wgs * t->turns);
    if (t->thin) n += snprintf(text + n, sizeof text - (size_t)n, ", B's rows as those of the tensor cores");
    if (t->wide) n += snprintf(text + n, sizeof text - (size_t)n, " side by side");
    if (t->turns > 1) n += snprintf(text + n, sizeof text - (size_t)n, " in %d teams", t->turns);
    if (t->cluster > 1) n += snprintf(text + n, sizeof text - (size_t)n, ", %d blocks share A", t->cluster);
    if (t->split > 1) n += snprintf(text + n, sizeof text - (size_t)n, ", reduction in %d parts", t->split);
    snprintf(text + n, sizeof text - (size_t)n, ": %.0f clocks", clocks);
    b->to->each(b->to->user, "tile", text);
}

static void keep_best(void *user, const moii_tensor_tile *t, double clocks)
{
    best *b = user;
    if (b->clocks == 0.0 || clocks < b->clocks) b->tile = *t, b->clocks = clocks;
    tell_tile(b, t, clocks);
}

/* P:gemm.bound, for this reduction; S stands for sum |A B|. */
static void tell_bound(const moii_tensor_product *p, const moii_tensor_tile *t, const moi_explain_config *to)
{
    char text[1024], lost[320] = "";
    const char *half = p->out_f32 ? "f32" : "bf16", *plus = p->accumulate ? " + |D|" : "";
    if (p->mixed && !p->halves) /* mixed_scales.cuh */
        snprintf(lost, sizeof lost, "; of b, blocks whose scale is below 2^-%d of the largest of the four they lie with are less exact, below 2^-%d 0, and so "
                 "may be those below 2^-43 of one before them in the row, or below 2^-70 of one behind", p->b->elem == MOI_E2M1 ? 24 : 21,
                 p->b->elem == MOI_E2M1 ? 28 : 23);
    if (p->scaling == SCALING_NONE || p->mixed)
        snprintf(text, sizeof text, "|D - exact| <= %lld 2^-23 (S%s) + 18 2^-25 M, S = sum |A B|, M = sum over each 16 products of the largest of them and of "
                 "the sum so far, + half a unit of %s%s%s", (long long)p->k + 4, plus, half, p->mixed ? "; of a, values below 2^-32 of their row's largest are "
                 "rounded to multiples of 2^-39 of it" : "", lost);
    else
        snprintf(text, sizeof text, "|D - exact| <= %lld 2^-23 (S%s) + %d 2^-13 M, S = sum |A B|, M = sum over each 32 products of the largest of them and of "
                 "the sum since the last multiple of %d, + %shalf a unit of %s", (long long)p->k + 4, plus, p->scaling == SCALING_MX ? 32 : 34,
                 p->scaling == SCALING_MX ? 32 : moii_tile_doubled(p, t) ? 256 : 128, moii_tile_outer(p, t) ? "17 2^-20 S (products of scales) + " : "", half);
    to->each(to->user, "bound", text);
}

void moii_tensor_explain(const moi_ctx *ctx, const moii_tensor_product *product, const moi_explain_config *to)
{
    moii_tensor_product p = *product;
    char text[MOII_DEFINES + 32];
    best b = { .to = to, .p = &p };
    moii_tensor_settle(&p, moii_gpu_of(ctx)->sms);
    if (p.widened && moii_tensor_weights_alone(product)) to->each(to->user, "copies", "b becomes BF16 first");
    else if (p.widened)
        to->each(to->user, "copies", p.widens ? "both operands become BF16, a while it is multiplied: a scale for every 32 products would cost more"
                                              : "both operands become BF16 first: a scale for every 32 products would cost more");
    if (p.mixed) to->each(to->user, "copies", "rows of a become FP16 times a power of two first; b becomes FP16 where it is multiplied");
    if (p.gather_rows)
        to->each(to->user, "rows", p.widened || p.mixed ? "copies of a's are made in the list's order" : "those that the list names are copied in order first");
    snprintf(text, sizeof text, "%d of %d", p.sms, moii_gpu_of(ctx)->sms);
    to->each(to->user, "multiprocessors", text);
    if (p.swiglu) to->each(to->user, "swiglu", "in the product's store: 128 columns of gate and 128 of up in a tile");
    moii_tensor_consider(&p, keep_best, &b);
    to->each(to->user, "tile", "of these the shortest:");
    tell_tile(&b, &b.tile, b.clocks);
    product_cutting c;
    snprintf(text, sizeof text, "%lld at most", (long long)moii_tensor_clusters(&p, &b.tile, p.m, &c) * b.tile.cluster * b.tile.split);
    to->each(to->user, "blocks", text);
    p.dealt = moii_tensor_dealt(&p, &b.tile);
    const char *drawn = moii_tensor_experts(&p) ? "tiles are drawn from a counter, those of few rows among the others" : "tiles are drawn from a counter";
    if (p.dealt) to->each(to->user, "order", drawn);
    if (!b.tile.thin) {
        snprintf(text, sizeof text, "%d rows of D, column after column", moii_tensor_band(&p, &b.tile) * moii_tile_rows(&p, &b.tile));
        to->each(to->user, "bands", text);
    }
    if (moii_tile_broad(&p, &b.tile)) to->each(to->user, "tails", "half a tile's rows or fewer, a group's last, take tiles of twice the columns");
    const moii_kernel *other = moii_thin_kernel_of(&p, &b.tile);
    int n = snprintf(text, sizeof text, "%s%s", other ? other->stem : "", other ? " " : "");
    moii_tensor_defines(&p, &b.tile, text + n);
    to->each(to->user, "kernel", text);
    tell_bound(&p, &b.tile, to);
}
