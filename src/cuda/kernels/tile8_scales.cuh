/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_scales.cuh: the scales of a tile go from shared to global memory.  Included by tile8.cuh, whose defines it reads.  SCALES_IN_PACKETS: defined where
 * registers suffice for a short way for layout COL.
 */
#ifndef MOII_TILE8_SCALES_CUH
#define MOII_TILE8_SCALES_CUH

MOII_FN long long scale_place(const tile8_side &s, long long r, long long b, int last)
{
    if (s.layout == SCALES_TILED) return ((r / 128) * ((s.blocks + 3) / 4) + b / 4) * 512 + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4;
    if (s.layout == SCALES_COL) return b * ((s.scale_rows + last) & ~(long long)last) + r;
    return r * s.blocks + b;
}

/* Rows r0 .. r0 + 127 and blocks b0 .. of the shared ones; the layout's padding becomes 0.  rows, blocks: the valid ones. */
MOII_FN void put_e8m0(const tile8_side &s, unsigned char *to, const shared_scales &from, long long r0, int rows, long long b0, int blocks)
{
    const int t = thread_index();
    bool atom = s.layout == SCALES_TILED && r0 % 128 == 0; /* of 512 bytes, if its rows are this tile's alone; b0 is a multiple of 4 */
    if (atom && rows != TILE) atom = r0 + rows == s.scale_rows;
    if (atom) {
        if (t >= 32) return;
        unsigned int w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = 0;
#pragma unroll
            for (int b = 0; b < 4; b++)
                if (t + 32 * k < rows && b < blocks) w[k] |= (unsigned int)from.e8m0[b][t + 32 * k] << 8 * b;
        }
        *(uint4 *)(to + scale_place(s, r0 + t, b0, 15)) = make_uint4(w[0], w[1], w[2], w[3]);
        return;
    }
#ifdef SCALES_IN_PACKETS
    if (s.layout == SCALES_COL && rows == TILE && blocks == 4 && r0 % 16 == 0) { /* 128 bytes of each block, in packets */
        if (t < 32) *(uint4 *)(to + scale_place(s, r0, b0 + t / 8, 15) + t % 8 * 16) = *(const uint4 *)&from.e8m0[t / 8][t % 8 * 16];
        return;
    }
#endif
    if (s.layout == SCALES_ROW && (s.blocks % 4 || blocks < 4 || ((unsigned long long)to & 3) || b0 % 4)) { /* four lanes for a row's bytes */
#pragma unroll 1
        for (int i = t; i < 4 * rows; i += 256)
            if (i % 4 < blocks) to[(r0 + i / 4) * s.blocks + b0 + i % 4] = from.e8m0[i % 4][i / 4];
        return;
    }
    if (t >= TILE) return;
    long long r = r0 + t;
    if (s.layout == SCALES_ROW) {
        unsigned int w = 0;
        for (int b = 0; b < 4; b++) w |= (unsigned int)from.e8m0[b][t] << 8 * b;
        if (t < rows) *(unsigned int *)(to + r * s.blocks + b0) = w;
        return;
    }
    for (int b = 0; b < blocks; b++) {
        bool pad = s.layout == SCALES_COL && r >= s.scale_rows && r < ((s.scale_rows + 15) & ~15LL);
        if (t < rows || pad) to[scale_place(s, r, b0 + b, 15)] = t < rows ? from.e8m0[b][t] : 0;
    }
}

MOII_FN void put_f32(const tile8_side &s, unsigned int *to, const shared_scales &from, long long r0, int rows, long long b)
{
    const int t = thread_index();
    long long r = r0 + t;
    bool pad = s.layout == SCALES_COL && r >= s.scale_rows && r < ((s.scale_rows + 3) & ~3LL);
    if (t < TILE && (t < rows || pad)) to[scale_place(s, r, b, 3)] = t < rows ? from.f32[t] : 0;
}

/* The one scale of a square at (r, b); behind the last row, layout COL has padding. */
MOII_FN void put_square(const tile8_side &s, long long matrix, const shared_scales &from, long long r, long long b)
{
    unsigned int *to = (unsigned int *)((char *)s.scale + matrix * s.scale_bytes);
    if (thread_index() == 0) to[scale_place(s, r, b, 3)] = from.f32[0];
    if (thread_index() > 0 && thread_index() < 4 && s.layout == SCALES_COL && r + 1 == s.scale_rows && r + thread_index() < ((s.scale_rows + 3) & ~3LL))
        to[scale_place(s, r + thread_index(), b, 3)] = 0;
}

#endif
