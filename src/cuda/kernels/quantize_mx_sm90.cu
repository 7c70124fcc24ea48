/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_mx_sm90: moi_quantize_run from BF16 to blocks of 32 down columns, or both ways, from one read.  A block makes two tiles of 128 x 128
 * values, one below the other, so that 256 bytes of a column leave together.
 *
 *   defines   ROW_KIND: TILE_NONE or TILE_MX32; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2; RAGGED: 1 where groups cut the rows
 *   grid      a block for 256 rows and 128 columns, those beside one another first
 *   slots     of 32 rows, eight to a block, each a block of every column: slot s stands for codes 32 s .. 32 s + 31.  With groups, group g owns
 *             those from offsets[g] / 32 + g, which is where its codes begin, and each has its own rows: so groups cost no tiles of their own.
 *             A slot that has fewer rows, or none, is filled up with zeros, as are those of rows that no group owns, down columns.
 *   threads   512, of which 128 have one slot of each tile.  Along rows, warp w, lane l: rows 8 (w % 4) + 4 (l / 16) + 0..3, columns
 *             8 (l % 16) + 0..7, two rows at a time.  Down columns: half a slot, 16 rows, of two columns.
 *   shared    dynamic: both tiles, their codes down columns until they leave, scales
 */
#define TILE_BF16 1
#define TILE_INLINE
#define ROW_REBASE 0
#include "quantize_mx_sm90_args.h"
#include "packets.cuh"
#include "tile8_codes.cuh"

#define ROWS (ROW_KIND != TILE_NONE)
#define SLOT_BITS 5
#define SLOT (1 << SLOT_BITS)
#define STRIP_BITS SLOT_BITS
MOII_FN int thread_index(void) { return (int)(threadIdx.x % 256); }
#include "tile8_groups.cuh"
#include "tile8_rows.cuh"
#include "tile8_scales.cuh"
#include "mx_turn.cuh"

typedef struct shared_memory {
    whole_tile in[2];
    half_tile turned[2];
    shared_scales row[2], col[2];
} shared_memory;
extern __shared__ uint4 memory[];
MOII_FN shared_memory *shared(void) { return (shared_memory *)memory; }

/* Rows of a slot; valid ones come first. */
typedef struct slot { long long r0; int rows; bool owned; } slot;

MOII_FN slot find_slot(const quantize_mx_sm90_args &a, long long i)
{
    slot s;
    s.r0 = i << SLOT_BITS, s.owned = true;
    long long end = a.cut.rows;
#if RAGGED
    const unsigned int groups = (unsigned int)a.cut.groups, g = group_of(a.cut.offsets, groups, (unsigned int)i);
    const long long start = a.cut.offsets[g], into = i - ((start >> SLOT_BITS) + g);
    s.owned = g < groups, s.r0 = start + (into << SLOT_BITS);
    if (s.owned) end = a.cut.offsets[g + 1];
#endif
    s.rows = (int)max(min(end - s.r0, (long long)SLOT), 0LL);
    return s;
}

/* ---- reading ---- */

/* The thread's first row of a slot, its columns, and where their packet stands: see mx_turn.cuh. */
MOII_FN int my_row(void) { return (int)(threadIdx.x / 32 % 4 * 8 + threadIdx.x % 32 / 16 * 4); }
MOII_FN int my_col(void) { return (int)(threadIdx.x % 16 * 8); }
MOII_FN uint4 *my_packet(int tile, int row) { return &shared()->in[tile][threadIdx.x / 128 * SLOT + my_row() + row][packet_place(my_row(), threadIdx.x % 16)]; }

