/* SPDX-License-Identifier: Apache-2.0
 * isa_generic.c: plain C bodies, for any machine. */
#include "isa.h"

#include "dequant_body.h"
#include "dot_body.h"
#include "nn_body.h"
#include "quantize_body.h"
#include "swiglu_body.h"

static bool available(void) { return true; }

const moii_isa moii_isa_generic = {
    .name = "generic", .available = available,
    .nn_max = nn_max, .nn_exp_sum = nn_exp_sum, .nn_dot = nn_dot, .nn_scale = nn_scale,
    .nn_softmax_backward = nn_softmax_backward, .nn_adamw = nn_adamw,
    .dequant = dequant,
    .quant = &moii_quant_loops_here,
    .swiglu = swiglu, .swiglu_backward = swiglu_backward,
    .dot = {
        [MOI_F32] = MOII_DOT_FLOATS(dot_c_f32, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_F16] = MOII_DOT_FLOATS(dot_c_f16, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_BF16] = MOII_DOT_FLOATS(dot_c_bf16, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_E4M3] = MOII_DOT_FLOATS(dot_c_e4m3, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_E5M2] = MOII_DOT_FLOATS(dot_c_e5m2, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_E3M2] = MOII_DOT_FLOATS(dot_c_e3m2, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_E2M3] = MOII_DOT_FLOATS(dot_c_e2m3, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_E2M1] = MOII_DOT_FLOATS(dot_c_e2m1, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_INT8] = MOII_DOT_FLOATS(dot_c_int8, 1.0f, MOII_DOT_IN_ORDER),
    },
    .dot_scales = dot_scales,
};
