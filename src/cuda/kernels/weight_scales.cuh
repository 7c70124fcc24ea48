/* SPDX-License-Identifier: Apache-2.0
 * weight_scales.cuh: the warps of mixed_sm90 and halves_sm90 that bring scales of B's rows, four codes of E8M0 of each in a stage.
 *
 *   defines   WORDS  1: four blocks' scales lie in words (product_scales.words), 0: anyhow;  WORDS_AHEAD  stages whose words are on their way at a time
 *   before    put_codes  leaves a row's four codes in a stage;  rows_taken, take_rows, leave_rows  what a unit's rows of A have besides */
#ifndef MOII_WEIGHT_SCALES_CUH
#define MOII_WEIGHT_SCALES_CUH

/* Four codes of a row on their way, of which the first `left` are there: others become 0, as their values are.  Nothing is made of them before they are
 * wanted: who did would wait for them. */
#if WORDS
typedef unsigned int codes_sent;
MOII_FN void send_for_codes(const product_scales &, const unsigned char *from, int left, codes_sent &v)
{
    if (left > 0) v = __ldg((const unsigned int *)from);
}
MOII_FN unsigned int codes_taken(codes_sent v, int left) { return left < 4 ? v & ((1u << 8 * left) - 1) : v; }
#define WORDS_APART(t) words_apart(t)
#else
typedef struct codes_sent { unsigned int code[4]; } codes_sent;
MOII_FN void send_for_codes(const product_scales &t, const unsigned char *from, int left, codes_sent &v)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) v.code[i] = __ldg(from + i * t.block_stride);
}
MOII_FN unsigned int codes_taken(const codes_sent &v, int left)
{
    unsigned int codes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) codes |= v.code[i] << 8 * i;
    return codes;
}
#define WORDS_APART(t) (4 * (int)t.block_stride)
#endif

/* Of 128 rows of B, and half of a unit's rows of A. */
MOII_FN void load_scales(const product_args &a, const group_list &groups, unsigned int base, int part)
{
    enum { EACH = 4, AHEAD = WORDS ? WORDS_AHEAD : 1 }; /* rows of a lane; stages whose scales are on their way at a time */
    ring r = { 0, 0 };
    const int all = units_in_all(groups), first_row = part * (32 * EACH) + (int)threadIdx.x % 32, blocks = a.k / 32, steps = (blocks + 3) / 4;
    const int apart = WORDS_APART(a.b_scales);
    int n = 0;
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x, n++) {
        const unit u = find_unit(a, groups, i);
        const rows_taken rows = take_rows(a, u, part);
        const unsigned char *from[EACH];
        codes_sent v[AHEAD][EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) from[e] = words_of(a.b_scales, u.group, line_of(a, u, first_row + e * 32));
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int e = 0; e < EACH; e++, from[e - 1] += apart) send_for_codes(a.b_scales, from[e], blocks - 4 * j, v[j][e]);
#pragma unroll 1
        for (int first = 0; first < steps; first += AHEAD) {
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int left = blocks - 4 * (first + j);
                if (left <= 0) break;
                barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
                if (first + j == 0) leave_rows(base, n, part, rows);
#pragma unroll
                for (int e = 0; e < EACH; e++, from[e - 1] += apart) {
                    put_codes(base + SCALES_AT + r.stage * SCALES_BYTES + (first_row + e * 32) * SCALES_EACH, codes_taken(v[j][e], left));
                    send_for_codes(a.b_scales, from[e], left - 4 * AHEAD, v[j][e]);
                }
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(base, r.stage));
                ring_step(r);
            }
        }
    }
}

#endif
