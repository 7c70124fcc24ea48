/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_crossing.h"

#include <math.h>

#include "format.h"
#include "tensor_product.h"

/* Jobs of an expert in the mean, if its rows are Poisson's, but no more than `most`: the sum over n of the probability of more than n * columns rows.  Of so
 * many rows in the mean that exp(-rows) is 0, those of `most` rows. */
static double jobs_of(double rows, int columns, int64_t most)
{
    double term = exp(-rows), up_to = term, jobs = 0; /* of x rows; of no more than that */
    for (int x = 0; x < most && up_to < 1; x++) {
        if (x % columns == 0) jobs += 1 - up_to;
        term *= rows / (x + 1), up_to += term;
    }
    return jobs;
}

/* Measured (docs/notes/warp-decode.md, "More than 128 tokens", "Products for a router's experts", "Few experts, small layers, and many slots"): for each
 * byte of weights and job the decode row takes nearly as long as grouped products, which take 25 us more, the time of so many bytes, and by jobs of 16
 * columns less, for some of a second job's weights are in L2; by jobs of more multiplying bounds 8 bits, so that they take longer, and BF16 only of 32.
 * Where these 25 us are the time of many jobs, layers are small, and few broad jobs end less evenly: then no more than so many BESIDES.  MXFP4 is bound by
 * multiplying in either: what products take besides is the time of fewer bytes, and by jobs of 8 columns the decode row takes less. */
#define MOST_OF_8 1.02
#define MOST_OF_16 1.065
#define MOST_OF_MORE 0.88
#define MOST_BF16_OF_24 1.07
#define MOST_BF16_OF_32 0.97
#define LAUNCHES_BYTES 110e6
#define BESIDES 0.5
#define BESIDES_OF_MORE 0.27 /* of 8 bits */
#define MOST_FOURS_OF_8 1.45
#define MOST_FOURS_OF_16 1.09
#define FOURS_BYTES 35e6
static double most_jobs(const moi_moe_decode_desc *d, int columns)
{
    const double bytes = (double)moi_row_bytes(d->weights.elem, d->width) * 3.0 * (double)d->hidden * (double)d->experts;
    if (d->weights.elem == MOI_E2M1) return columns == 8 ? MOST_FOURS_OF_8 : MOST_FOURS_OF_16 + fmin(FOURS_BYTES / bytes, BESIDES);
    const bool bf16 = d->weights.elem == MOI_BF16;
    const double of_more = !bf16 ? MOST_OF_MORE : columns == 24 ? MOST_BF16_OF_24 : MOST_BF16_OF_32, besides = LAUNCHES_BYTES / bytes;
    if (columns == 8) return MOST_OF_8 + besides;
    return columns == 16 ? MOST_OF_16 + fmin(besides, BESIDES) : of_more + fmin(besides, bf16 ? BESIDES : BESIDES_OF_MORE);
}

/* Jobs of more than 16 columns are taken where they are better than those of 16: they do not turn before these would. */
static bool are_many(const moi_moe_decode_desc *d, double rows, int columns, int64_t tokens)
{
    if (jobs_of(rows, columns, tokens) <= most_jobs(d, columns)) return false;
    return columns <= 16 || jobs_of(rows, 16, tokens) > most_jobs(d, 16);
}

int64_t moii_decode_late(const moi_moe_decode_desc *d, const moii_decode_launch *launch, int launches)
{
    enum { FEW = 64, SURE = 128 }; /* up to so many tokens, of BF16 up to SURE, it is taken as never far behind */
    int64_t tokens = (d->weights.elem == MOI_BF16 ? SURE : FEW) + 1;
    for (int i = 0; i < launches; i++)
        for (; tokens <= launch[i].tokens; tokens++) {
            const double rows = (double)(tokens * d->top_k) / (double)d->experts; /* at most one of each token */
            if ((launch[i].shallow && tokens > SURE) || are_many(d, rows, launch[i].columns, tokens)) return tokens;
        }
    return launch[launches - 1].tokens + 1;
}

/* Measured (docs/notes/warp-decode.md): grouped products are never slower than a second launch.  Before that, moe_decode_f16_sm90 is faster, or 2 % slower and
 * more exact, until many experts have several jobs; but of huge experts, whose tokens soon are.  The row for all weights they overtake where experts are large,
 * as soon as nearly all are chosen, and where they are small, when several rows share each; with 1x32 scales that no product takes as they lie as soon as
 * nearly all experts are chosen, or of MXFP4 (by its times at other shapes) when some rows share each.  But of more experts than halves_sm90 takes weights have
 * to be copied first. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, bool f16, int64_t most, int64_t late)
{
    enum { LARGE = 12 << 20, HUGE = 64 << 20, SOME = 16, ROWS = 6, JOB_ROWS = 5 }; /* weights of an expert; tokens; rows of an expert */
    const bool fours = d->weights.elem == MOI_E2M1;
    int64_t all = moii_ceil_div(d->experts, d->top_k), early = moii_max(fours ? JOB_ROWS * all : all, SOME), shared = ROWS * all;
    bool large = 3 * d->hidden * d->width >= LARGE, mx = d->weights.recipe == MOI_RECIPE_MX32;
    bool thin = moii_thin_takes(&d->weights, d->hidden, 1) && moii_thin_takes(&d->weights, d->width, 1);
    if (mx && d->experts > THIN_GROUPS) return 4 * most + 1;
    if (mx && !f16 && !thin) return moii_min(early, late);
    if (mx || f16) return 3 * d->hidden * d->width >= HUGE ? moii_min(moii_max(JOB_ROWS * all, SOME), late) : late;
    return moii_min(large ? early : shared, late);
}
