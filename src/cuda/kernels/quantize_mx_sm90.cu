/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_mx_sm90: moi_quantize_run from BF16 to blocks of 32 down columns, or to blocks of 32 or of 128 both ways, from one read.  A block
 * makes two tiles of 128 x 128 values, one below the other, so that 256 bytes of a column leave together.
 *
 *   defines   ROW_KIND: TILE_NONE or COL_KIND; COL_KIND: TILE_MX32 or TILE_BLK128; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2; RAGGED: 1 where
 *             groups cut the rows; ROW_REBASE, COL_REBASE: 1 where the scales of 128 columns, or rows, are made equal (E4M3), as moi_rebase_run
 *             would.  TILE_BLK128 is made both ways, without groups
 *   grid      z: bands of x: 128 columns each, y: 256 rows
 *   clusters  of blocks side by side, which meet where a.meets says: memory takes what begins to be stored at the same time faster
 *             (docs/notes/quantize-h200.md)
 *   slots     of 32 rows, eight to a block (tile8_slots.cuh)
 *   threads   512, of which 128 have one slot of each tile.  Along rows, warp w, lane l: rows 8 (w % 4) + 4 (l / 16) + 0..3, columns
 *             8 (l % 16) + 0..7, two rows at a time.  Down columns: half a slot, 16 rows, of two columns.
 *   shared    dynamic: both tiles, their codes down columns until they leave, scales.  TILE_BLK128: the largest magnitudes of columns stand where
 *             their codes will be, and codes down columns are made of both tiles at once, when all magnitudes are known
 */
#define TILE_BF16 1
#define TILE_INLINE
#define SCALES_IN_PACKETS
#include "quantize_mx_sm90_args.h"
#include "packets.cuh"
#include "tile8_codes.cuh"

#define ROWS (ROW_KIND != TILE_NONE)
#define BLK128 (COL_KIND == TILE_BLK128)
#define STRIP_SLOTS (COL_REBASE ? 4 : 8)
#define ALL_ROWS ROWS
MOII_FN int thread_index(void) { return (int)(threadIdx.x % 256); }
#include "tile8_rows.cuh"
#include "tile8_scales.cuh"
#include "tile8_slots.cuh"
#include "mx_turn.cuh"
#if BLK128
#include "blk_turn.cuh"
#endif

typedef struct shared_memory {
    whole_tile in[2];
    half_tile turned[2];
    shared_scales row[2], col[2];
    slot slots[8];
#if COL_REBASE
    strip cut[2]; /* RAGGED: of each tile */
#endif
#if BLK128
    float inverse[2][TILE];
#endif
} shared_memory;
extern __shared__ uint4 memory[];
MOII_FN shared_memory *shared(void) { return (shared_memory *)memory; }

#if RAGGED
/* All threads find out about the block's slots. */
MOII_FN void find_slots(const quantize_mx_sm90_args &a)
{
    const int k = threadIdx.x / 32;
    if (k < 8) {
        strip b;
        const slot s = COL_REBASE ? find_slot(a.cut, a.blocks, 2 * blockIdx.y + k / 4, k % 4, &b) : find_slot(a.cut, a.blocks, blockIdx.y, k, &b);
        if (threadIdx.x % 32 == 0) shared()->slots[k] = s;
#if COL_REBASE
        if (threadIdx.x % 128 == 0) shared()->cut[k / 4] = b;
#endif
    }
    __syncthreads();
}

#if COL_REBASE
/* Neither tile has rows, or codes of its own: they are a group's last ones. */
MOII_FN bool is_idle(void)
{
    const shared_memory *m = shared();
    return m->cut[0].left + m->cut[1].left == 0 && m->slots[0].owned && m->slots[4].owned;
}
#endif
#endif

/* The thread's slot of a tile, of those from `first` on; rows: from there on. */
MOII_FN slot slot_of(int tile, long long first, int rows)
{
    const int k = 4 * tile + threadIdx.x / 128;
#if RAGGED
    return shared()->slots[k];
#else
    slot s;
    s.r0 = (first + k) << SLOT_BITS, s.rows = min(max(rows - (k << SLOT_BITS), 0), SLOT), s.owned = 1;
    return s;
#endif
}

