/* SPDX-License-Identifier: Apache-2.0
 * product_send.cuh: boxes of D on their way from a warpgroup's room in shared memory, for product_sm90.cuh.
 *
 * SENDS: a warp of the loading warpgroup does it.  To send a box takes its thread some 280 clocks, and all of a warpgroup would wait until it may;
 * so the warpgroup only says that its room is full, and asks whether it is free when it comes again.  Else its warps do, when they have met. */
#ifndef MOII_PRODUCT_SEND_CUH
#define MOII_PRODUCT_SEND_CUH

#define ROOM_ROUNDS ((WAVES * CHUNKS + BOXES - 1) / BOXES) /* times that a tile fills it */

/* Rows of a tile that boxes store: a map knows where D ends, but not where a group's rows do. */
MOII_FN int boxed_rows(const product_args &a, const unit &u)
{
    const bool clipped = GROUPS == PRODUCT_DENSE || GROUPS == PRODUCT_DEPTH;
    return !a.d_boxes || SCATTER || LINES_ALONE ? 0 : clipped ? (u.rows + 63) / 64 * 64 : u.rows / 64 * 64;
}

/* Box i of a warpgroup's tile, which lies at `at`. */
MOII_FN void send_box(const product_args &a, const unit &u, int wg, int i, int boxed, unsigned int at)
{
    const int w = i / CHUNKS, row = wave_row(u, wg, w), col = i % CHUNKS * BOX_COLS;
    if (row < boxed && col < wave_cols(u, w)) box_store(&a.d_map, at, u.col + wave_col(u, wg, w) + col, box_row(u) + row, box_matrix(u));
}

/* Whether tiles leave by way of shared memory. */
MOII_FN bool by_boxes(const product_args &a) { return a.d_boxes || (a.vectors && a.n % 8 == 0); }

MOII_FN unsigned int room_at(const shared &s, int wg) { return s.base + OUT_AT + (unsigned int)wg * (BOXES * BOX_BYTES); }

#define STORE_BARRIER 4 /* and the next ones: a warpgroup's */

#if SENDS
/* A multiplying warp, in front of its 16 rows of the boxes from the `from`-th on of its tile h. */
MOII_FN void room_enter(const shared &s, hand h, int wg, int lane, int from)
{
    if (from > 0) __syncwarp(); /* store_lines may still read */
    barrier_wait(room_free(s, wg), (h * ROOM_ROUNDS + from / BOXES & 1) ^ 1);
}

/* Behind them. */
MOII_FN void room_leave(const product_args &, const shared &s, const unit &, int wg, int warp, int lane, int from, int boxed)
{
    __syncwarp();
    if (lane == 0) barrier_arrive(room_full(s, wg));
}

MOII_FN void send_boxes(const product_args &a, const shared &s, int wg)
{
    hand h = 0;
    unit u;
    unsigned int parity = 0;
    for (; take_card(s, h, &u); return_card(s, &h)) {
        if (!by_boxes(a)) continue;
        const int boxed = boxed_rows(a, u);
#pragma unroll 1
        for (int from = 0; from < WAVES * CHUNKS; from += BOXES, parity ^= 1) {
            barrier_wait(room_full(s, wg), parity);
            if (elected()) {
#pragma unroll 1
                for (int i = from; i < min(from + BOXES, WAVES * CHUNKS); i++) { /* one at a time: stages' copies stand behind it */
                    send_box(a, u, wg, i, boxed, room_at(s, wg) + (i - from) * BOX_BYTES);
                    copies_close();
                    copies_read();
                }
                barrier_arrive(room_free(s, wg));
            }
            __syncwarp();
        }
    }
}
#elif LINES_ALONE
/* Lines leave from a warp's own part of the room. */
MOII_FN void room_enter(const shared &, hand, int, int, int) { __syncwarp(); }
MOII_FN void room_leave(const product_args &, const shared &, const unit &, int, int, int, int, int) { __syncwarp(); }
#else
MOII_FN void room_enter(const shared &s, hand h, int wg, int lane, int from)
{
    if (LONE && from == 0) return; /* nothing has left before */
    if (lane == 0) copies_read();
    threads_meet(STORE_BARRIER + wg, 128);
}

MOII_FN void room_leave(const product_args &a, const shared &s, const unit &u, int wg, int warp, int lane, int from, int boxed)
{
    threads_meet(STORE_BARRIER + wg, 128);
    if (lane == 0 && boxed > 0) {
        for (int i = from + warp; i < min(from + BOXES, WAVES * CHUNKS); i += 4) send_box(a, u, wg, i, boxed, room_at(s, wg) + (i - from) * BOX_BYTES);
        copies_close();
    }
    __syncwarp();
}
#endif

#endif
