/* SPDX-License-Identifier: Apache-2.0
 * isa_generic.c: plain C bodies, for any machine. */
#include "isa.h"

#include "dequant_body.h"
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
};
