/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_crossing.h"

#include "format.h"

/* Measured (docs/notes/warp-decode.md): with 1x32 scales grouped products overtake soon behind the second launch, where experts have several rows each.
 * Others read large experts faster as soon as nearly all are chosen, small ones when several rows share each, and are never slower than a second
 * launch. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, int64_t most)
{
    enum { LARGE = 12 << 20, SOME = 16, ROWS = 6 }; /* weights of an expert; tokens; rows of an expert */
    int64_t all = moii_ceil_div(d->experts, d->top_k), shared = ROWS * all;
    if (d->weights.recipe == MOI_RECIPE_MX32) return moii_min(moii_max(most + most / 4, shared), 2 * most + most / 16);
    return moii_min(3 * d->hidden * d->width >= LARGE ? moii_max(all, SOME) : shared, most + 1);
}
