/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_crossing.h"

#include "format.h"
#include "tensor_product.h"

/* Measured (docs/notes/warp-decode.md): grouped products are never slower than a second launch, and overtake before it where experts are large: as soon as
 * nearly all are chosen, with 1x32 scales, for which the decode rows are faster, when several rows share each.  So they do with small experts and other scales.
 * Products with 1x32 scales that thin_sm90 does not do overtake soon behind the second launch. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, int64_t most)
{
    enum { LARGE = 12 << 20, SOME = 16, ROWS = 6 }; /* weights of an expert; tokens; rows of an expert */
    int64_t all = moii_ceil_div(d->experts, d->top_k), shared = ROWS * all, late = most + 1;
    bool large = 3 * d->hidden * d->width >= LARGE, mx = d->weights.recipe == MOI_RECIPE_MX32;
    bool thin = moii_thin_takes(&d->weights, d->hidden, d->experts) && moii_thin_takes(&d->weights, d->width, d->experts);
    if (mx && !thin) return moii_min(moii_max(most + most / 4, shared), 2 * most + most / 16);
    if (mx) return large ? moii_min(shared, late) : late;
    return moii_min(large ? moii_max(all, SOME) : shared, late);
}
