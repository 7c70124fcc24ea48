/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_sm90: moi_swiglu_run or moi_swiglu_backward_run with 8-bit results, row-wise, column-wise or both, and the plain one where it is
 * wanted, all from one read, in tiles of 128 x 128 values.
 *
 *   defines   BACKWARD: 0 or 1; IN_ELEM: ELEM_BF16, ELEM_F32, or with scales ELEM_E4M3, ELEM_E5M2; IN_BYTES: 2, 4, 1
 *             accordingly; IN_WIDE: 1 where those scales are FP32; OUT_BF16: 1, or 0 where the plain result and d_act are
 *             FP32; ROW_KIND, ROW_ELEM, COL_KIND, COL_ELEM, RAGGED: see tile8.cuh
 *   grid      x: 128 columns of the activation, y: `depth` strips of 128 rows (RAGGED: before them one that clears)
 *   threads   256, a square of 8 x 8 values each, as tile8.cuh has it.  Backward makes two tiles, of d_gate and of d_up, one after the
 *             other.
 *   shared    dynamic: gate and up of the tile below, where all is BF16
 *   slowly    a square with a gate beyond 86, and all where gate_up cannot be read in whole packets, is read again and computed one
 *             value at a time.
 */
#include "swiglu_sm90_args.h"

#define TILE_BF16 OUT_BF16
#define TILE_INLINE
#define TILE_REPEATED
#define TILE_TWINS BACKWARD
#define TILE_SLOTS SWIGLU_SM90_SLOTS(IN_BYTES == 2, OUT_BF16) /* gate and up of the next tile; d_act goes to registers */
#define FETCHES (TILE_SLOTS > 0)
#include "tile8.cuh"
#include "swiglu_values.cuh"

/* The thread's square begins there; found anew wherever it is wanted, as thread_index. */
MOII_FN int my_row(void) { return thread_index() / 32 * 16 + thread_index() % 32 / 16 * 8; }
MOII_FN int my_col(void) { return thread_index() % 16 * 8; }

/* Rows behind a tile's last read it again: either it shares their blocks of columns, or no row does. */
MOII_FN unsigned int row_within(const tile &t, int row) { return min(row, t.rows - 1); }

MOII_FN const char *gate_at(const swiglu_sm90_args &a, const tile &t)
{
    const char *p = (const char *)a.gate_up.data + t.r0 * a.gate_up.stride + (t.c0 + my_col()) * IN_BYTES;
    return (const char *)((unsigned long long)p & (IN_BYTES == 1 ? ~7ULL : ~15ULL)); /* else all is done slowly, and stride is 0 */
}

MOII_FN void make_slowly(const swiglu_sm90_args &a, const tile &t, line first[8], line second[8])
{
    const long long c0 = t.c0 + my_col();
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        const long long r = t.r0 + min(my_row() + i, t.rows - 1);
        line x = no_line(), y = no_line();
#pragma unroll 1
        for (int c = 0; c < 8; c++) {
            const float gate = get(a.gate_up, r, c0 + c), up = get(a.gate_up, r, a.width + c0 + c);
#if BACKWARD
            const float d_act = elem_load(OUT_BF16 ? ELEM_BF16 : ELEM_F32, a.d_act, r * a.width + c0 + c);
            const moii_swiglu_grad grad = moii_swiglu_backward(gate, up, d_act);
            insert(x, c, grad.gate), insert(y, c, grad.up);
#else
            insert(x, c, moii_swiglu(gate, up));
#endif
        }
#pragma unroll
        for (int p = 0; p < 8; p++) {
            if (p != i) continue;
            first[p] = x;
            if (BACKWARD) second[p] = y;
        }
    }
}

MOII_FN void put_plain(const swiglu_sm90_args &a, const tile &t, const line v[8])
{
    const long long stride = (1 + BACKWARD) * a.width;
#pragma unroll
    for (int p = 0; p < 8; p++) {
        uint4 *to = (uint4 *)((char *)a.plain + ((t.r0 + my_row() + p) * stride + t.c0 + my_col()) * (OUT_BF16 ? 2 : 4));
        if (my_row() + p >= t.rows) continue;
#if OUT_BF16
        *to = v[p];
#else
        to[0] = v[p].low, to[1] = v[p].high;
#endif
    }
}

/* ---- tiles ---- */

