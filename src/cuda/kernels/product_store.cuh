/* SPDX-License-Identifier: Apache-2.0
 * product_store.cuh: from a tile's sums to D, in product_sm90.cuh. */
#ifndef MOII_PRODUCT_STORE_CUH
#define MOII_PRODUCT_STORE_CUH

/* In memory, without waiting for what was there; nobody else adds to it. */
MOII_FN void add_pair(float *p, float x, float y)
{
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" :: "l"((unsigned long long)__cvta_generic_to_global(p)), "f"(x), "f"(y) : "memory");
}

/* The same value (plus -0).  What is stored two by two comes from an even register and the odd one behind it; were those the sums' own, as the compiler
 * would have it, a sum, what is added to it and its scale would lie in one bank of registers in every second addition of the main loop. */
MOII_FN float of_any_register(float x)
{
    asm volatile("add.rn.f32 %0, %0, 0f80000000;" : "+f"(x));
    return x;
}

/* 16 rows of a warp, straight from its registers: count times 8 columns, those from `end` on nobody's; `first` of the tile's are in sum[0]. */
MOII_FN void store_values(const product_args &a, const shared &s, const unit &u, int row, int lane, int first, int count, int end, const float *sum)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        const int to = place_of(a, s, u, r);
        if (to < 0) continue;
        const long long line = (long long)to * a.ldd;
#pragma unroll
        for (int j = 0; j < count; j++) {
            if (HALVES && j * 8 >= end) break;
            const int col = u.col + first + (WOVEN ? j / 2 * 16 + j % 2 * 2 + lane % 4 * 4 : j * 8 + lane % 4 * 2);
            float x = sum[j * 4 + 2 * h], y = sum[j * 4 + 2 * h + 1];
            if (OUT_F32 && PROMOTED) x = of_any_register(x), y = of_any_register(y);
            if (a.vectors && col + 1 < a.n) {
#if OUT_F32
                float *d = (float *)a.d + line + col;
                if (ADD) add_pair(d, x, y);
                else *(float2 *)d = make_float2(x, y);
#else
                *(unsigned int *)((unsigned short *)a.d + line + col) = bf16_pair(x, y);
#endif
            } else {
                if (col < a.n) store_one(a, line + col, x);
                if (col + 1 < a.n) store_one(a, line + col + 1, y);
            }
        }
    }
}

#if CARRIES
#include "product_carry.cuh"
#endif

#if !OUT_F32
#if LINES_PAIRED || SWIGLU
typedef unsigned int boxed[WAVES][D_COLUMNS / 4];
MOII_FN unsigned int boxed_pair(const boxed x, int w, int i) { return x[w][i]; }
#else
typedef float boxed[WAVES][BN / 2];
MOII_FN unsigned int boxed_pair(const boxed x, int w, int i) { return bf16_pair(x[w][2 * i], x[w][2 * i + 1]); }
#endif

/* Of which 16 bytes a line of a box has its piece 0, as the map's swizzle has it. */
#define BOX_TURN(line) (BOX_COLS == 64 ? (line) % 8 : (line) / 2 % 4)

/* Whole lines of a box, 512 bytes at a time from shared memory: for what a box would write too much of. */
MOII_FN void store_lines(const product_args &a, const shared &s, const unit &u, unsigned int at, int row, int col, int lane)
{
    const int pieces = BOX_COLS / 8, apart = 32 / pieces, q = lane / pieces, piece = lane % pieces;
    if ((BN % 64 && piece * 8 >= BN - col) || u.col + col + piece * 8 >= a.n) return;
    unsigned short *d = (unsigned short *)a.d + u.col + col + piece * 8;
#pragma unroll
    for (int i = 0; i < 16 / apart; i++) { /* lines q, q + apart, ... */
        const int to = place_of(a, s, u, row + q + i * apart), turn = BOX_COLS == 64 ? q + i % 2 * 4 : q / 2;
        if (to >= 0) *(uint4 *)(d + to * a.ldd) = *(const uint4 *)(s.p + at + (q + i * apart) * (2 * BOX_COLS) + (piece ^ turn) * 16);
    }
}

