/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize_plain: moi_dequantize_run, any format; plain CUDA for capability 8.0 and newer.  It is written to be right.
 *
 *   grid      x: columns, 256 to a block; y: rows; any numbers, the blocks walk
 *   NaN       is written as bits: a float's may change its bits on the way.
 */
#include "stored.cuh"
#include "dequantize_plain_args.h"

extern "C" __global__ void __launch_bounds__(256, 4) dequantize_plain(const __grid_constant__ dequantize_plain_args a)
{
    for (long long r = blockIdx.y; r < a.rows; r += gridDim.y)
        for (long long c = blockIdx.x * 256LL + threadIdx.x; c < a.cols; c += gridDim.x * 256LL) {
            const float v = stored_get(a.in, r, c);
            const unsigned int bits = moii_is_nan(v) ? 0x7FC00000u : moii_bits_of(v);
            if (a.out_type == ELEM_F32) elem_store(ELEM_F32, a.out, r * a.out_ld + c, bits);
            else elem_store(ELEM_BF16, a.out, r * a.out_ld + c, moii_is_nan(v) ? bits >> 16 : moii_bf16_encode(v));
        }
}
