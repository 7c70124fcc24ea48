/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_mx_sm90: SwiGLU or its gradient from BF16 to blocks of 32, row-wise, column-wise or both, and the plain result where it is wanted, in
 * tiles of 128 x 128 values; groups may cut columns.
 *
 *   defines   BACKWARD: 0 or 1; ROW_KIND, COL_KIND: TILE_NONE or TILE_MX32; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2; ROW_REBASE, COL_REBASE: 1
 *             where the scales of 128 columns, or rows, are made equal (E4M3), as moi_rebase_run would; RAGGED: 1 where groups cut the columns
 *   grid      x: 128 columns of the activation, y: strips of 128 rows, of which a block makes each `step` further down: the blocks of y below
 *             first_parts those of the first first_strips, the others the rest
 *   slots     RAGGED: a strip is four slots (tile8_slots.cuh), of four warps each; `tile` then means the warp's slot
 *   threads   512.  Along rows, warp w, lane l: rows 8 w + 4 (l / 16) + 0..3, columns 8 (l % 16) + 0..7, two rows at a time.  Down columns:
 *             block of rows t / 128, half of it l / 16, two columns.  Few registers, so that there are 32 warps to a multiprocessor.
 *   shared    dynamic: gate, up and d_act of the tile, each thread's own, and those of the next as soon as they have been read; what is made of
 *             them, in BF16, for those who go down columns; turned: column-wise codes, until they leave.  Backward, d_gate takes gate's
 *             place and d_up up's.
 */
#define IN_ELEM ELEM_BF16
#define IN_BYTES 2
#define IN_WIDE 0
#define OUT_BF16 1
#define COL_POLICY EVICT_FIRST
#define TILE_BF16 1
#define TILE_INLINE
#include "swiglu_sm90_args.h"
#include "swiglu_values.cuh"

MOII_FN int thread_index(void) { return (int)(threadIdx.x % 256); } /* of those who put scales */
#include "tile8_rows.cuh"
#include "tile8_scales.cuh"
#include "mx_turn.cuh"

#define COLUMNS (COL_KIND != TILE_NONE)
#define ROWS (ROW_KIND != TILE_NONE)
#define STRIP_SLOTS 4
#define ALL_ROWS 1
#include "tile8_slots.cuh"
#define TALL (RAGGED ? SLOT : TILE) /* rows of what is whole */

/* RAGGED: a warp's slot: its first row, how many, whether a group has them; and its strip. */
typedef struct part { int r0; short rows, owned; strip cut; } part;
static_assert(sizeof(part[2][16]) == sizeof(shared_scales), "they take each other's place");

typedef struct shared_memory {
    whole_tile gate, up;
#if BACKWARD
    whole_tile grad;
#elif COLUMNS
    whole_tile act;
#endif
#if COLUMNS
    half_tile turned;
#endif
#if RAGGED
    part parts[2][16]; /* of each warp, in this strip and in the next */
#else
    shared_scales row;
#endif
    shared_scales col;
} shared_memory;
/* What is made of gate and up lies there. */
#if COLUMNS && !BACKWARD
#define MADE act
#else
#define MADE gate
#endif
extern __shared__ uint4 memory[];
MOII_FN shared_memory *shared(void) { return (shared_memory *)memory; }

MOII_FN int my_row(void) { return (int)(threadIdx.x / 32 * 8 + threadIdx.x % 32 / 16 * 4); }
MOII_FN int own_row(void) { return my_row() % TALL; } /* of `tile`'s rows */
MOII_FN int my_col(void) { return (int)(threadIdx.x % 16 * 8); }
MOII_FN int my_packet(void) { return packet_place(my_row(), threadIdx.x % 16); }

/* ---- reading ---- */

/* Where the thread's next row is read; rows behind a tile's last read it again: either it shares their blocks of columns, or no row does. */
typedef struct source {
    const char *gate;
#if BACKWARD
    const char *grad;
#endif
    int left; /* rows of the tile behind it */
} source;

MOII_FN source source_of(const swiglu_sm90_args &a, const tile &t)
{
    source s;
    const int row = min(own_row(), t.rows - 1);
    s.left = t.rows - 1 - own_row();
    s.gate = (const char *)a.gate_up.data + (t.r0 + row) * a.gate_up.stride + (t.c0 + my_col()) * 2;
    if (!a.stride) s.gate = (const char *)a.gate_up.data; /* not in packets: all is done slowly */
#if BACKWARD
    s.grad = (const char *)a.d_act + ((t.r0 + row) * a.width + t.c0 + my_col()) * 2;
#endif
    return s;
}

