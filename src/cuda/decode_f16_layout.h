/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_layout.h: how moe_decode_f16_sm90 cuts a layer into items and slots, and what lies where in shared memory. */
#ifndef MOII_DECODE_F16_LAYOUT_H
#define MOII_DECODE_F16_LAYOUT_H

#include "gpu.h"
#include "kernels/moe_decode_f16_sm90_args.h"

/* The largest layer that it and moe_decode_many_sm90 take. */
enum { MOII_DECODE_F16_EXPERTS = 2048, MOII_DECODE_F16_HIDDEN = 8192, MOII_DECODE_F16_WIDTH = 32768, MOII_DECODE_F16_TOP_K = F16_MOST_SLOTS };

typedef struct moii_decode_device { int sms, memory_gb_s; } moii_decode_device; /* as of moii_gpu */

/* Both passes' arguments, but for the operands, and launches for up to `tokens` (1, 2, 4 or 8) tokens of a layer.  False: blocks of both passes do not fit a
 * multiprocessor together, with all tiles of pass 2's and their sums, by parts or at least by items (args[1].items); then moe_decode_many_sm90 is faster. */
bool moii_decode_f16_layout(const moi_moe_decode_desc *d, int tokens, moii_decode_device on, moe_decode_f16_sm90_args args[2], moii_gpu_launch launch[2]);

/* Pass 2 goes by items (ITEMS) of which moe_decode_many_sm90 is faster, if its pass 2 is one launch. */
bool moii_decode_items_lose(const moe_decode_f16_sm90_args *down, int tokens, int sms, int64_t blocks);

/* The part of it that does not depend on the batch: items, parts, slots, and a pass 2 of as many blocks as have equal shares of its tiles. */
void moii_decode_cut(const moi_moe_decode_desc *d, int tokens, int sms, moe_decode_f16_sm90_args args[2], moii_gpu_launch launch[2]);

/* Each slot has `most` lines; BF16 has no kernels for that. */
bool moii_decode_slots_are_whole(const moe_decode_f16_sm90_args *a, int most);

/* WEIGHTS: which of those that both rows take a layer has. */
int moii_decode_f16_weights(const moi_format *f);

/* Blocks of 32 in the last line of k values. */
int moii_decode_last_blocks(int64_t k, int weights);

/* Experts of a lane where a pass routes for itself: HELD. */
int moii_decode_held(int64_t experts);

/* Lines that a slot of pass 2 has room for: LINES. */
int moii_decode_f16_lines(const moe_decode_f16_sm90_args *down);

/* Reserves shared memory: where it begins; *at: its end. */
int moii_decode_take(int *at, int64_t bytes, int align);

#endif
