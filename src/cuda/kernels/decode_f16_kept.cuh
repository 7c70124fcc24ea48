/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_kept.cuh: columns in shared memory, as FP16 or BF16. */
#ifndef MOII_DECODE_F16_KEPT_CUH
#define MOII_DECODE_F16_KEPT_CUH

#include "decode_f16_ring.cuh"

#if MANY
#define KEPT_COLUMNS(a) F16_MOST_TOKENS
#else
#define KEPT_COLUMNS(a) (a).columns
#endif

/* Of one line: blocks of `columns` times 64 bytes, then factors of pairs of columns, if there are any. */
MOII_FN column_source kept_at(const worker &w, const moe_decode_f16_sm90_args &a, int line, int lane)
{
    column_source k;
    k.block_bytes = KEPT_COLUMNS(a) * 64;
    const unsigned int base = w.shared + a.at_columns + line * F16_KEPT_LINE(WEIGHTS, KEPT_COLUMNS(a));
    k.at = base + (lane / 4 & (KEPT_COLUMNS(a) - 1)) * 64 + lane % 4 * 16;
    k.factors_at = base + BLOCKS * k.block_bytes + lane % 4 * 8;
    return k;
}

MOII_FN void keep_line(const column_source &k, const line_columns &c, int columns, int lane)
{
    if (lane / 4 < columns)
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) shared_write_four(k.at + b * k.block_bytes, c.v[b]);
#if WEIGHTS != F16_BF16
    if (lane < 4) shared_write(k.factors_at, c.even), shared_write(k.factors_at + 4, c.odd);
#endif
}

#endif