/* Two rows of a tile into the thread's rows `pair` and the next. */
MOII_FN void fetch_gates(const swiglu_sm90_args &a, source &s, int pair)
{
#pragma unroll
    for (int i = pair; i < pair + 2; i++) {
        fetch16(&shared()->gate[my_row() + i][my_packet()], s.gate);
        fetch16(&shared()->up[my_row() + i][my_packet()], s.gate + a.width * 2);
        if (i < s.left) s.gate += a.stride;
    }
}

#if BACKWARD
MOII_FN void fetch_gradients(const swiglu_sm90_args &a, source &s, int pair)
{
#pragma unroll
    for (int i = pair; i < pair + 2; i++) {
        fetch16(&shared()->grad[my_row() + i][my_packet()], s.grad);
        if (i < s.left) s.grad += a.width * 2;
    }
}
#endif

MOII_FN long long row_within(const tile &t, int row) { return t.r0 + min(row, t.rows - 1); }

MOII_FN void close_group(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* ---- values ---- */

/* Two rows where a gate is not near, or what is read is not in packets. */
MOII_FN void make_slowly(const swiglu_sm90_args &a, const tile &t, int pair)
{
    if (RAGGED && t.rows == 0) return; /* nobody wants what has been made of anything */
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        const int row = my_row() + pair + i;
        const long long r = row_within(t, own_row() + pair + i), c0 = t.c0 + my_col();
        line x = no_line(), y = no_line();
#pragma unroll 1
        for (int c = 0; c < 8; c++) {
            const float gate = get(a.gate_up, r, c0 + c), up = get(a.gate_up, r, a.width + c0 + c);
#if BACKWARD
            const moii_swiglu_grad grad = moii_swiglu_backward(gate, up, elem_load(ELEM_BF16, a.d_act, r * a.width + c0 + c));
            insert(x, c, grad.gate), insert(y, c, grad.up);
#else
            insert(x, c, moii_swiglu(gate, up));
#endif
        }
        shared()->gate[row][my_packet()] = x;
        if (BACKWARD) shared()->up[row][my_packet()] = y;
    }
}

/* Two rows of the thread's: x, and backward y, which is d_up. */
MOII_FN void make_two(const swiglu_sm90_args &a, const tile &t, int pair, line x[2], line y[2])
{
    unsigned int top = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = my_row() + pair + i;
        line d = no_line();
#if BACKWARD
        d = shared()->grad[row][my_packet()];
#endif
        x[i] = make_row(shared()->gate[row][my_packet()], shared()->up[row][my_packet()], d, 1.0f, 1.0f, &y[i], &top);
    }
    if (a.stride && all_near(top)) return;
    make_slowly(a, t, pair);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = my_row() + pair + i;
        x[i] = shared()->gate[row][my_packet()];
        if (BACKWARD) y[i] = shared()->up[row][my_packet()];
    }
}

/* For those who go down columns. */
MOII_FN void keep_values(int pair, const line x[2], const line y[2])
{
#if COLUMNS
#pragma unroll
    for (int i = 0; i < 2; i++) {
        shared()->MADE[my_row() + pair + i][my_packet()] = x[i];
        if (BACKWARD) shared()->up[my_row() + pair + i][my_packet()] = y[i];
    }
#endif
}

MOII_FN void put_plain(const swiglu_sm90_args &a, const tile &t, int pair, const line v[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = own_row() + pair + i;
        if (row < t.rows) *(uint4 *)((char *)a.plain + ((t.r0 + row) * (1 + BACKWARD) * a.width + t.c0 + my_col()) * 2) = v[i];
    }
}

/* ---- along rows ---- */

#if ROWS
/* The thread's first row of codes. */
MOII_FN unsigned char *target_of(const tile8_side &side, const tile &t) { return side.data + (t.r0 + own_row()) * side.stride + t.c0 + my_col(); }

#if RAGGED
/* What four rows' scales are: codes of two calls of put_pair, of one block in four lanes alike, which have a row of all blocks each. */
MOII_FN void put_scales(const tile8_side &side, const tile &t, unsigned int codes)
{
    const int q = threadIdx.x % 4, b = threadIdx.x % 16 / 4, row = own_row() + q;
    unsigned char *to = (unsigned char *)side.scale;
    const bool bytes = side.layout == SCALES_COL || (side.layout == SCALES_ROW && (side.blocks % 4 || ((unsigned long long)to & 3)));
    unsigned int of[4];
#pragma unroll
    for (int k = 0; k < 4; k++) of[k] = __shfl_sync(0xFFFFFFFFu, codes, (threadIdx.x & 16) + 4 * k);
    const unsigned int low = __byte_perm(of[0], of[1], q | (q + 4) << 4), high = __byte_perm(of[2], of[3], q | (q + 4) << 4);
    if (row >= t.rows) return;
    if (bytes) to[scale_place(side, t.r0 + row, t.c0 / 32 + b, 15)] = (unsigned char)(codes >> 8 * q);
    else if (b == 0) *(unsigned int *)(to + scale_place(side, t.r0 + row, t.c0 / 32, 15)) = __byte_perm(low, high, 0x5410);
}
#else
/* What four rows' scales are: codes of two calls of put_pair. */
MOII_FN void keep_scales(unsigned int codes)
{
    if (threadIdx.x % 4 == 0) *(unsigned int *)&shared()->row.e8m0[threadIdx.x % 16 / 4][my_row()] = codes;
}