/* ---- reading ---- */

/* The thread's first row of a slot, its columns, and where their packet stands: see mx_turn.cuh. */
MOII_FN int my_row(void) { return (int)(threadIdx.x / 32 % 4 * 8 + threadIdx.x % 32 / 16 * 4); }
MOII_FN int my_col(void) { return (int)(threadIdx.x % 16 * 8); }
MOII_FN uint4 *my_packet(int tile) { return &shared()->in[tile][threadIdx.x / 128 * SLOT + my_row()][packet_place(my_row(), threadIdx.x % 16)]; }
enum { ROW_PACKETS = TILE / 8 };

/* Where rows are not all there, or not in packets. */
static __device__ __noinline__ void fetch_slowly(const char *from, long long stride, uint4 *to, int rows, bool packets)
{
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        if (packets && i < rows) fetch16(to, from);
        else *to = i < rows ? load_edge(from, 8) : make_uint4(0, 0, 0, 0);
        to += ROW_PACKETS, from += stride;
    }
}

MOII_FN void close_group(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* The thread's rows of a tile, as one group. */
MOII_FN void fetch_tile(const quantize_mx_sm90_args &a, const slot &s, int tile, int c0)
{
    const unsigned long long policy = blockIdx.y >= a.late ? EVICT_FIRST : EVICT_LAST; /* see quantize_mx_sm90.c */
    const char *from = (const char *)a.in + (s.r0 + my_row()) * a.in_bytes + (c0 + my_col()) * 2;
    uint4 *to = my_packet(tile);
    if (a.packets && s.rows == SLOT) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            fetch16(to + i * ROW_PACKETS, from, policy);
            from += a.in_bytes;
        }
    } else {
        if (s.rows || BLK128 || (COL_REBASE && !RAGGED)) fetch_slowly(from, a.in_bytes, to, s.rows - my_row(), a.packets);
    }
    close_group();
}

/* ---- along rows ---- */

#if BLK128
MOII_FN warp_tops &tops_of(int tile) { return *(warp_tops *)shared()->turned[tile]; }

/* The thread's four rows of a tile become codes, and largest magnitudes of its columns are kept. */
MOII_FN void go_along(const quantize_mx_sm90_args &a, int tile, uint2 codes[4])
{
    const uint4 *packet = my_packet(tile);
    const line v[4] = { packet[0], packet[ROW_PACKETS], packet[2 * ROW_PACKETS], packet[3 * ROW_PACKETS] };
    keep_tops(v, tops_of(tile)[threadIdx.x / 32]);
    four_rows(a.row, v, threadIdx.x / 128 * SLOT + my_row(), &shared()->row[tile], codes);
}
#elif ROWS
/* The thread's four rows of a tile become codes. */
MOII_FN void go_along(const quantize_mx_sm90_args &a, const slot &s, int tile, uint2 codes[4])
{
    const uint4 *packet = my_packet(tile);
    unsigned int scales = 0;
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        if (RAGGED && !s.rows) continue;
        const line v[2] = { packet[pair * ROW_PACKETS], packet[(pair + 1) * ROW_PACKETS] };
        scales |= pair_codes(a.row, v, codes + pair) << 8 * pair;
    }
    if (threadIdx.x % 4 == 0) *(unsigned int *)&shared()->row[tile].e8m0[threadIdx.x % 16 / 4][threadIdx.x / 128 * SLOT + my_row()] = scales;
}
#endif

#if ROWS
MOII_FN void put_eight(unsigned char *to, const uint2 &q)
{
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" : : "l"(to), "r"(q.x), "r"(q.y), "l"(EVICT_LAST) : "memory");
}

static __device__ __noinline__ void put_eight_slowly(unsigned char *to, uint2 q) { put_edge(to, 8, q); }

