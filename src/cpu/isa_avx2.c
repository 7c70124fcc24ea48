/* SPDX-License-Identifier: Apache-2.0
 * isa_avx2.c: AVX2 + FMA + F16C bodies; compiled with those flags, run only where the machine has them. */
#include "isa.h"

#if defined(__x86_64__)
#include "dequant_body.h"
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
};
#endif
