/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_sm90.cuh: moi_swiglu_run or moi_swiglu_backward_run with 8-bit results, row-wise, column-wise or both, and the plain one where it is
 * wanted, all from one read, in tiles of 128 x 128 values.
 *
 *   defines   BACKWARD: 0 or 1; IN_ELEM: ELEM_BF16, ELEM_F32, or with scales ELEM_E4M3, ELEM_E5M2; IN_BYTES: 2, 4, 1
 *             accordingly; IN_WIDE: 1 where those scales are FP32; OUT_BF16: 1, or 0 where the plain result and d_act are
 *             FP32; ROW_KIND, ROW_ELEM, COL_KIND, COL_ELEM, RAGGED: see tile8.cuh; AHEAD: 1 where a row's place in shared memory is
 *             taken by what comes next as soon as it has been read (all is BF16 then), and forward guesses (swiglu_guess.cuh); SWIGLU_ENTRY: the
 *             kernel's head
 *   grid      x: 128 columns of the activation, y: `depth` strips of 128 rows (RAGGED: before them one that clears)
 *   threads   256, a square of 8 x 8 values each, as tile8.cuh has it.  Backward makes two tiles, of d_gate and of d_up, one after the
 *             other.
 *   shared    dynamic: gate and up of the tile below, where all is BF16
 *   slowly    a square with a gate beyond 86, and all where gate_up cannot be read in whole packets, is read again and computed one
 *             value at a time.
 */
#include "silu.h"
#include "stored.cuh"
#include "swiglu_sm90_args.h"

#define TILE_BF16 OUT_BF16
#define TILE_INLINE
#define TILE_REPEATED
#define TILE_TWINS BACKWARD
#define TILE_SLOTS SWIGLU_SM90_SLOTS(IN_BYTES == 2, OUT_BF16) /* gate and up of the next tile; d_act goes to registers */
#define FETCHES (TILE_SLOTS > 0)
#define GUESSES (AHEAD && !BACKWARD)
#include "tile8.cuh"

/* The thread's square begins there; found anew wherever it is wanted, as thread_index. */
MOII_FN int my_row(void) { return thread_index() / 32 * 16 + thread_index() % 32 / 16 * 8; }
MOII_FN int my_col(void) { return thread_index() % 16 * 8; }

/* ---- reading ---- */

MOII_FN uint4 load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

MOII_FN uint2 load8(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* Eight values of a row of gate_up. */
#if IN_BYTES == 1
typedef uint2 packet;
#elif IN_BYTES == 2
typedef uint4 packet;
#else
typedef struct packet { uint4 low, high; } packet;
#endif

MOII_FN packet load_packet(const char *p)
{
#if IN_BYTES == 1
    return load8(p);
#elif IN_BYTES == 2
    return load16(p);
#else
    packet v;
    v.low = load16(p), v.high = load16(p + 16);
    return v;
#endif
}

MOII_FN line load_gradient(const char *p)
{
#if OUT_BF16
    return load16(p);
#else
    line v;
    v.low = load16(p), v.high = load16(p + 16);
    return v;
#endif
}

/* The scale of eight values, which lie in one block as columns and width are multiples of 8. */
MOII_FN float load_scale(const stored_matrix &m, long long r, long long c)
{
#if IN_BYTES == 1
    const long long b = c / (IN_WIDE ? 128 : 32);
    const long long i = stored_scale_place(m.layout, IN_WIDE, r, b, m.scale_rows, m.blocks);
    return IN_WIDE ? ((const float *)m.scale)[i] : moii_e8m0_decode(((const unsigned char *)m.scale)[i]);
#else
    return 1.0f;
#endif
}

/* ---- values ---- */

MOII_FN void unpack(const packet &v, float scale, float x[8])
{
#if IN_BYTES == 1
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned short two = (unsigned short)((i < 2 ? v.x : v.y) >> 16 * (i % 2));
        unsigned int halves;
        if (IN_ELEM == ELEM_E5M2) asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(two));
        else asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
        float low, high;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(halves));
        x[2 * i] = low * scale, x[2 * i + 1] = high * scale;
    }
#elif IN_BYTES == 2
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned int w = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
        x[2 * i] = moii_float_of(w << 16), x[2 * i + 1] = moii_float_of(w & 0xFFFF0000u);
    }
