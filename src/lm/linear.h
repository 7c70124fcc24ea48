/* SPDX-License-Identifier: Apache-2.0
 * linear.h: y = x W^T under a recipe.  Each of the three products reads operands that were quantised along its own
 * reduction: fprop x and W by rows; dgrad dY by rows and W by columns; wgrad dY and x by columns (that is, tokens).
 * Plain recipes keep one form and let the product read it either way. */
#ifndef MOII_LINEAR_H
#define MOII_LINEAR_H

#include "matrix.h"
#include "moiety_lm.h"

typedef struct moii_linear {
    int64_t in, out, max_tokens;
    bool backward;
    bool both_weights; /* weights are prepared for dgrad too */
    bool plain; /* no scales: one form serves all products */
    moi_format act, weight, grad;
    moi_plan *quantize_x, *quantize_w, *quantize_dy, *fprop, *dgrad, *wgrad;
} moii_linear;

/* Memory that a call may use: `bytes` at `at`, aligned to 128. */
typedef struct moii_space { char *at; int64_t bytes; } moii_space;

/* backward: training on exactly max_tokens tokens; else forward only, on up to max_tokens. */
moi_status moii_linear_create(moii_linear *linear, moi_ctx *ctx, const moi_lm_options *options, int64_t in, int64_t out,
                              int64_t max_tokens, bool backward, bool backward_weights);
void moii_linear_free(moii_linear *linear);

int64_t moii_linear_prepared_bytes(const moii_linear *linear);
int64_t moii_linear_saved_bytes(const moii_linear *linear);
int64_t moii_linear_space_bytes(const moii_linear *linear); /* beside what it keeps */

moi_status moii_linear_prepare(const moii_linear *linear, const float *w, void *prepared, moii_space space);
/* saved: NULL where no backward pass follows */
moi_status moii_linear_forward(const moii_linear *linear, int64_t tokens, const void *prepared, const float *x, void *saved, float *y,
                               moii_space space);
/* dx is overwritten, dw added to */
moi_status moii_linear_backward(const moii_linear *linear, const void *prepared, const void *saved, const float *dy, float *dx, float *dw,
                                moii_space space);

#endif
