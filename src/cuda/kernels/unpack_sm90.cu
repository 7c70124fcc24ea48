/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack_sm90: codes of E2M1, two in a byte, to codes of E4M3 of the same values.  Matrices of groups that have no rows are left out.
 *
 *   grid      any; blocks below each other have different groups; 256 threads, each takes 16 codes at a time */
#include "num.h"
#include "unpack_sm90_args.h"

/* Four codes in the lowest 16 bits. */
MOII_FN unsigned int unpack_four(unsigned int w)
{
    const unsigned int values = __byte_perm(0x3C383000u, 0x4C484440u, w & 0x7777u), twice = __byte_perm(w, 0, 0x1100);
    return values | (twice << 4 & 0x00800080u) | (twice & 0x80008000u);
}

MOII_FN bool is_wanted(const unpack_sm90_args &a, int group)
{
    if (a.offsets) return __ldg(a.offsets + group + 1) > __ldg(a.offsets + group);
    return !a.counts || __ldg(a.counts + group) > 0;
}

extern "C" __global__ void __launch_bounds__(UNPACK_THREADS) unpack_sm90(const __grid_constant__ unpack_sm90_args a)
{
    const unsigned int count = a.rows * a.pieces, step = gridDim.x * UNPACK_THREADS;
    for (int group = (int)blockIdx.y; group < a.groups; group += (int)gridDim.y) {
        if (!is_wanted(a, group)) continue;
        const unsigned char *from = a.from + group * (long long)a.rows * a.ld;
        uint4 *to = (uint4 *)a.to + group * (long long)count;
        for (unsigned int i = blockIdx.x * UNPACK_THREADS + threadIdx.x; i < count; i += step) {
            const unsigned int row = i / a.pieces, piece = i - row * a.pieces;
            const uint2 v = __ldg((const uint2 *)(from + row * a.ld) + piece);
            to[i] = make_uint4(unpack_four(v.x), unpack_four(v.x >> 16), unpack_four(v.y), unpack_four(v.y >> 16));
        }
    }
}