#else
    x[0] = moii_float_of(v.low.x), x[1] = moii_float_of(v.low.y), x[2] = moii_float_of(v.low.z), x[3] = moii_float_of(v.low.w);
    x[4] = moii_float_of(v.high.x), x[5] = moii_float_of(v.high.y), x[6] = moii_float_of(v.high.z), x[7] = moii_float_of(v.high.w);
#endif
}

MOII_FN line pack(const float x[8])
{
#if OUT_BF16
    unsigned int w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i])); /* NaN: 0x7FFF */
    return make_uint4(w[0], w[1], w[2], w[3]);
#else
    line v;
    v.low = make_uint4(moii_bits_of(x[0]), moii_bits_of(x[1]), moii_bits_of(x[2]), moii_bits_of(x[3]));
    v.high = make_uint4(moii_bits_of(x[4]), moii_bits_of(x[5]), moii_bits_of(x[6]), moii_bits_of(x[7]));
    return v;
#endif
}

/* Larger magnitudes of gates than those in `top`: bits of BF16 pairs (signs are anything), or of FP32. */
MOII_FN unsigned int top_gate(unsigned int top, const packet &v, const float gate[8])
{
#if IN_BYTES == 2
    asm("{.reg .b32 m; max.NaN.xorsign.abs.bf16x2 m, %1, %2; max.NaN.xorsign.abs.bf16x2 %0, %0, m; max.NaN.xorsign.abs.bf16x2 m, %3, %4;"
        " max.NaN.xorsign.abs.bf16x2 %0, %0, m;}" : "+r"(top) : "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
#else
#pragma unroll
    for (int c = 0; c < 8; c++) top = max(top, moii_bits_of(gate[c]) & 0x7FFFFFFFu);
#endif
    return top;
}

MOII_FN bool all_near(unsigned int top)
{
#if IN_BYTES == 2
    top &= 0x7FFF7FFFu;
    return max(top << 16, top) <= (MOII_SILU_NEAR_BITS | 0xFFFFu);
#else
    return top <= MOII_SILU_NEAR_BITS;
#endif
}

/* A row of eight as if its gates were near; *second: backward, d_up. */
MOII_FN line make_row(const packet &g, const packet &u, const line &d, float gate_scale, float up_scale, line *second, unsigned int *top)
{
    float gate[8], up[8], x[8];
    unpack(g, gate_scale, gate);
    unpack(u, up_scale, up);
#if BACKWARD
    float y[8];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        moii_swiglu_grad grad = moii_swiglu_grad_near(gate[c], up[c], value_of(d, c));
        x[c] = grad.gate, y[c] = grad.up;
    }
    *second = pack(y);
#else
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] = moii_swiglu_near(gate[c], up[c]);
#endif
    *top = top_gate(*top, g, gate);
    return pack(x);
}

/* Rows behind a tile's last read it again: either it shares their blocks of columns, or no row does. */
MOII_FN unsigned int row_within(const tile &t, int row) { return min(row, t.rows - 1); }

MOII_FN const char *gate_at(const swiglu_sm90_args &a, const tile &t)
{
    const char *p = (const char *)a.gate_up.data + t.r0 * a.gate_up.stride + (t.c0 + my_col()) * IN_BYTES;
    return (const char *)((unsigned long long)p & (IN_BYTES == 1 ? ~7ULL : ~15ULL)); /* else all is done slowly, and stride is 0 */
}

#if GUESSES
#include "swiglu_guess.cuh"
#endif

MOII_FN float get(const stored_matrix &m, long long r, long long c)
{
    const float v = stored_decode(IN_ELEM, m.data + r * m.stride, c);
    return IN_BYTES == 1 ? v * load_scale(m, r, c) : v;
}

MOII_FN line no_line(void)
{
#if OUT_BF16
    return make_uint4(0, 0, 0, 0);
#else
    line v;
    v.low = v.high = make_uint4(0, 0, 0, 0);
    return v;
#endif
}

