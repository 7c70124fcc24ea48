/* SPDX-License-Identifier: Apache-2.0
 * decode_layer.h: the MoE layer that the benches of moe_decode run: its shape, its numbers, what it ought to give. */
#ifndef DECODE_LAYER_H
#define DECODE_LAYER_H

#include "bench.h"

enum { DECODE_DISTINCT = 4 }; /* experts with their own numbers; the others repeat them */

typedef struct decode_layer {
    moi_moe_decode_desc desc;
    bench_matrix gate_up, down; /* `count` experts, DECODE_DISTINCT at least */
    void *x;                    /* BF16 */
    int32_t *ids;
    float *weights, *y;
    bool grouped;               /* by grouped products */
    double *decoded[2][DECODE_DISTINCT]; /* what the check has read */
} decode_layer;

/* The shape of a case, and its name; NULL, or why not. */
const char *decode_layer_shape(moi_moe_decode_desc *d, const shapes *s, int line, char name[96]);
int64_t decode_expert_bytes(const moi_moe_decode_desc *d);
/* The numbers of so many experts. */
bool decode_layer_make(bench *b, decode_layer *l, int64_t experts);
void decode_layer_free(decode_layer *l);
/* The largest error of y over its bound, by ids and weights, of all tokens or of some that are spread over them; NaN: it cannot be told. */
double decode_layer_check(bench *b, decode_layer *l, int64_t most_tokens);

#endif