MOII_FN void fetch_tile(const swiglu_sm90_args &a, const tile &t)
{
#if FETCHES
    const char *p = gate_at(a, t), *q = p + a.width * IN_BYTES;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const unsigned long long at = (unsigned long long)row_within(t, my_row() + i) * a.stride;
        fetch16(i, p + at, 16);
        fetch16(8 + i, q + at, 16);
    }
#endif
}

MOII_FN void load_gradients(const swiglu_sm90_args &a, const tile &t, line d[8])
{
    const int size = OUT_BF16 ? 2 : 4;
    const char *e = (const char *)a.d_act + (t.r0 * a.width + t.c0 + my_col()) * size;
#pragma unroll
    for (int i = 0; i < 8; i++) d[i] = load_gradient(e + (unsigned long long)row_within(t, my_row() + i) * (unsigned int)(a.width * size));
}

/* second: backward, it is d_act before and d_up afterwards.  False: it must be done slowly. */
MOII_FN bool make_tile(const swiglu_sm90_args &a, const tile &t, line first[8], line second[8])
{
    unsigned int top = 0;
#if FETCHES
    fetched();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        first[i] = make_row(slot16(i), slot16(8 + i), second[i], 1.0f, 1.0f, &second[i], &top);
        if (BACKWARD && i % 2 == 1 && !all_near(top)) return false; /* here, lest more rows are begun than registers hold */
    }
#else
    packet g[8], u[8];
    const char *p = gate_at(a, t), *q = p + a.width * IN_BYTES;
#pragma unroll
    for (int i = 0; i < 8; i++) { /* row by row, so that computing may begin with the first */
        const unsigned long long at = (unsigned long long)row_within(t, my_row() + i) * a.stride;
        g[i] = load_packet(p + at), u[i] = load_packet(q + at);
    }
    if (BACKWARD) load_gradients(a, t, second);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const long long r = t.r0 + row_within(t, my_row() + i), c = t.c0 + my_col();
        first[i] = make_row(g[i], u[i], second[i], load_scale(a.gate_up, r, c), load_scale(a.gate_up, r, a.width + c), &second[i], &top);
    }
#endif
    return a.stride && all_near(top);
}

/* Two blocks to an SM where 128 registers do without spilling. */
#define FEW_REGISTERS (OUT_BF16 && IN_BYTES <= 2 && !(BACKWARD && __CUDA_ARCH__ >= 1000))
extern "C" __global__ void __launch_bounds__(256, FEW_REGISTERS ? 2 : 1) swiglu_sm90(const __grid_constant__ swiglu_sm90_args a)
{
    way *const ways = units->ways;
    tile t = { };
    t.c0 = (long long)blockIdx.x * TILE, t.cols = TILE;
    if (RAGGED && blockIdx.y == 0) {
        clear(a.cut, a.row, a.col, t);
        t.c0 += a.width;
        if (BACKWARD) clear(a.cut, a.row, a.col, t);
        return;
    }
    const unsigned int lo = (blockIdx.y - RAGGED) * a.apart, stop = RAGGED ? min(lo + a.apart, a.strips) : a.strips;
    line v[8], next[8];
    begin(a.cut, t, lo, stop, a.step, ways, a.width);
    if (ways[0].t.rows == 0) return;
    fetch_tile(a, ways[0].t);
    if (BACKWARD && FETCHES) load_gradients(a, ways[0].t, next);
#pragma unroll 1
    for (int now = 0;; now = (now + 1) % 4) {
        const way &below_it = ways[(now + 1) % 4];
        if (!make_tile(a, ways[now].t, v, next)) make_slowly(a, ways[now].t, v, next);
        const bool last = below_it.t.rows == 0;
        if (!last) {
            fetch_tile(a, below_it.t);
            if (thread_index() == 0) note(&ways[(now + 2) % 4], below(a.cut, below_it, a.step), a.width);
        }
#pragma unroll 1
        for (int half = 0;; half++) {
#if BACKWARD
            const tile &it = half ? ways[now].twin : ways[now].t;
#else
            const tile &it = ways[now].t;
#endif
            if (a.plain) put_plain(a, it, v);
            put_tile(a.row, a.col, it, v, it.rows == TILE);
            if (COL_KIND == TILE_NONE) __syncthreads();
            if (half == BACKWARD) break;
#pragma unroll
            for (int p = 0; p < 8; p++) v[p] = next[p];
            if (FETCHES && !last) load_gradients(a, below_it.t, next);
        }
        if (last) return;
    }
}
