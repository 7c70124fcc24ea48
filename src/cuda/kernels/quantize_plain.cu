/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_plain: moi_quantize_run, one direction, any recipe, layout, rounding, grouping; plain CUDA for capability 8.0 and newer.
 * It is written to be right; faster rows come before it in the table.
 *
 *   defines   ELEM: the element type of the result (elem.h)
 *   grid      x: cells, y: rows of scales, z: matrices; any numbers, the blocks walk; 256 threads
 *   team      who shares a block of values: a warp where it is a vector, all 256 threads where it is a 128x128 square
 *   unit      one block of values and its scale, or one of padding, or a stretch of plain elements
 */
#include "elem.cuh"
#include "quantize_plain_args.h"

typedef struct team { int lane, size; } team;
typedef struct place { long long matrix, row, c0, c1; } place; /* row: of the scales */

MOII_FN float value_at(const quantize_plain_args &a, long long matrix, long long r, long long c)
{
    const char *in = (const char *)a.in + matrix * a.in_bytes;
    return elem_load(a.in_type, in, a.transposed ? c * a.in_ld + r : r * a.in_ld + c);
}

MOII_FN unsigned char *row_at(const quantize_plain_args &a, long long matrix, long long r)
{
    return a.data + matrix * a.data_bytes + r * a.data_stride;
}

MOII_FN void put_scale(const quantize_plain_args &a, long long matrix, long long r, long long b, unsigned int bits)
{
    long long i = r * a.blocks + b, last = a.wide ? 3 : 15; /* of 16 bytes of scales */
    if (a.layout == SCALES_TILED) i = ((r / 128) * ((a.blocks + 3) / 4) + b / 4) * 512 + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4;
    if (a.layout == SCALES_COL) i = b * ((a.scale_rows + last) & ~last) + r;
    char *scale = (char *)a.scale + matrix * a.scale_bytes;
    if (a.wide) ((unsigned int *)scale)[i] = bits;
    else ((unsigned char *)scale)[i] = (unsigned char)bits;
}

/* The columns of block b; false where no group owns it.  Group g's first block is offsets[g] / width + g. */
MOII_FN bool locate(const quantize_plain_args &a, long long b, place *p)
{
    long long start = 0, end = a.cols, first = 0;
    if (a.groups) {
        long long low = 0, high = a.groups - 1;
        while (low < high) {
            long long g = (low + high + 1) / 2;
            if ((a.offsets[g] >> a.width_bits) + g <= b) low = g;
            else high = g - 1;
        }
        start = a.offsets[low], end = a.offsets[low + 1], first = (start >> a.width_bits) + low;
    }
    p->c0 = start + (b - first) * a.width;
    p->c1 = p->c0 + a.width < end ? p->c0 + a.width : end;
    return p->c0 < end;
}

MOII_FN unsigned int team_max(team t, unsigned int v)
{
    __shared__ unsigned int warps[8];
    for (int step = 16; step; step /= 2) {
        unsigned int other = __shfl_xor_sync(0xFFFFFFFFu, v, step);
        v = other > v ? other : v;
    }
    if (t.size == 32) return v;
    __syncthreads(); /* the last square's reading is over */
    if (t.lane % 32 == 0) warps[t.lane / 32] = v;
    __syncthreads();
    for (int i = 0; i < 8; i++) v = warps[i] > v ? warps[i] : v;
    return v;
}

MOII_FN unsigned int code_of(const quantize_plain_args &a, moii_block block, float v)
{
    return block.poisoned ? a.nan_code : elem_encode(ELEM, v * block.inverse);
}

/* One byte of a row of 4- or 6-bit codes: the codes that lie in it are computed by whoever writes it. */
MOII_FN unsigned int packed_byte(const quantize_plain_args &a, moii_block block, const place &p, long long r, int byte)
{
    const int bits = elem_bits(ELEM);
    unsigned int out = 0;
    for (int i = 8 * byte / bits; i * bits < 8 * byte + 8 && p.c0 + i < p.c1; i++) {
        unsigned int code = code_of(a, block, value_at(a, p.matrix, r, p.c0 + i));
        int shift = i * bits - 8 * byte;
        out |= shift >= 0 ? code << shift : code >> -shift;
    }
    return out & 0xFFu;
}

