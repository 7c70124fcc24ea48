/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_cols.cuh: a tile down its columns: tops, scales, codes turned, and their way to global memory.
 * Included by tile8.cuh, whose defines it reads.
 */
#ifndef MOII_TILE8_COLS_CUH
#define MOII_TILE8_COLS_CUH

#if COL_KIND != TILE_NONE
/* Where rows 8 i .. 8 i + 7 of a column stand among its 16 chunks. */
MOII_FN int chunk_place(int col, int i) { return i ^ (col / 8 % 8 << 1) ^ col / 64; }

/* Each warp's largest magnitudes of 16 rows, per column. */
MOII_FN void col_tops(const line v[8], int col0, unsigned int *tops)
{
#if TILE_BF16
    uint4 m = v[0];
#pragma unroll
    for (int p = 1; p < 8; p++) m = make_uint4(stronger(m.x, v[p].x), stronger(m.y, v[p].y), stronger(m.z, v[p].z), stronger(m.w, v[p].w));
    m = make_uint4(magnitudes(m.x), magnitudes(m.y), magnitudes(m.z), magnitudes(m.w));
    m.x = larger(m.x, __shfl_xor_sync(0xFFFFFFFFu, m.x, 16)), m.y = larger(m.y, __shfl_xor_sync(0xFFFFFFFFu, m.y, 16));
    m.z = larger(m.z, __shfl_xor_sync(0xFFFFFFFFu, m.z, 16)), m.w = larger(m.w, __shfl_xor_sync(0xFFFFFFFFu, m.w, 16));
    if (thread_index() % 32 >= 16) return;
    *(uint4 *)(tops + col0 / 2) = m; /* pairs stay pairs */
#else
#pragma unroll
    for (int c = 0; c < 8; c++) {
        unsigned int m = 0;
#pragma unroll
        for (int p = 0; p < 8; p++) m = larger(m, moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
        m = larger(m, __shfl_xor_sync(0xFFFFFFFFu, m, 16));
        if (thread_index() % 32 < 16) tops[col0 + c] = m;
    }
#endif
}

/* blk128: a thread for a column finds its scale. */
#if COL_KIND == TILE_BLK128
MOII_FN void col_scales(const tile8_side &side, shared_memory *s)
{
    const int col = thread_index();
    if (col < TILE) {
        unsigned int top = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = larger(top, s->tops[w][TILE_BF16 ? col / 2 : col]);
        if (TILE_BF16) top = col % 2 ? top & 0xFFFF0000u : top << 16;
        s->inverse[col] = moii_bits_of(take_scale(COL_KIND, side, top, true, &s->col, 0, col));
    }
    __syncthreads();
}
#endif

#if TILE_BF16 && COL_KIND == TILE_MX32
MOII_FN void turn(const tile8_side &side, const line v[8], const float *square, int row0, int col0, shared_memory *s)
{
    const int warp = thread_index() / 32;
    const uint4 a = *(const uint4 *)(s->tops[warp] + col0 / 2), b = *(const uint4 *)(s->tops[warp ^ 1] + col0 / 2);
    const unsigned int tops[4] = { larger(a.x, b.x), larger(a.y, b.y), larger(a.z, b.z), larger(a.w, b.w) };
    unsigned int codes[4], any = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const two_scales two = take_two(side, tops[i]);
        codes[i] = two.codes, any |= tops[i] + 0x00800080u;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned int by = half ? upper_half(two.inverse) : lower_half(two.inverse);
            float x[8];
#pragma unroll
            for (int p = 0; p < 8; p++) x[p] = scaled(i == 0 ? v[p].x : i == 1 ? v[p].y : i == 2 ? v[p].z : v[p].w, half, by, side.minus_zero);
            *(uint2 *)&s->turned[col0 + 2 * i + half][chunk_place(col0, row0 / 8)] = eight_codes(COL_ELEM, x);
        }
    }
    if (any & 0x80008000u) {
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = poison(codes[i], tops[i]);
    }
    if (thread_index() % 32 < 16 && warp % 2 == 0) /* the bytes of eight columns lie together */
        *(uint2 *)&s->col.e8m0[warp / 2][col0] = make_uint2(__byte_perm(codes[0], codes[1], 0x6420), __byte_perm(codes[2], codes[3], 0x6420));
}
#else
MOII_FN void turn(const tile8_side &side, const line v[8], const float *square, int row0, int col0, shared_memory *s)
{
    const int warp = thread_index() / 32, first = COL_KIND == TILE_MX32 ? warp & ~1 : 0, count = COL_KIND == TILE_MX32 ? 2 : WARPS;
    const bool writes = thread_index() % 32 < 16 && warp == first;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float by, x[8];
        if (COL_KIND == TILE_SQUARE) {
            by = *square;
#if COL_KIND == TILE_BLK128
        } else if (COL_KIND == TILE_BLK128) {
            by = moii_float_of(s->inverse[col0 + c]); /* col_scales */
#endif
        } else {
            unsigned int top = 0;
#pragma unroll
            for (int w = 0; w < count; w++) top = max(top, s->tops[first + w][col0 + c]);
            by = take_scale(COL_KIND, side, top, writes, &s->col, COL_KIND == TILE_MX32 ? warp / 2 : 0, col0 + c);
        }
#pragma unroll
        for (int p = 0; p < 8; p++) x[p] = value_of(v[p], c) * by;
        *(uint2 *)&s->turned[col0 + c][chunk_place(col0, row0 / 8)] = eight_codes(COL_ELEM, x);
    }
}
#endif

