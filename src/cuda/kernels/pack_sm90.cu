/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_sm90: 8-bit codes [rows, length], cut along their rows into ragged groups, copied so that every group begins where its scale
 * blocks do: group g, from offset o, at block * (o / block + g).  Bulk copies of tiles begin at multiples of 16 bytes only.  Where every
 * group begins at one already, nothing is copied and *packed is 0.
 *
 *   grid      any; 256 threads, each takes 16 codes at a time; what lies between groups is not written */
#include "num.h"
#include "pack_sm90_args.h"

/* The group whose packed codes the position lies in or behind. */
MOII_FN int group_at(const pack_sm90_args &a, long long position)
{
    int low = 0, high = a.groups - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (a.block * (__ldg(a.offsets + middle) / a.block + middle) <= position) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* 16 bytes from anywhere, of which `count` are there. */
MOII_FN uint4 load_bytes(const unsigned char *p, int count)
{
    const unsigned long long from = (unsigned long long)p;
    const unsigned int *words = (const unsigned int *)(from & ~3ull), shift = (unsigned int)(from & 3) * 8;
    unsigned int w[5], v[4];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = i * 4 < count + (int)(from & 3) ? __ldg(words + i) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __funnelshift_r(w[i], w[i + 1], shift);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

extern "C" __global__ void __launch_bounds__(256, 4) pack_sm90(const __grid_constant__ pack_sm90_args a)
{
    int ragged = a.always;
    for (int g = threadIdx.x; g < a.groups; g += 256) ragged |= (int)(__ldg(a.offsets + g) & 15);
    ragged = __syncthreads_or(ragged);
    if (blockIdx.x == 0 && threadIdx.x == 0) *a.packed = ragged != 0;
    if (!ragged) return;
    const long long pieces = a.out_ld / 16, count = pieces * a.rows;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        const long long row = i / pieces, to = (i - row * pieces) * 16;
        const int g = group_at(a, to);
        const long long begin = __ldg(a.offsets + g), at = to - a.block * (begin / a.block + g), left = __ldg(a.offsets + g + 1) - begin - at;
        if (left <= 0) continue;
        *(uint4 *)(a.out + row * a.out_ld + to) = load_bytes(a.in + row * a.in_ld + begin + at, left < 16 ? (int)left : 16);
    }
}