/* Two rows of the thread's, as one group. */
MOII_FN void fetch_two(const quantize_mx_sm90_args &a, const slot &s, int tile, int pair, long long c0)
{
    const char *from = (const char *)a.in + ((s.r0 + my_row() + pair) * a.in_ld + c0 + my_col()) * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool there = my_row() + pair + i < s.rows;
        if (a.packets) fetch16(my_packet(tile, pair + i), there ? from : (const char *)a.in, there ? 16 : 0);
        else *my_packet(tile, pair + i) = there ? load_edge(from, 8) : make_uint4(0, 0, 0, 0);
        from += a.in_ld * 2;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* ---- along rows ---- */

#if ROWS
/* Two rows of a slot become codes; their scales come back, a byte each. */
MOII_FN unsigned int put_two(const quantize_mx_sm90_args &a, const slot &s, int tile, int pair, long long c0)
{
    const line v[2] = { *my_packet(tile, pair), *my_packet(tile, pair + 1) };
    const int row = my_row() + pair;
    return put_pair(a.row, a.row.data + (s.r0 + row) * a.row.stride + c0 + my_col(), s.rows == SLOT && (a.row.stride & 7) == 0, s.rows - row, v);
}

/* The scales of 32 rows that begin anywhere, by the slot's 128 threads. */
MOII_FN void put_slot_scales(const tile8_side &side, const shared_scales &from, const slot &s, long long c0)
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

/* The padding behind the last row becomes 0, where no tile ends with it. */
MOII_FN void clear_padding(const quantize_mx_sm90_args &a, long long c0)
{
    const long long last = a.row.layout == SCALES_TILED ? 127 : a.row.layout == SCALES_COL ? 15 : 0;
    const long long r = a.cut.rows + threadIdx.x / 4;
    if (r < ((a.cut.rows + last) & ~last)) ((unsigned char *)a.row.scale)[scale_place(a.row, r, c0 / 32 + threadIdx.x % 4, 15)] = 0;
}
#endif

/* ---- down columns ---- */

MOII_FN void put_columns(const quantize_mx_sm90_args &a, long long first, long long c0)
{
    const long long left = (RAGGED ? a.blocks << SLOT_BITS : a.cut.rows) - (first << SLOT_BITS);
    const int k = threadIdx.x % 16;
    unsigned char *to = a.col.data + (c0 + threadIdx.x / 16) * a.col.stride + (first << SLOT_BITS) + 16 * k;
    const bool aligned = (((unsigned long long)a.col.data | (unsigned long long)a.col.stride) & 15) == 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int col = threadIdx.x / 16 + 32 * i;
        put_chunk(to, shared()->turned[k / 8][col][chunk_place(col, k % 8)], aligned, left - 16 * k);
        to += 32 * a.col.stride;
    }
    const int tile = threadIdx.x / 256;
    const long long block = first + 4 * tile, there = a.blocks - block;
    if (there > 0) put_e8m0(a.col, (unsigned char *)a.col.scale, shared()->col[tile], c0, TILE, block, (int)min(there, 4LL));
}

extern "C" __global__ void __launch_bounds__(512, 2) quantize_mx_sm90(const __grid_constant__ quantize_mx_sm90_args a)
{
    const unsigned int strip = blockIdx.x / a.stripes;
    const long long c0 = (long long)(blockIdx.x - strip * a.stripes) * TILE, first = (long long)strip * 8;
    slot s[2];
#pragma unroll
    for (int tile = 0; tile < 2; tile++) s[tile] = find_slot(a, first + 4 * tile + threadIdx.x / 128);
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int pair = 0; pair < 4; pair += 2) fetch_two(a, s[tile], tile, pair, c0);
#if RAGGED && ROWS
    if (strip == 0) clear_padding(a, c0);
#endif
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
#if ROWS
        if (tile == 0) GROUPS_LEFT(3);
        else GROUPS_LEFT(1);
        unsigned int scales = put_two(a, s[tile], tile, 0, c0);
        if (tile == 0) GROUPS_LEFT(2);
        else GROUPS_LEFT(0);
        scales |= put_two(a, s[tile], tile, 2, c0) << 16;
        if (threadIdx.x % 4 == 0) *(unsigned int *)&shared()->row[tile].e8m0[threadIdx.x % 16 / 4][threadIdx.x / 128 * SLOT + my_row()] = scales;
#else
        if (tile == 0) GROUPS_LEFT(2);
        else GROUPS_LEFT(0);
#endif
        __syncthreads();
#if ROWS && RAGGED
        put_slot_scales(a.row, shared()->row[tile], s[tile], c0);
#elif ROWS
        const long long r0 = (first + 4 * tile) << SLOT_BITS;
        const int rows = (int)max(min(a.cut.rows - r0, (long long)TILE), 0LL);
        if (threadIdx.x / 256 == tile && rows > 0) put_e8m0(a.row, (unsigned char *)a.row.scale, shared()->row[tile], r0, rows, c0 / 32, 4);
#endif
        turn_two(a.col, shared()->in[tile], shared()->turned[tile], &shared()->col[tile], RAGGED ? s[tile].owned ? s[tile].rows : 0 : SLOT);
    }
    __syncthreads();
    put_columns(a, first, c0);
}
