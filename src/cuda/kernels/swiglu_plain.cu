/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_plain: the plain result of moi_swiglu_run or moi_swiglu_backward_run from gate_up of any format; plain CUDA for
 * capability 8.0 and newer.  It is written to be right; a quantiser reads the result.
 *
 *   grid      x: columns of the activation, 256 to a block; y: rows; any numbers, the blocks walk
 */
#include "stored.cuh"
#include "silu.h"
#include "swiglu_plain_args.h"

MOII_FN void put(const swiglu_plain_args &a, long long i, float v)
{
    elem_store(a.out_type == ELEM_F32 ? ELEM_F32 : ELEM_BF16, a.out, i, a.out_type == ELEM_F32 ? moii_bits_of(v) : moii_bf16_encode(v));
}

extern "C" __global__ void __launch_bounds__(256, 4) swiglu_plain(const __grid_constant__ swiglu_plain_args a)
{
    for (long long r = blockIdx.y; r < a.rows; r += gridDim.y)
        for (long long c = blockIdx.x * 256LL + threadIdx.x; c < a.width; c += gridDim.x * 256LL) {
            const float gate = stored_get(a.gate_up, r, c), up = stored_get(a.gate_up, r, a.width + c);
            if (!a.d_act) {
                put(a, r * a.width + c, moii_swiglu(gate, up));
                continue;
            }
            const moii_swiglu_grad d = moii_swiglu_backward(gate, up, elem_load(a.out_type, a.d_act, r * a.width + c));
            put(a, 2 * r * a.width + c, d.gate);
            put(a, (2 * r + 1) * a.width + c, d.up);
        }
}
