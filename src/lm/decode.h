/* SPDX-License-Identifier: Apache-2.0
 * decode.h: the experts of one token at a time, through moi_moe_decode. */
#ifndef MOII_DECODE_H
#define MOII_DECODE_H

#include "lm.h"

/* One kind of layer (dense or sparse): its plans and where its weights lie in a layer's buffer. */
typedef struct moii_decode_kind {
    moi_plan *quantize_gate_up, *quantize_down, *experts, *router;
    moii_matrix gate_up, down; /* of one expert */
    int64_t gate_up_scale_at, down_at, down_scale_at, bytes; /* offsets in a layer's part, all experts together */
} moii_decode_kind;

typedef struct moii_decode {
    moii_decode_kind kinds[2]; /* dense, sparse */
    moi_dtype x;               /* of activations: F32 in recipe F32, else BF16 */
    moi_plan *to_x;            /* FP32 to BF16 */
    char *weights;             /* all layers' */
    int64_t bytes;
    uint64_t version;          /* of the model's weights these were made from */
    char *scratch; /* what follows */
    void *x_half;              /* [h] */
    float *logits;             /* [e] */
    moii_space space;
} moii_decode;

moi_status moii_decode_create(moii_decode **out, moi_lm *lm);
void moii_decode_free(moii_decode *decode, moi_ctx *ctx);
/* Quantises the experts again if the model changed. */
moi_status moii_decode_prepare(moii_decode *decode, const moi_lm *lm);
/* y [h] = experts of layer(x [h]) */
moi_status moii_decode_layer(const moii_decode *decode, const moi_lm *lm, int64_t layer, const float *x, float *y);

#endif