/* BF16 by way of a warpgroup's shared memory: boxes of 64 rows, BOXES at a time, copied in the background. */
MOII_FN void store_boxes(const product_args &a, const shared &s, const unit &u, hand h, int wg, int warp, int lane, const boxed sum)
{
    const unsigned int room = room_at(s, wg), to = room + warp * (BOX_BYTES / 4) + lane % 16 * (2 * BOX_COLS);
    const int boxed = boxed_rows(a, u);
#pragma unroll
    for (int from = 0; from < WAVES * CHUNKS; from += BOXES) {
        room_enter(s, h, wg, lane, from);
#pragma unroll
        for (int i = from; i < from + BOXES && i < WAVES * CHUNKS; i++)
#pragma unroll
            for (int j = 0; j < BOX_COLS / 8 && i % CHUNKS * (BOX_COLS / 8) + j < D_COLUMNS / 8; j += 2) {
                const int w = i / CHUNKS, v = (i % CHUNKS * (BOX_COLS / 8) + j) * 2;
                matrices_store(to + (i - from) * BOX_BYTES + ((j + lane / 16) ^ BOX_TURN(lane % 16)) * 16, boxed_pair(sum, w, v), boxed_pair(sum, w, v + 1),
                               boxed_pair(sum, w, v + 2), boxed_pair(sum, w, v + 3));
            }
        if (!LINES_ALONE) shared_to_async();
        const int end = min(from + BOXES, WAVES * CHUNKS);
        room_leave(a, s, u, wg, warp, lane, from, boxed);
        if (boxed < min(u.rows, BM))
            for (int i = from; i < end; i++) {
                const int row = wave_row(u, wg, i / CHUNKS), col = i % CHUNKS * BOX_COLS;
                if (row < boxed || col >= wave_cols(u, i / CHUNKS)) continue;
                store_lines(a, s, u, room - s.base + (i - from) * BOX_BYTES + warp * (BOX_BYTES / 4), row + warp * 16, wave_col(u, wg, i / CHUNKS) + col, lane);
            }
    }
}
#endif

#if !SWIGLU
MOII_FN void store_tile(const product_args &a, const shared &s, const unit &u, hand h, int wg, float sum[WAVES][BN / 2], line_codes codes)
{
    const int thread = (int)as_it_is(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4; /* no register keeps what can be found again */
#if LINES_PAIRED
    if (by_boxes(a)) {
        boxed pairs;
#pragma unroll
        for (int w = 0; w < WAVES; w++) pair_lines(wave_codes(a, u, wg, w, codes), w, lane, sum[w], pairs[w]);
#if PLACED
        places_await();
#endif
        store_boxes(a, s, u, h, wg, warp, lane, pairs);
        return;
    }
#endif
#if SCALING == SCALING_ROWS
#pragma unroll
    for (int w = 0; w < WAVES; w++) apply_lines(wave_codes(a, u, wg, w, codes), w, lane, sum[w]);
#endif
#if PLACED
    places_await();
    if (WEIGHTED)
#pragma unroll
        for (int w = 0; w < WAVES; w++) apply_weights(s, w, lane, sum[w]);
#endif
#if CARRIES
    if (a.d_boxes) {
        carry_sums(a, s, u, wg, warp, lane, sum);
        return;
    }
#endif
#if !OUT_F32 && !LINES_PAIRED
    if (by_boxes(a)) {
        store_boxes(a, s, u, h, wg, warp, lane, sum);
        return;
    }
#endif
#pragma unroll
    for (int w = 0; w < WAVES; w++)
        store_values(a, s, u, wave_row(u, wg, w) + warp * 16, lane, wave_col(u, wg, w), BN / 8, wave_cols(u, w), sum[w]);
}
#endif

/* ---- one tile's reduction in SPLIT parts ---- */

#if SPLIT > 1
/* What block `to` has of a piece: [part][its pieces][thread] four sums. */
MOII_FN unsigned int part_at(const shared &s, unsigned int part, int piece, int t)
{
    return s.base + PARTS_AT + ((part * PIECES_EACH + (unsigned int)piece % PIECES_EACH) * TEAM + (unsigned int)t) * 16;
}

/* The block's share of the pieces; where all columns are D's, without asking for each, and 32 bytes of a row at once: of two pieces even lanes take
 * the first and odd ones the other. */
MOII_FN void store_pieces(const product_args &a, const shared &s, const unit &u, int wg, int warp, int lane, int first, const float v[PIECES_EACH][4])
{
#if WAVES == 1 && !OUT_F32
    if (a.vectors && u.col + BN <= a.n) {
        const bool odd = lane % 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int to = place_of(a, s, u, WAVE_ROW(wg, 0) + warp * 16 + lane / 4 + 8 * h);
            unsigned int *d = (unsigned int *)((unsigned short *)a.d + to * a.ldd + u.col + first * 8);
#pragma unroll
            for (int i = 0; i < PIECES_EACH; i += 2) {
                const unsigned int low = bf16_pair(v[i][2 * h], v[i][2 * h + 1]);
                if (i + 1 == PIECES_EACH) {
                    if (to >= 0 && (PIECES % SPLIT == 0 || first + i < PIECES)) d[4 * i + lane % 4] = low;
                    continue;
                }
                const unsigned int high = bf16_pair(v[i + 1][2 * h], v[i + 1][2 * h + 1]), other = __shfl_xor_sync(~0u, odd ? low : high, 1);
                if (to >= 0 && (PIECES % SPLIT == 0 || first + i + odd < PIECES))
                    *(uint2 *)(d + 4 * (i + odd) + lane % 4 / 2 * 2) = odd ? make_uint2(other, high) : make_uint2(low, other);
            }
        }
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < PIECES_EACH; i++) {
        const int piece = first + i;
        if (piece >= PIECES) break;
        store_values(a, s, u, WAVE_ROW(wg, piece / (BN / 8)) + warp * 16, lane, piece % (BN / 8) * 8, 1, 8, v[i]);
    }
}

