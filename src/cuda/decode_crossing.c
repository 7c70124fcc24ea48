/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_crossing.h"

#include "format.h"
#include "tensor_product.h"

/* Measured (docs/notes/warp-decode.md): grouped products are never slower than a second launch.  Before it moe_decode_f16_sm90 is faster, or 2 % slower and
 * more exact, but of huge experts, whose tokens soon are several jobs; of MXFP4 in whole lines, which it reads at half the bytes, even with a second launch of
 * a few tokens.  The row for all weights they overtake where experts are large, as soon as nearly all are chosen, and where they are small, when several rows
 * share each; with 1x32 scales that no product takes as they lie as soon as nearly all experts are chosen, or of MXFP4 (by its times at other shapes) when
 * some rows share each.  But of more experts than halves_sm90 takes weights have to be copied first. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, bool f16, int64_t most)
{
    enum { LARGE = 12 << 20, HUGE = 64 << 20, SOME = 16, ROWS = 6, JOB_ROWS = 5, FEW = 6 }; /* weights of an expert; tokens; rows of an expert; tokens */
    const bool fours = d->weights.elem == MOI_E2M1;
    int64_t all = moii_ceil_div(d->experts, d->top_k), early = moii_max(fours ? JOB_ROWS * all : all, SOME), shared = ROWS * all;
    int64_t late = most + 1;
    bool large = 3 * d->hidden * d->width >= LARGE, mx = d->weights.recipe == MOI_RECIPE_MX32;
    bool thin = moii_thin_takes(&d->weights, d->hidden, 1) && moii_thin_takes(&d->weights, d->width, 1);
    if (fours && thin) late += FEW;
    if (mx && d->experts > THIN_GROUPS) return 4 * most + 1;
    if (mx && !f16 && !thin) return moii_min(early, late);
    if (mx || f16) return 3 * d->hidden * d->width >= HUGE ? moii_min(moii_max(JOB_ROWS * all, SOME), late) : late;
    return moii_min(large ? early : shared, late);
}