MOII_FN void put_rows(const quantize_mx_sm90_args &a, const slot &s, int c0, const uint2 codes[4])
{
    unsigned char *to = a.row.data + (s.r0 + my_row()) * a.row.stride + c0 + my_col();
    if (a.row_words && s.rows == SLOT) {
#pragma unroll
        for (int i = 0; i < 4; i++) put_eight(to, codes[i]), to += a.row.stride;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (my_row() + i >= s.rows) return;
        if (a.row_words) put_eight(to, codes[i]);
        else put_eight_slowly(to, codes[i]);
        to += a.row.stride;
    }
}

/* The scales of 32 rows that begin anywhere, by the slot's 128 threads. */
MOII_FN void put_slot_scales(const tile8_side &side, const shared_scales &from, const slot &s, int c0)
{
    const int t = threadIdx.x % 128, row = t % SLOT, at = threadIdx.x / 128 * SLOT + row, b = t / SLOT;
    unsigned char *to = (unsigned char *)side.scale;
    if (row >= s.rows) return;
    if (side.layout == SCALES_COL || (side.layout == SCALES_ROW && (side.blocks % 4 || ((unsigned long long)to & 3)))) {
        to[scale_place(side, s.r0 + row, c0 / 32 + b, 15)] = from.e8m0[b][at];
    } else if (b == 0) {
        unsigned int w = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) w |= (unsigned int)from.e8m0[k][at] << 8 * k;
        *(unsigned int *)(to + scale_place(side, s.r0 + row, c0 / 32, 15)) = w;
    }
}
#endif

/* ---- down columns ---- */

/* Chunks of columns of which not all codes are there, or which do not begin at multiples of 16 bytes. */
static __device__ __noinline__ void put_column_slowly(unsigned char *to, long long stride, const half_tile &from, bool aligned, int left)
{
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const int col = threadIdx.x / 16 + 32 * i;
        put_chunk(to, from[col][chunk_place(col, threadIdx.x % 8)], aligned, left);
        to += 32 * stride;
    }
}

/* The thread's chunk of each 32nd column of a tile. */
MOII_FN void put_chunks(const quantize_mx_sm90_args &a, unsigned char *to, const half_tile &from, bool whole, int left)
{
    const int col = threadIdx.x / 16;
    if (a.col_packets && whole) {
        const uint4 *chunk = &from[col][chunk_place(col, threadIdx.x % 8)];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            put_sixteen(to, chunk[i * 32 * (TILE / 16)]);
            to += 32 * a.col.stride;
        }
    } else put_column_slowly(to, a.col.stride, from, a.col_packets, left);
}

#if RAGGED && COL_REBASE
MOII_FN void put_columns(const quantize_mx_sm90_args &a, long long, int c0, int)
{
    const int k = threadIdx.x % 16, col = threadIdx.x / 16, tile = threadIdx.x / 256;
    const strip b = shared()->cut[k / 8], own = shared()->cut[tile];
    unsigned char *to = a.col.data + (c0 + col) * a.col.stride + ((long long)b.first << SLOT_BITS) + 16 * (k % 8);
    put_chunks(a, to, shared()->turned[k / 8], b.left == TILE, b.left - 16 * (k % 8));
    if (own.left) put_e8m0(a.col, (unsigned char *)a.col.scale, shared()->col[tile], c0, TILE, own.first, own.left >> SLOT_BITS);
}
#else
/* left: codes of a column from the first slot on. */
MOII_FN void put_columns(const quantize_mx_sm90_args &a, long long first, int c0, int left)
{
    const int k = threadIdx.x % 16, col = threadIdx.x / 16, tile = threadIdx.x / 256;
    unsigned char *to = a.col.data + (c0 + col) * a.col.stride + (first << SLOT_BITS) + 16 * k;
    put_chunks(a, to, shared()->turned[k / 8], left >= 2 * TILE, left - 16 * k);
#if BLK128
    const long long block = first / 4 + tile;
    if (block < a.blocks) put_f32(a.col, (unsigned int *)a.col.scale, shared()->col[tile], c0, TILE, block);
#else
    const long long block = first + 4 * tile, there = a.blocks - block;
    if (there > 0) put_e8m0(a.col, (unsigned char *)a.col.scale, shared()->col[tile], c0, TILE, block, (int)min(there, 4LL));
#endif
}
#endif