/* A thread's sums of a share of the pieces, as the sum of all parts in their order.  Each of two blocks keeps its own sums of its half: no branch, and nothing
 * that it has itself by way of shared memory. */
#if SPLIT == 2 && PIECES % 2 == 0
MOII_FN void exchange_parts(const shared &s, unsigned int block, int t, const float sum[WAVES][BN / 2], float v[PIECES_EACH][4])
{
    float other[4];
#pragma unroll
    for (int i = 0; i < PIECES_EACH; i++) {
        const float *low = sum[i / (BN / 8)] + i % (BN / 8) * 4, *high = sum[(PIECES_EACH + i) / (BN / 8)] + (PIECES_EACH + i) % (BN / 8) * 4;
#pragma unroll
        for (int j = 0; j < 4; j++) v[i][j] = block > 0 ? high[j] : low[j], other[j] = block > 0 ? low[j] : high[j];
        floats_send(part_at(s, block, i, t), other[0], other[1], other[2], other[3], s.base + PARTS_BARRIER, 1 - block);
    }
    barrier_wait(s.base + PARTS_BARRIER, 0);
#pragma unroll
    for (int i = 0; i < PIECES_EACH; i++) {
        const float4 x = shared_read_floats(part_at(s, 1 - block, i, t));
        v[i][0] += x.x, v[i][1] += x.y, v[i][2] += x.z, v[i][3] += x.w;
    }
}
#else
MOII_FN void exchange_parts(const shared &s, unsigned int block, int t, const float sum[WAVES][BN / 2], float v[PIECES_EACH][4])
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const float *x = sum[i / (BN / 8)] + i % (BN / 8) * 4;
        const unsigned int to = i / PIECES_EACH, at = part_at(s, block, i, t);
        if (to == block) shared_write_floats(at, x[0], x[1], x[2], x[3]);
        else floats_send(at, x[0], x[1], x[2], x[3], s.base + PARTS_BARRIER, to);
    }
    barrier_wait(s.base + PARTS_BARRIER, 0);
#pragma unroll
    for (int i = 0; i < PIECES_EACH; i++) {
        if (PIECES % SPLIT && (int)block * PIECES_EACH + i >= PIECES) break;
        v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.0f;
#pragma unroll
        for (unsigned int b = 0; b < SPLIT; b++) {
            const float4 x = shared_read_floats(part_at(s, b, i, t));
            v[i][0] += x.x, v[i][1] += x.y, v[i][2] += x.z, v[i][3] += x.w;
        }
    }
}
#endif

/* Block b adds up and stores the b-th share of the pieces of the tile: every other block sends it those sums, which a barrier of b's
 * counts.  A cluster has one unit, so that nobody sends twice. */
MOII_FN void join_parts(const product_args &a, const shared &s, const unit &u, int wg, unsigned int block, float sum[WAVES][BN / 2], line_codes codes)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, t = (int)threadIdx.x - 128;
#if SCALING == SCALING_ROWS
#pragma unroll
    for (int w = 0; w < WAVES; w++) apply_lines(codes, w, lane, sum[w]);
#endif
    float v[PIECES_EACH][4];
    exchange_parts(s, block, t, sum, v);
    store_pieces(a, s, u, wg, warp, lane, (int)block * PIECES_EACH, v);
}
#endif

#endif
