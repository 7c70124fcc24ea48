/* SPDX-License-Identifier: Apache-2.0
 * decode_routing.c: ids and weights of a decode layer's tokens, as they are given or from router logits. */
#include "decode_routing.h"

#include "format.h"
#include "route_plain.h"

int64_t moii_decode_reserve(moi_plan *plan, int64_t bytes)
{
    int64_t at = plan->workspace_bytes;
    plan->workspace_bytes += moii_round_up(bytes, MOII_WORKSPACE_ALIGN);
    return at;
}

moii_decode_places moii_decode_places_for(moi_plan *plan, int64_t tokens, int in_pass)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    moii_decode_places at = { .in_pass = in_pass };
    at.ids = moii_decode_reserve(plan, tokens * d->top_k * 4);
    at.weights = moii_decode_reserve(plan, tokens * d->top_k * 4);
    at.probs = moii_decode_reserve(plan, tokens * d->experts * 4);
    return at;
}

moi_status moii_decode_route(const moi_plan *plan, const moi_moe_decode_args *in, int64_t first, int64_t tokens, const moii_decode_places *places,
                             const moii_gpu_kernel *route, void *workspace, moi_stream stream, moii_decode_routing *out)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t slot = first * d->top_k;
    *out = (moii_decode_routing){ 0 };
    if (!d->from_logits) {
        out->ids = in->ids + slot, out->weights = in->weights + slot;
        return MOI_OK;
    }
    int *ids = in->ids_out ? in->ids_out + slot : (int *)(void *)((char *)workspace + places->ids);
    float *weights = in->weights_out ? in->weights_out + slot : (float *)(void *)((char *)workspace + places->weights);
    const float *logits = in->logits + first * d->experts;
    out->weights = weights;
    if (tokens <= places->in_pass) {
        out->logits = logits, out->ids_out = ids, out->weights_out = weights;
        return MOI_OK;
    }
    out->ids = ids;
    moi_route_desc r = { .experts = d->experts, .top_k = d->top_k, .renormalize = d->renormalize };
    moi_route_args a = { .tokens = tokens, .logits = logits, .probs = (float *)(void *)((char *)workspace + places->probs), .ids = ids,
                         .weights = weights };
    return moii_route_tokens(plan, route, &r, &a, stream);
}
