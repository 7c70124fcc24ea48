/* SPDX-License-Identifier: Apache-2.0
 * decode_routing.h: where the two launches of a decode layer have its routing from: from the caller's ids and weights, or from router logits, of
 * few tokens in the launches themselves, of many by a launch of route_plain.cu before them. */
#ifndef MOII_DECODE_ROUTING_H
#define MOII_DECODE_ROUTING_H

#include "gpu.h"

enum { MOII_ROUTED_IN_PASSES = 512 }; /* most experts where passes route for themselves: ROUTE_IN_REGISTERS */

/* In the workspace of a plan from logits; up to in_pass tokens are routed by the first launch. */
typedef struct moii_decode_places { int64_t ids, weights, probs; int in_pass; } moii_decode_places;

/* For both launches: ids, or logits from which each block finds them; then the first launch writes ids_out and weights_out.  The second one's
 * weights. */
typedef struct moii_decode_routing {
    const int *ids;
    const float *logits;
    int *ids_out;
    float *weights_out;
    const float *weights;
} moii_decode_routing;

/* Where so many bytes of the workspace begin, behind all that it holds. */
int64_t moii_decode_reserve(moi_plan *plan, int64_t bytes);

/* Workspace for the routing of `tokens` at once, from logits. */
moii_decode_places moii_decode_places_for(moi_plan *plan, int64_t tokens, int in_pass);

/* Routing of the tokens first .. first + tokens - 1; route: route_plain's kernel, prepared if the plan is from logits. */
moi_status moii_decode_route(const moi_plan *plan, const moi_moe_decode_args *in, int64_t first, int64_t tokens, const moii_decode_places *places,
                             const moii_gpu_kernel *route, void *workspace, moi_stream stream, moii_decode_routing *out);

/* Into the arguments of both launches, whose structs name these alike. */
#define MOII_DECODE_SET_ROUTING(r, up, down) \
    ((up)->ids = (down)->ids = (r)->ids, (up)->logits = (down)->logits = (r)->logits, (up)->ids_out = (r)->ids_out, \
     (up)->weights_out = (r)->weights_out, (down)->weights = (r)->weights)

#endif
