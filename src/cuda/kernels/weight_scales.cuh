/* SPDX-License-Identifier: Apache-2.0
 * weight_scales.cuh: the warps of mixed_sm90 and halves_sm90 that bring scales of B's rows, four codes of E8M0 of each in a stage.
 *
 *   defines   WORDS  1: four blocks' scales lie in words (product_scales.words), 2: two in halves of words, 0: anyhow
 *             WORDS_AHEAD  stages whose words are on their way at a time
 *   before    EACH  rows of a lane, each 32 from the one before;  scales_kept  what is kept of them;  put_codes  leaves four codes of each in a stage
 *             rows_taken, take_rows, leave_rows  what a unit's rows of A have besides */
#ifndef MOII_WEIGHT_SCALES_CUH
#define MOII_WEIGHT_SCALES_CUH

/* Four codes of a row on their way, of which the first `left` are there: others become 0, as their values are.  Nothing is made of them before they are
 * wanted: who did would wait for them. */
#if WORDS == 1
typedef unsigned int codes_piece;
#elif WORDS == 2
typedef unsigned short codes_piece;
#else
typedef unsigned char codes_piece;
#endif
enum { PIECE = sizeof(codes_piece), IN_FOUR = 4 / PIECE };
typedef struct codes_sent { codes_piece piece[IN_FOUR]; } codes_sent;
MOII_FN void send_for_codes(const product_scales &t, const unsigned char *from, int left, codes_sent &v)
{
#pragma unroll
    for (int i = 0; i < IN_FOUR; i++)
        if (i * PIECE < left) v.piece[i] = __ldg((const codes_piece *)(from + (WORDS ? i * PIECE : i * t.block_stride)));
}
MOII_FN unsigned int codes_taken(const codes_sent &v, int left)
{
    unsigned int codes = 0;
#pragma unroll
    for (int i = 0; i < IN_FOUR; i++)
        if (i * PIECE < left) codes |= (unsigned int)v.piece[i] << 8 * PIECE * i;
    return PIECE == 4 && left < 4 ? codes & ((1u << 8 * left) - 1) : codes;
}

/* Of 128 rows of B, and half of a unit's rows of A. */
MOII_FN void load_scales(const product_args &a, const group_list &groups, unsigned int base, int part)
{
    enum { AHEAD = WORDS == 1 ? WORDS_AHEAD : 1 }; /* stages whose scales are on their way at a time */
    ring r = { 0, 0 };
    const int first_row = part * (32 * EACH) + (int)threadIdx.x % 32, blocks = a.k / 32, steps = (blocks + 3) / 4;
    const unsigned int apart = WORDS == 1 ? (unsigned int)words_apart(a.b_scales) : 4 * a.b_scales.block_stride;
    unit u;
#pragma unroll 1
    for (int n = 0; take_unit(a, groups, base, n, &u); return_unit(base, n), n++) {
        const rows_taken rows = take_rows(a, u, part);
        const unsigned char *const scales = (const unsigned char *)a.b_scales.p + u.group * a.b_scales.group_bytes;
        unsigned int from[EACH];
        codes_sent v[AHEAD][EACH];
        scales_kept kept = {};
#pragma unroll
        for (int e = 0; e < EACH; e++) from[e] = word_of(a.b_scales, line_of(a, u, first_row + e * 32));
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int e = 0; e < EACH; e++, from[e - 1] += apart) send_for_codes(a.b_scales, scales + from[e], blocks - 4 * j, v[j][e]);
#pragma unroll 1
        for (int first = 0; first < steps; first += AHEAD) {
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int left = blocks - 4 * (first + j);
                if (left <= 0) break;
                barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
                if (first + j == 0) leave_rows(base, n, part, rows);
                unsigned int codes[EACH];
#pragma unroll
                for (int e = 0; e < EACH; e++, from[e - 1] += apart) {
                    codes[e] = codes_taken(v[j][e], left);
                    send_for_codes(a.b_scales, scales + from[e], left - 4 * AHEAD, v[j][e]);
                }
                put_codes(base + SCALES_AT + r.stage * SCALES_BYTES, part, codes, left, first + j == 0, kept);
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(base, r.stage));
                ring_step(r);
            }
        }
    }
}

#endif
