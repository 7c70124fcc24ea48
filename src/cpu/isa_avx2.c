/* SPDX-License-Identifier: Apache-2.0
 * isa_avx2.c: AVX2 + FMA + F16C bodies; compiled with those flags, run only where the machine has them. */
#include "isa.h"

#if defined(__x86_64__)
#include "dequant_body.h"
#include "dot_e2m1_avx2.h"
#include "nn_body.h"
#include "quantize_body.h"
#include "swiglu_body.h"

static bool available(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* every such machine has F16C too */
}

const moii_isa moii_isa_avx2 = {
    .name = "avx2", .available = available,
    .nn_max = nn_max, .nn_exp_sum = nn_exp_sum, .nn_dot = nn_dot, .nn_scale = nn_scale,
    .nn_softmax_backward = nn_softmax_backward, .nn_adamw = nn_adamw,
    .dequant = dequant,
    .quant = &moii_quant_loops_here,
    .swiglu = swiglu, .swiglu_backward = swiglu_backward,
    .dot = {
        [MOI_F32] = MOII_DOT_FLOATS(dot_f32, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_F16] = MOII_DOT_FLOATS(dot_f16, 1.0f, MOII_DOT_IN_ORDER),
        [MOI_BF16] = MOII_DOT_FLOATS(dot_bf16_, 1.0f, DOT_HALVES_ORDER),
        [MOI_E4M3] = MOII_DOT_FLOATS(dot_e4m3, 0x1p96f, DOT_BYTES_ORDER),
        [MOI_E5M2] = MOII_DOT_FLOATS(dot_e5m2, 0x1p96f, DOT_BYTES_ORDER),
        [MOI_E3M2] = MOII_DOT_FLOATS(dot_e3m2, 1.0f, DOT_CODES_ORDER),
        [MOI_E2M3] = MOII_DOT_FLOATS(dot_e2m3, 1.0f, DOT_CODES_ORDER),
        [MOI_E2M1] = DOT_E2M1,
        [MOI_INT8] = MOII_DOT_FLOATS(dot_int8_, 1.0f, MOII_DOT_IN_ORDER),
    },
    .dot_scales = dot_scales_avx2,
};
#endif
