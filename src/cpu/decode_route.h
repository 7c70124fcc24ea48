/* SPDX-License-Identifier: Apache-2.0
 * decode_route.h: moi_moe_decode from router logits: ids and weights come from the routing rows' own arithmetic. */
#ifndef MOII_DECODE_ROUTE_H
#define MOII_DECODE_ROUTE_H

#include "route_body.h"

/* Workspace: ids, weights and probabilities of all tokens. */
static inline int64_t moii_decode_route_bytes(const moi_moe_decode_desc *d)
{
    return d->from_logits ? d->max_tokens * (2 * d->top_k + d->experts) * 4 : 0;
}

typedef struct moii_decode_router { moi_route_desc desc; moi_route_args args; } moii_decode_router;

/* What moii_route_token takes; and `a` takes ids and weights from where that leaves them. */
static inline moii_decode_router moii_decode_router_of(const moi_moe_decode_desc *d, moi_moe_decode_args *a, void *space)
{
    float *probs = space, *weights = probs + d->max_tokens * d->experts;
    int32_t *ids = (int32_t *)(void *)(weights + d->max_tokens * d->top_k);
    moii_decode_router r = { .desc = { .max_tokens = d->max_tokens, .experts = d->experts, .top_k = d->top_k, .renormalize = d->renormalize } };
    r.args = (moi_route_args){ .tokens = a->tokens, .logits = a->logits, .probs = probs, .ids = a->ids_out ? a->ids_out : ids,
                               .weights = a->weights_out ? a->weights_out : weights };
    a->ids = r.args.ids, a->weights = r.args.weights;
    return r;
}

#endif