/* Value c of a line, which was 0; c need not be a constant, and a loop over words would become an array in local memory. */
MOII_FN void insert(line &to, int c, float v)
{
#if OUT_BF16
    const unsigned int w = moii_bf16_encode(v) << 16 * (c % 2);
    to.x |= c / 2 == 0 ? w : 0, to.y |= c / 2 == 1 ? w : 0, to.z |= c / 2 == 2 ? w : 0, to.w |= c / 2 == 3 ? w : 0;
#else
    const unsigned int w = moii_bits_of(v);
    to.low.x |= c == 0 ? w : 0, to.low.y |= c == 1 ? w : 0, to.low.z |= c == 2 ? w : 0, to.low.w |= c == 3 ? w : 0;
    to.high.x |= c == 4 ? w : 0, to.high.y |= c == 5 ? w : 0, to.high.z |= c == 6 ? w : 0, to.high.w |= c == 7 ? w : 0;
#endif
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

#if AHEAD
/* The gate's row of a square that is fetched next, and how many of the tile come behind it. */
typedef struct source { const char *gate; int left; } source;

MOII_FN source source_of(const swiglu_sm90_args &a, const tile &t)
{
    source s;
    s.gate = gate_at(a, t) + (unsigned long long)row_within(t, my_row()) * a.stride, s.left = t.rows - 1 - my_row();
    return s;
}

/* The next row, gate and up, is fetched as one group; so is one that is not there. */
MOII_FN void fetch_row(const swiglu_sm90_args &a, source &s, int i, bool there)
{
    if (there) {
        fetch16(i, s.gate, 16);
        fetch16(8 + i, s.gate + a.width * IN_BYTES, 16);
        if (i < s.left) s.gate += a.stride;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
}
#endif

MOII_FN void load_gradients(const swiglu_sm90_args &a, const tile &t, line d[8])
{
    const int size = OUT_BF16 ? 2 : 4;
    const char *e = (const char *)a.d_act + (t.r0 * a.width + t.c0 + my_col()) * size;
#pragma unroll
    for (int i = 0; i < 8; i++) d[i] = load_gradient(e + (unsigned long long)row_within(t, my_row() + i) * (unsigned int)(a.width * size));
}

/* A row of a tile of which all is BF16, as if its gates were near.  False (guesses alone): it must be computed again. */
MOII_FN bool make_slot(int i, line *first, line *second, unsigned int *top, unsigned int *least)
{
#if GUESSES
    unsigned int doubt;
    *first = guess_row(slot16(i), slot16(8 + i), top, least, &doubt);
    return doubt == 0;
#elif FETCHES
    *first = make_row(slot16(i), slot16(8 + i), *second, 1.0f, 1.0f, second, top);
#endif
    return true;
}

/* second: backward, it is d_act before and d_up afterwards.  False: it must be done slowly. */
MOII_FN bool make_tile(const swiglu_sm90_args &a, const tile &t, const tile &below_it, line first[8], line second[8])
{
    unsigned int top = 0;
#if AHEAD
    unsigned int again = 0, least = 0x7F7F7F7Fu;
    const bool there = below_it.rows > 0;
    source next = source_of(a, below_it);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        asm volatile("cp.async.wait_group 7;" : : : "memory"); /* eight rows are on their way, or as if */
        if (!make_slot(i, &first[i], &second[i], &top, &least)) again |= 1u << i;
        fetch_row(a, next, i, there);
        if (BACKWARD && i % 2 == 1 && !all_near(top)) { /* asked here, lest more rows are begun than registers hold */
#pragma unroll 1
            for (int k = i + 1; k < 8; k++) fetch_row(a, next, k, there);
            return false;
        }
    }
#if GUESSES
    if (a.stride && all_near(top)) make_again(a, t, first, some_tiny(least) ? 0xFFu : again);
#endif
#elif FETCHES
    fetched();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        make_slot(i, &first[i], &second[i], &top, 0);
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
SWIGLU_ENTRY
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
#if AHEAD
    source from = source_of(a, ways[0].t);
#pragma unroll
    for (int i = 0; i < 8; i++) fetch_row(a, from, i, true);
#else
    fetch_tile(a, ways[0].t);
#endif
    if (BACKWARD && FETCHES) load_gradients(a, ways[0].t, next);
#pragma unroll 1
    for (int now = 0;; now = (now + 1) % 4) {
        const way &below_it = ways[(now + 1) % 4];
        if (!make_tile(a, ways[now].t, below_it.t, v, next)) make_slowly(a, ways[now].t, v, next);
        const bool last = below_it.t.rows == 0;
        if (!last) {
            if (!AHEAD) fetch_tile(a, below_it.t);
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