/* The cluster's blocks meet, if `when` is among a.meets. */
MOII_FN void meet(const quantize_mx_sm90_args &a, int when)
{
    if (ROWS && a.meets & when) asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" : : : "memory");
}

#if BLK128
MOII_FN void make_tile(const quantize_mx_sm90_args &a, const slot &, int tile, long long, int, int, uint2 codes[4]) { go_along(a, tile, codes); }

/* What is left of both tiles but that codes leave: of each, 128 threads put the scales of rows, and as many find those of columns. */
MOII_FN void make_columns(const quantize_mx_sm90_args &a, long long first, int c0, int left)
{
    const int tile = threadIdx.x / 256, rows = min(left - tile * TILE, TILE);
    __syncthreads();
    if (rows > 0) put_f32(a.row, (unsigned int *)a.row.scale, shared()->row[tile], (first + 4 * tile) << SLOT_BITS, rows, c0 / TILE);
    if (thread_index() >= TILE) take_column(a.col, tops_of(tile), thread_index() - TILE, &shared()->col[tile], shared()->inverse[tile]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) turn_by(shared()->inverse[i], shared()->in[i], shared()->turned[i]);
}
#else
/* Everything of a tile but that codes leave. */
MOII_FN void make_tile(const quantize_mx_sm90_args &a, const slot &s, int tile, long long first, int c0, int left, uint2 codes[4])
{
#if ROWS
    go_along(a, s, tile, codes);
#endif
    __syncthreads();
#if ROWS && RAGGED
    put_slot_scales(a.row, shared()->row[tile], s, c0);
#elif ROWS
    const int rows = min(left - tile * TILE, TILE);
    if (threadIdx.x / 256 == tile && rows > 0)
        put_e8m0(a.row, (unsigned char *)a.row.scale, shared()->row[tile], (first + 4 * tile) << SLOT_BITS, rows, c0 / 32, 4);
#endif
    turn_two(a.col, shared()->in[tile], shared()->turned[tile], &shared()->col[tile], RAGGED ? s.owned ? s.rows : 0 : SLOT, false);
}
#endif

extern "C" __global__ void __launch_bounds__(512, 2) quantize_mx_sm90(const __grid_constant__ quantize_mx_sm90_args a)
{
    const int c0 = (int)(blockIdx.z * gridDim.x + blockIdx.x) * TILE;
    const long long first = (long long)blockIdx.y * 8; /* RAGGED and COL_REBASE: put_columns has its own */
    const int left = (int)min((RAGGED ? a.blocks << SLOT_BITS : a.cut.rows) - (first << SLOT_BITS), 2LL * TILE);
#if RAGGED
    find_slots(a);
#if ROWS
    if (blockIdx.y == 0) clear_padding(a.row, a.cut.rows, c0);
#endif
#if COL_REBASE
    if (is_idle()) return; /* as all of a cluster do */
#endif
#endif
    const slot s0 = slot_of(0, first, left);
    fetch_tile(a, s0, 0, c0);
    const slot s1 = slot_of(1, first, left);
    fetch_tile(a, s1, 1, c0);
    GROUPS_LEFT(1);
    meet(a, MEET_FIRST);
    uint2 codes[2][4];
    make_tile(a, s0, 0, first, c0, left, codes[0]);
    GROUPS_LEFT(0);
    meet(a, MEET_SECOND);
    make_tile(a, s1, 1, first, c0, left, codes[1]);
#if BLK128
    make_columns(a, first, c0, left);
#endif
    __syncthreads();
    meet(a, MEET_STORES);
#if ROWS
    put_rows(a, s0, c0, codes[0]);
    put_rows(a, s1, c0, codes[1]);
#endif
    put_columns(a, first, c0, left);
}