/* Of ragged groups: the codes of block b from the first-th on. */
MOII_FN void clear_codes(const quantize_plain_args &a, team t, const place &p, long long b, int first)
{
    if (!a.data) return;
    for (int i = first + t.lane; i < a.width; i += t.size) elem_store(ELEM, row_at(a, p.matrix, p.row), b * a.width + i, 0);
}

/* Codes lie where their scale does. */
MOII_FN void quantize_block(const quantize_plain_args &a, team t, const place &p, long long b)
{
    const int bits = elem_bits(ELEM), width = (int)(p.c1 - p.c0);
    long long r0 = p.row * a.height, r1 = r0 + a.height < a.rows ? r0 + a.height : a.rows;
    int count = (int)(r1 - r0) * width;
    unsigned int amax = 0;
    for (int i = t.lane; i < count; i += t.size)
        amax = moii_block_amax(a.rule.lenient, amax, value_at(a, p.matrix, r0 + i / width, p.c0 + i % width));
    moii_block block = moii_block_make(a.rule, team_max(t, amax));
    if (t.lane == 0) put_scale(a, p.matrix, p.row, b, block.scale);
    if (bits >= 8) {
        for (int i = t.lane; i < count; i += t.size) {
            long long r = r0 + i / width, c = p.c0 + i % width;
            elem_store(ELEM, row_at(a, p.matrix, r), b * a.width + i % width, code_of(a, block, value_at(a, p.matrix, r, c)));
        }
        if (a.groups) clear_codes(a, t, p, b, width);
        return;
    }
    for (int byte = t.lane; byte < (width * bits + 7) / 8; byte += t.size) /* vectors only: r0 is the row */
        row_at(a, p.matrix, r0)[p.c0 * bits / 8 + byte] = (unsigned char)packed_byte(a, block, p, r0, byte);
}

/* Elements without scales; those that no group owns are 0. */
MOII_FN void convert(const quantize_plain_args &a, team t, const place &p)
{
    long long owned = a.groups ? a.offsets[a.groups] : a.cols;
    for (long long c = p.c0 + t.lane; c < p.c1; c += t.size) {
        unsigned int code = c < owned ? elem_encode(ELEM, value_at(a, p.matrix, p.row, c)) : 0;
        elem_store(ELEM, row_at(a, p.matrix, p.row), c, code);
    }
}

MOII_FN void do_unit(const quantize_plain_args &a, team t, place p, long long cell)
{
    const bool there = p.row < a.scale_rows && cell < a.blocks;
    if (!a.scale) {
        p.c0 = cell << a.width_bits;
        p.c1 = p.c0 + a.width < a.cols ? p.c0 + a.width : a.cols;
        if (p.row < a.rows) convert(a, t, p);
    } else if (there && locate(a, cell, &p)) {
        quantize_block(a, t, p, cell);
    } else {
        if (t.lane == 0) put_scale(a, p.matrix, p.row, cell, 0);
        if (there && a.groups) clear_codes(a, t, p, cell, 0);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) quantize_plain(const __grid_constant__ quantize_plain_args a)
{
    const bool square = a.height > 1;
    team t;
    t.size = square ? 256 : 32;
    t.lane = (int)threadIdx.x % t.size;
    const long long teams = 256 / t.size;
    place p;
    for (p.matrix = blockIdx.z; p.matrix < a.batch; p.matrix += gridDim.z)
        for (p.row = blockIdx.y; p.row < a.unit_rows; p.row += gridDim.y)
            for (long long cell = blockIdx.x * teams + threadIdx.x / t.size; cell < a.cells; cell += gridDim.x * teams) do_unit(a, t, p, cell);
}