/* By half of the threads. */
MOII_FN void put_row_scales(const swiglu_sm90_args &a, const tile &t)
{
    if (threadIdx.x >= 256) put_e8m0(a.row, (unsigned char *)a.row.scale, shared()->row, t.r0, t.rows, t.c0 / 32, 4);
}
#endif
#endif

/* ---- down columns ---- */

#if COLUMNS
MOII_FN void put_columns(const swiglu_sm90_args &a, const tile &t)
{
    const int col = threadIdx.x / 8, k = threadIdx.x % 8, there = RAGGED ? t.run : t.rows; /* codes of a column */
    const long long block = RAGGED ? t.block : t.r0 / 32;
    unsigned char *to = a.col.data + (t.c0 + col) * a.col.stride + block * 32 + 16 * k;
    if ((a.col.stride & 15) == 0 && there == TILE) {
        const uint4 *chunk = &shared()->turned[col][chunk_place(col, k)]; /* 64 columns further it stands at the same place */
        put_sixteen(to, chunk[0]);
        put_sixteen(to + 64 * a.col.stride, chunk[64 * (TILE / 16)]);
    } else {
#pragma unroll
        for (int i = 0; i < TILE; i += 64)
            put_chunk(to + i * a.col.stride, shared()->turned[col + i][chunk_place(col, k)], (a.col.stride & 15) == 0, there - 16 * k);
    }
    if (threadIdx.x < 256) put_e8m0(a.col, (unsigned char *)a.col.scale, shared()->col, t.c0, TILE, block, (there + 31) / 32);
}
#endif

/* ---- tiles ---- */

/* The first strip that is not the block's. */
MOII_FN unsigned int end_of(const swiglu_sm90_args &a) { return blockIdx.y < a.first_parts ? a.first_strips : a.strips; }

/* RAGGED: the warp finds its slot, of which tile_at tells from then on; `which`: 0 and 1 in turn. */
MOII_FN void find_tile(const swiglu_sm90_args &a, unsigned int strip, int which)
{
#if RAGGED
    const int warp = threadIdx.x / 32;
    part p = { 0, 0, 0, { 0, 0 } };
    if (strip < end_of(a)) {
        const slot s = find_slot(a.cut, a.col.blocks, strip, warp / 4, &p.cut);
        p.r0 = (int)s.r0, p.rows = (short)s.rows, p.owned = (short)s.owned;
    }
    __syncwarp(); /* what stood there has been read */
    if (threadIdx.x % 32 == 0) shared()->parts[which][warp] = p;
    __syncwarp();
#endif
}

MOII_FN tile tile_at(const swiglu_sm90_args &a, unsigned int strip, int which)
{
    tile t = { };
    t.c0 = (long long)blockIdx.x * TILE, t.cols = TILE;
#if RAGGED
    const part p = shared()->parts[which][threadIdx.x / 32];
    t.r0 = p.r0, t.rows = p.rows, t.owned = p.owned, t.block = p.cut.first, t.run = p.cut.left;
#else
    t.r0 = (long long)strip * TILE;
    t.rows = strip < end_of(a) ? (int)min(a.cut.rows - t.r0, (long long)TILE) : 0;
#endif
    return t;
}

/* Two rows of the thread's after two: values, plain results, codes along rows, and what of the next tile may come already.  Backward, d_up's scales come
 * back. */
