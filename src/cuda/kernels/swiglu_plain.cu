/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_plain: the plain result of moi_swiglu_run or moi_swiglu_backward_run from gate_up of any format; plain CUDA for
 * capability 8.0 and newer.  A quantiser reads the result, if one is wanted.
 *
 *   defines   RUN       values of gate that a thread takes at once: 8, or 1: the types are looked at for each value
 *             BACKWARD  0 or 1;  IN_ELEM, IN_BYTES, IN_WIDE, OUT_BF16 (RUN 8)  as in swiglu_values.cuh, for FP32 and BF16
 *   grid      x: any number of blocks of 256 threads, which walk over runs
 *
 * RUN 8: width is a multiple of it.  Where rows do not begin at multiples of 16 bytes, or a gate is not near (silu.h), a run goes value by value.
 */
#include "stored.cuh"
#include "silu.h"
#include "swiglu_plain_args.h"
#if RUN == 8
#define TILE_BF16 OUT_BF16
#include "swiglu_values.cuh"
#endif

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
MOII_FN void store_line(char *to, const line &v)
{
#if OUT_BF16
    *(uint4 *)to = v;
#else
    ((uint4 *)to)[0] = v.low, ((uint4 *)to)[1] = v.high;
#endif
}

MOII_FN void make_values(const swiglu_plain_args &a, long long r, long long c)
{
#pragma unroll 1
    for (int i = 0; i < RUN; i++) make_value(a, r, c + i);
}

MOII_FN void make_run(const swiglu_plain_args &a, long long r, long long c)
{
    const int size = OUT_BF16 ? 2 : 4;
    const char *from = (const char *)a.gate_up.data + r * a.gate_up.stride + c * IN_BYTES;
    char *out = (char *)a.out + (r * a.out_ld + c) * size;
    if (a.packets) {
        unsigned int top = 0;
        const packet gate = load_packet(from), up = load_packet(from + a.width * IN_BYTES);
        const line d = BACKWARD ? load_gradient((const char *)a.d_act + (r * a.width + c) * size) : no_line();
        line second = no_line();
        const line first = make_row(gate, up, d, 1.0f, 1.0f, &second, &top);
        if (all_near(top)) {
            store_line(out, first);
            if (BACKWARD) store_line(out + a.width * size, second);
            return;
        }
    }
    make_values(a, r, c);
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
