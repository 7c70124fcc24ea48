/* SPDX-License-Identifier: Apache-2.0
 * params.h: where each tensor of a model lies in one buffer of FP32 numbers.  Gradients and moments use the same places. */
#ifndef MOII_PARAMS_H
#define MOII_PARAMS_H

#include "moiety_lm.h"

typedef struct moii_param {
    char *name;         /* as on the hub */
    int64_t offset;     /* in floats */
    int64_t rows, cols; /* cols 0: a vector of `rows` (a norm) */
} moii_param;

/* Offsets of one layer's parts.  q, k and v are one matrix, their rows one after the other; gate_up holds each expert's gate
 * rows, then its up rows. */
typedef struct moii_layer {
    bool sparse;
    int64_t experts, top_k, width; /* 1, 1, intermediate_size for a dense layer */
    int64_t norm1, qkv, q_norm, k_norm, o, norm2, router, gate_up, down;
} moii_layer;

typedef struct moii_params {
    moii_param *items;
    int64_t count, room;
    moii_layer layers[MOI_LM_MAX_LAYERS];
    int64_t embed, head, norm;
    int64_t decayed; /* floats before this place are matrices, those behind it norms */
    int64_t floats;
    int64_t elements, active; /* without padding; active: what one token uses */
} moii_params;

moi_status moii_params_layout(moii_params *params, const moi_lm_config *config);
/* Moves the norms to the beginning and forgets where the matrices would lie. */
void moii_params_norms_only(moii_params *params);
void moii_params_free(moii_params *params);
static inline int64_t moii_param_elements(const moii_param *p) { return p->rows * (p->cols ? p->cols : 1); }

#endif