/* Of eight rows of which `there` are a group's, the codes of the others become 0. */
MOII_FN void turn_nothing(int there, int row0, int col0, shared_memory *s)
{
    const unsigned long long mask = there > 0 ? ~0ULL >> (64 - 8 * there) : 0;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        unsigned long long *chunk = &s->turned[col0 + c][chunk_place(col0, row0 / 8)];
        *chunk = there > 0 ? *chunk & mask : 0;
    }
}

typedef struct codes16 { unsigned long long low, high; } codes16;

/* Codes k .. k + 15 of a column; anything behind the last. */
MOII_FN codes16 sixteen_codes(const shared_memory *s, int col, int k)
{
    const int i = k >> 3, shift = (k & 7) * 8;
    const unsigned long long *chunks = s->turned[col];
    const unsigned long long a = chunks[chunk_place(col, i)], b = chunks[chunk_place(col, min(i + 1, 15))], c = chunks[chunk_place(col, min(i + 2, 15))];
    codes16 v = { a, b };
    if (shift) v.low = a >> shift | b << (64 - shift), v.high = b >> shift | c << (64 - shift);
    return v;
}

MOII_FN unsigned char code_at(const shared_memory *s, int col, int k)
{
    return ((const unsigned char *)&s->turned[col][chunk_place(col, k >> 3)])[k & 7];
}

/* `rows` codes of columns that begin anywhere: what fills aligned 16 bytes leaves so; the bytes before and behind, lane by lane, so that each end
 * is one piece. */
MOII_FN void put_cols_anywhere(unsigned char *base, long long stride, int cols, int rows, const shared_memory *s)
{
#pragma unroll 1
    for (int i = thread_index(); i < 8 * cols; i += 256) {
        unsigned char *to = base + (i / 8) * stride;
        const int k = (int)(-(unsigned long long)to & 15) + i % 8 * 16;
        if (k + 16 > rows) continue;
        const codes16 v = sixteen_codes(s, i / 8, k);
        *(ulonglong2 *)(to + k) = make_ulonglong2(v.low, v.high);
    }
    const int bits = rows == TILE ? 4 : 5, slots = 1 << bits; /* both ends of a whole column have 16 bytes together */
#pragma unroll 1
    for (int i = thread_index(); i < cols << bits; i += 256) {
        const int col = i >> bits, slot = i & (slots - 1);
        unsigned char *to = base + col * stride;
        const int head = min((int)(-(unsigned long long)to & 15), rows), tail = (rows - head) % 16;
        const int k = slot < head ? slot : rows - slots + slot;
        if (slot < head || k >= rows - tail) to[k] = code_at(s, col, k);
    }
}

/* Codes 16 k .. 16 k + 15 of columns col, col + 32, .. below cols, which lie `step` bytes apart. */
MOII_FN void put_aligned(unsigned char *to, long long step, const shared_memory *from, int col, int k, int cols)
{
#pragma unroll
    for (int i = 0; i < 4; i++) { /* for the 128 bytes that each unit has of a column, one lane behind the other */
        const ulonglong2 two = *(const ulonglong2 *)&from->turned[col + 32 * i][chunk_place(col + 32 * (i % 2), 2 * k)];
        if (cols == TILE || col + 32 * i < cols) put_sixteen(to, i < 2 ? two : make_ulonglong2(two.y, two.x)); /* as chunk_place turns them */
        to += step;
    }
}

/* whole: the tiles of all units have 128 rows. */
MOII_FN void put_cols(const tile8_side &side, const tile &t, shared_memory *s, bool whole)
{
    const long long from = RAGGED ? t.block * (COL_KIND == TILE_MX32 ? 32 : 128) : t.r0; /* codes lie where their scales do */
    unsigned char *base = side.data + t.matrix * side.data_bytes + t.c0 * side.stride + from - unit_index() * TILE;
    const bool aligned = (((unsigned long long)base | (unsigned long long)side.stride) & 15) == 0;
    if (aligned && (RAGGED || whole)) {
        const int lanes = 8 * TILE_UNITS, thread = unit_index() * 256 + thread_index(), k = thread % lanes, col = thread / lanes;
        if (RAGGED && 16 * k >= t.run) return;
        const shared_memory *from = &units[k / 8].s;
        unsigned char *to = base + col * side.stride + 16 * k;
        if (t.cols == TILE) put_aligned(to, 32 * side.stride, from, col, k % 8, TILE);
        else put_aligned(to, 32 * side.stride, from, col, k % 8, t.cols);
    } else {
        const int rows = RAGGED ? min(max(t.run - unit_index() * TILE, 0), TILE) : t.rows;
        put_cols_anywhere(base + unit_index() * TILE, side.stride, t.cols, rows, s);
    }
}

#endif

#endif
