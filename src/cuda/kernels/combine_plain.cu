/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_plain: moi_combine_run or moi_combine_backward_run; plain CUDA for capability 8.0 and newer.
 *
 *   defines   BF16  1: rows are BF16, 0: FP32;  BACKWARD  0 or 1;  RUN  values that a thread takes at once: 16 bytes, or 1 where rows are not
 *             a multiple of that
 *   grid      x: any number of blocks of 256 threads, which walk: forward over runs of y, a thread each; backward over slots, a warp each
 *   launch    begins before the grid before it has ended, and waits for it, on devices that can (9.0 and newer)
 *
 * Sums over slots have the contract's order.  A dot product's has one order too: each lane's own, then pairs of lanes. */
#include "combine_plain_args.h"
#include "num.h"

#if RUN == 1
typedef float packet;
#else
typedef uint4 packet;
#endif

MOII_FN packet load_packet(const void *base, long long at)
{
    const char *p = (const char *)base + at * (BF16 ? 2 : 4);
#if RUN == 1
    return BF16 ? moii_bf16_decode(*(const unsigned short *)p) : *(const float *)p;
#else
    return __ldg((const uint4 *)p);
#endif
}
MOII_FN void unpack(const packet &k, float v[RUN])
{
#if RUN == 1
    v[0] = k;
#else
    const unsigned int words[4] = { k.x, k.y, k.z, k.w };
#pragma unroll
    for (int i = 0; i < RUN; i++)
        v[i] = BF16 ? moii_float_of(i % 2 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16) : moii_float_of(words[i % 4]);
#endif
}
MOII_FN void load_run(const void *base, long long at, float v[RUN]) { unpack(load_packet(base, at), v); }

MOII_FN void store_run(void *base, long long at, const float v[RUN])
{
    char *p = (char *)base + at * (BF16 ? 2 : 4);
#if RUN == 1
    if (BF16) *(unsigned short *)p = (unsigned short)moii_bf16_encode(v[0]);
    else *(float *)p = v[0];
#else
    unsigned int words[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < RUN; i++) {
        if (BF16) words[i / 2] |= moii_bf16_encode(v[i]) << 16 * (i % 2);
        else words[i % 4] = moii_bits_of(v[i]);
    }
    *(uint4 *)p = make_uint4(words[0], words[1], words[2], words[3]);
#endif
}

/* Row of slot s of all tokens' slots; negative: it is skipped. */
MOII_FN int row_of(const combine_plain_args &a, long long s)
{
    const long long row = a.row_of ? (long long)__ldg(a.row_of + s) : s;
    return row < 0 ? -1 : (int)min(row, a.tokens * a.top_k - 1);
}

MOII_FN float weight_of(const combine_plain_args &a, long long s) { return a.weights ? __ldg(a.weights + s) : 1.0f; }

/* Of some slots at once where they are, then what is there: slots do not wait for each other. */
enum { AT_ONCE = 4 };
MOII_FN void combine_run(const combine_plain_args &a, long long token, long long col)
{
    const long long end = (token + 1) * a.top_k;
    float sum[RUN];
#pragma unroll
    for (int i = 0; i < RUN; i++) sum[i] = 0.0f;
    for (long long first = end - a.top_k; first < end; first += AT_ONCE) {
        int row[AT_ONCE];
        float w[AT_ONCE];
        packet k[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            row[j] = first + j < end ? row_of(a, first + j) : -1;
            w[j] = first + j < end ? weight_of(a, first + j) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (row[j] >= 0) k[j] = load_packet(a.y_sorted, row[j] * a.hidden + col);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (row[j] < 0) continue;
            float v[RUN];
            unpack(k[j], v);
#pragma unroll
            for (int i = 0; i < RUN; i++) sum[i] += w[j] * v[i];
        }
    }
    store_run(a.y, token * a.hidden + col, sum);
}

MOII_FN void spread_slot(const combine_plain_args &a, long long s, int lane)
{
    const int row = row_of(a, s);
    const long long at = row * a.hidden, from = s / a.top_k * a.hidden;
    const float w = weight_of(a, s);
    float dot = 0.0f;
    for (long long c = lane * RUN; row >= 0 && c < a.hidden; c += 32 * RUN) {
        float dy[RUN], v[RUN];
        load_run(a.d_y, from + c, dy);
        if (a.d_weights) load_run(a.y_sorted, at + c, v);
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            if (a.d_weights) dot += dy[i] * v[i];
            dy[i] *= w;
        }
        store_run(a.d_y_sorted, at + c, dy);
    }
    if (!a.d_weights) return;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
    if (lane == 0) a.d_weights[s] = dot;
}

extern "C" __global__ void __launch_bounds__(256, 4) combine_plain(const __grid_constant__ combine_plain_args a)
{
    const long long t = blockIdx.x * 256LL + threadIdx.x, all = gridDim.x * 256LL;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (BACKWARD) {
        for (long long s = t / 32; s < a.tokens * a.top_k; s += all / 32) spread_slot(a, s, (int)threadIdx.x % 32);
        return;
    }
    const long long runs = a.hidden / RUN;
    for (long long i = t; i < a.tokens * runs; i += all) combine_run(a, i / runs, i % runs * RUN);
}
