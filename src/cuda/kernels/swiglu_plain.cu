/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_plain: the plain result of moi_swiglu_run or moi_swiglu_backward_run from gate_up of any format; plain CUDA for
 * capability 8.0 and newer.  A quantiser reads the result, if one is wanted.
 *
 *   defines   RUN       values of gate that a thread takes at once: 8, or 1: the types are looked at for each value
 *             BACKWARD  0 or 1;  IN_BF16, OUT_BF16 (RUN 8)  gate_up, and d_act and the result: 1: BF16, 0: FP32
 *   grid      x: any number of blocks of 256 threads, which walk over runs
 *
 * RUN 8: width is a multiple of it.  Where rows do not begin at multiples of 16 bytes, or a gate is not near (silu.h), a run goes value by value.
 */
#include "bf16x2.cuh"
#include "stored.cuh"
#include "silu.h"
#include "swiglu_plain_args.h"

MOII_FN void put(const swiglu_plain_args &a, long long r, long long c, float v)
{
    elem_store(a.out_type == ELEM_F32 ? ELEM_F32 : ELEM_BF16, a.out, r * a.out_ld + c, a.out_type == ELEM_F32 ? moii_bits_of(v) : moii_bf16_encode(v));
}

MOII_FN void make_value(const swiglu_plain_args &a, long long r, long long c)
{
    const float gate = stored_get(a.gate_up, r, c), up = stored_get(a.gate_up, r, a.width + c);
    if (!BACKWARD) {
        put(a, r, c, moii_swiglu(gate, up));
        return;
    }
    const moii_swiglu_grad d = moii_swiglu_backward(gate, up, elem_load(a.out_type, a.d_act, r * a.width + c));
    put(a, r, c, d.gate), put(a, r, a.width + c, d.up);
}

#if RUN == 8
MOII_FN void load_run(const void *p, int bf16, float v[RUN])
{
#pragma unroll
    for (int i = 0; i < (bf16 ? 1 : 2); i++) {
        const uint4 k = __ldg((const uint4 *)p + i);
        const unsigned int words[4] = { k.x, k.y, k.z, k.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (bf16) v[2 * j] = moii_float_of(words[j] << 16), v[2 * j + 1] = moii_float_of(words[j] & 0xFFFF0000u);
            else v[4 * i + j] = moii_float_of(words[j]);
        }
    }
}

MOII_FN void store_run(void *p, const float v[RUN])
{
#if OUT_BF16
    *(uint4 *)p = make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
#else
#pragma unroll
    for (int i = 0; i < 2; i++) ((float4 *)p)[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
#endif
}

MOII_FN void make_values(const swiglu_plain_args &a, long long r, long long c)
{
#pragma unroll 1
    for (int i = 0; i < RUN; i++) make_value(a, r, c + i);
}

MOII_FN void make_run(const swiglu_plain_args &a, long long r, long long c)
{
    if (!a.packets) {
        make_values(a, r, c);
        return;
    }
    const unsigned char *from = a.gate_up.data + r * a.gate_up.stride + c * (IN_BF16 ? 2 : 4);
    const int size = OUT_BF16 ? 2 : 4;
    char *out = (char *)a.out + (r * a.out_ld + c) * size;
    float gate[RUN], up[RUN];
    load_run(from, IN_BF16, gate), load_run(from + a.width * (IN_BF16 ? 2 : 4), IN_BF16, up);
    bool near = true;
#pragma unroll
    for (int i = 0; i < RUN; i++) near = near && moii_silu_near(gate[i]);
    if (!near) {
        make_values(a, r, c);
        return;
    }
#if BACKWARD
    float d_act[RUN];
    load_run((const char *)a.d_act + (r * a.width + c) * size, OUT_BF16, d_act);
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        const moii_swiglu_grad d = moii_swiglu_grad_near(gate[i], up[i], d_act[i]);
        gate[i] = d.gate, up[i] = d.up;
    }
    store_run(out + a.width * size, up);
#else
#pragma unroll
    for (int i = 0; i < RUN; i++) gate[i] = moii_swiglu_near(gate[i], up[i]);
#endif
    store_run(out, gate);
}
#else
MOII_FN void make_run(const swiglu_plain_args &a, long long r, long long c) { make_value(a, r, c); }
#endif

extern "C" __global__ void __launch_bounds__(256, 4) swiglu_plain(const __grid_constant__ swiglu_plain_args a)
{
    const long long runs = a.width / RUN;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < a.rows * runs; i += gridDim.x * 256LL) {
        const long long r = (i | runs) >> 32 ? i / runs : (unsigned int)i / (unsigned int)runs;
        make_run(a, r, (i - r * runs) * RUN);
    }
}
