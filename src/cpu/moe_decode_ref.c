/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_ref.c: small-batch MoE, token by token and output by output, in double.
 * Workspace: x [h] and u [top_k, f] of one token, FP32; from logits also what routing leaves. */
#include <math.h>

#include "decode_route.h"
#include "experts.h"

static moi_status plan_ref(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    plan->workspace_bytes = (d->hidden + d->top_k * d->width) * (int64_t)sizeof(float) + moii_decode_route_bytes(d);
    return MOI_OK;
}

/* u[i] = silu(gate[i] . x) * (up[i] . x), rounded to FP32 and then to x's type */
static void neurons(const moi_moe_decode_desc *d, const moii_experts *gate_up, int64_t expert, const float *x, float *u)
{
    for (int64_t i = 0; i < d->width; i++) {
        double gate = moii_experts_dot(gate_up, expert, i, x);
        double up = moii_experts_dot(gate_up, expert, d->width + i, x);
        u[i] = (float)(gate / (1.0 + exp(-gate)) * up);
        if (d->x == MOI_BF16) u[i] = moii_bf16_decode(moii_bf16_encode(u[i]));
    }
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    moi_moe_decode_args copy = *(const moi_moe_decode_args *)args_;
    const moi_moe_decode_args *a = &copy;
    float *x = workspace, *u = x + d->hidden;
    (void)stream;
    if (d->from_logits) {
        moii_decode_router r = moii_decode_router_of(d, &copy, u + d->top_k * d->width);
        for (int64_t t = 0; t < a->tokens; t++) moii_route_token(&r.desc, &r.args, t);
    }
    moii_experts gate_up = a->apart ? moii_experts_apart(&d->weights, a->apart, false, d->width, d->hidden)
                                    : moii_experts_of(&d->weights, &a->gate_up, 2 * d->width, d->hidden);
    moii_experts down = a->apart ? moii_experts_apart(&d->weights, a->apart, true, d->hidden, d->width)
                                 : moii_experts_of(&d->weights, &a->down, d->hidden, d->width);
    for (int64_t t = 0; t < a->tokens; t++) {
        const int32_t *ids = a->ids + t * d->top_k;
        const float *weights = a->weights + t * d->top_k;
        const char *in = (const char *)a->x + t * moi_row_bytes(d->x, d->hidden);
        char *out = (char *)a->y + t * moi_row_bytes(d->out, d->hidden);
        for (int64_t l = 0; l < d->hidden; l++) x[l] = moi_decode(d->x, in, l);
        for (int64_t s = 0; s < d->top_k; s++)
            if (ids[s] >= 0) neurons(d, &gate_up, ids[s], x, u + s * d->width);
        for (int64_t j = 0; j < d->hidden; j++) {
            double sum = 0;
            for (int64_t s = 0; s < d->top_k; s++)
                if (ids[s] >= 0) sum += (double)weights[s] * moii_experts_dot(&down, ids[s], j, u + s * d->width);
            moi_encode(d->out, out, j, (float)sum);
        }
    }
    return MOI_OK;
}

const moii_impl moii_impl_moe_decode_ref = {
    .name = "moe_decode_ref", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .takes_logits = true, .is_reference = true, .plan = plan_ref, .run = run,
};