MOII_FN unsigned int go_along(const swiglu_sm90_args &a, const tile &t, int which, bool more, source &from)
{
    unsigned int scales = 0, later = 0;
#if ROWS
    const bool plain = t.rows == TALL && (a.row.stride & 7) == 0;
    unsigned char *to = target_of(a.row, t);
#endif
#if BACKWARD
#pragma unroll 1 /* else registers do not suffice */
#else
#pragma unroll
#endif
    for (int pair = 0; pair < 4; pair += 2) {
        line x[2], y[2];
        GROUPS_LEFT(1);
        make_two(a, RAGGED ? tile_at(a, 0, which) : t, pair, x, y); /* anew, as registers are few */
        keep_values(pair, x, y);
        if (more) {
            if (!BACKWARD || !COLUMNS) fetch_gates(a, from, pair);
#if BACKWARD
            fetch_gradients(a, from, pair);
#endif
        }
        close_group();
        if (a.plain) put_plain(a, RAGGED ? tile_at(a, 0, which) : t, pair, x);
#if ROWS
        scales |= put_pair(a.row, to, plain, t.rows - own_row() - pair, x) << 8 * pair;
#endif
#if BACKWARD
        tile twin = t;
        twin.c0 += a.width;
        if (a.plain) put_plain(a, twin, pair, y);
#if ROWS
        later |= put_pair(a.row, to + a.width, plain, t.rows - own_row() - pair, y) << 8 * pair;
#endif
#endif
#if ROWS
        to += 2 * a.row.stride;
#endif
    }
#if ROWS && RAGGED
    put_scales(a.row, tile_at(a, 0, which), scales);
#if BACKWARD
    tile twin = tile_at(a, 0, which);
    twin.c0 += a.width;
    put_scales(a.row, twin, later);
#endif
#elif ROWS
    keep_scales(scales);
#endif
    return later;
}

/* What lies in shared memory is turned; before it and behind it all threads meet. */
MOII_FN void go_down(const swiglu_sm90_args &a, const tile &t, const whole_tile &values)
{
    __syncthreads();
#if ROWS && !RAGGED
    put_row_scales(a, t);
#endif
#if COLUMNS
    turn_two(a.col, values, shared()->turned, &shared()->col, RAGGED ? t.owned ? t.rows : 0 : 32, RAGGED);
#endif
    __syncthreads();
}

#define ONE_STRIP (RAGGED && BACKWARD) /* a block makes no other, as registers are few */
/* One block to an SM where 64 registers do not do without spilling. */
#define MANY_REGISTERS (BACKWARD && COLUMNS && __CUDA_ARCH__ >= 1000)
extern "C" __global__ void __launch_bounds__(512, MANY_REGISTERS ? 1 : 2) swiglu_mx_sm90(const __grid_constant__ swiglu_sm90_args a)
{
    unsigned int strip = blockIdx.y < a.first_parts ? blockIdx.y : a.first_strips + blockIdx.y - a.first_parts;
    int which = 0;
#if ROWS && RAGGED
    if (blockIdx.y == 0) {
        clear_padding(a.row, a.cut.rows, (long long)blockIdx.x * TILE);
        if (BACKWARD) clear_padding(a.row, a.cut.rows, (long long)blockIdx.x * TILE + a.width);
    }
#endif
    find_tile(a, strip, which);
    tile t = tile_at(a, strip, which);
    source from = source_of(a, t);
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        if (!RAGGED || t.rows) {
            fetch_gates(a, from, pair);
#if BACKWARD
            fetch_gradients(a, from, pair);
#endif
        }
        close_group();
    }
#pragma unroll 1
    for (;;) {
        strip += a.step;
        bool more = false;
        if (!ONE_STRIP) {
            find_tile(a, strip, which ^ 1);
            const tile next = tile_at(a, strip, which ^ 1);
            from = source_of(a, next), more = next.rows > 0;
        }
        const unsigned int later = go_along(a, t, which, more, from);
        if (RAGGED) t = tile_at(a, strip - a.step, which);
        go_down(a, t, shared()->MADE);
#if COLUMNS
        if (RAGGED) t = tile_at(a, strip - a.step, which);
        put_columns(a, t);
#endif
#if BACKWARD
#if ROWS && !RAGGED
        keep_scales(later);
#endif
        tile twin = tile_at(a, strip - a.step, which);
        twin.c0 += a.width;
        go_down(a, twin, shared()->up);
#if COLUMNS && !ONE_STRIP
        from = source_of(a, tile_at(a, strip, which ^ 1)); /* anew */
#pragma unroll
        for (int pair = 0; pair < 4; pair += 2) {
            if (tile_at(a, strip, which ^ 1).rows > 0) fetch_gates(a, from, pair);
            close_group();
        }
#endif
#if COLUMNS
        if (RAGGED) twin = tile_at(a, strip - a.step, which), twin.c0 += a.width;
        put_columns(a, twin);
#endif
#endif
        if (ONE_STRIP) return;
        which ^= 1;
        t = tile_at(a, strip, which);
        if (RAGGED ? strip >= end_of(a) : t.rows <= 0) return;
    }
}
