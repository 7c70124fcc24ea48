/* SPDX-License-Identifier: Apache-2.0
 *
 * widen_sm90: E4M3 or E5M2 codes with E8M0 scales to BF16: value = code x 2^(scale - 127).  Exact from 2^-126 to below 2^128, where BF16's
 * exponents end: an element has at most 4 significant bits.
 *
 *   defines   E5M2: 1, or 0 for E4M3
 *   grid      any; 256 threads, each takes 16 values at a time: half a block of one scale */
#include "product_scales.cuh"
#include "widen_sm90_args.h"

MOII_FN unsigned int widen_pair(unsigned int codes, float scale)
{
    unsigned int halves, out;
    float x, y;
#if E5M2
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
#else
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
#endif
    asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %2;\n cvt.f32.f16 %0, low;\n cvt.f32.f16 %1, high;\n}" : "=f"(x), "=f"(y) : "r"(halves));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(y * scale), "f"(x * scale));
    return out;
}

MOII_FN float scale_at(const widen_sm90_args &a, unsigned int row, unsigned int block)
{
    const unsigned int group = row / a.group_rows;
    return moii_e8m0_decode(__ldg((const unsigned char *)a.scales.p + group * a.scales.group_bytes + scale_index(a.scales, row - group * a.group_rows, block)));
}

extern "C" __global__ void __launch_bounds__(256, 4) widen_sm90(const __grid_constant__ widen_sm90_args a)
{
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < a.count; i += gridDim.x * 256) {
        const unsigned int row = i / a.pieces, piece = i - row * a.pieces;
        const uint4 v = __ldg((const uint4 *)(a.codes + row * a.ld + piece * 16ll));
        const float scale = scale_at(a, row, piece / 2);
        uint4 *to = (uint4 *)a.out + i * 2ll;
        to[0] = make_uint4(widen_pair(v.x, scale), widen_pair(v.x >> 16, scale), widen_pair(v.y, scale), widen_pair(v.y >> 16, scale));
        to[1] = make_uint4(widen_pair(v.z, scale), widen_pair(v.z >> 16, scale), widen_pair(v.w, scale), widen_pair(v.w >> 16, scale));
    }
}
