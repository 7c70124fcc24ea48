/* SPDX-License-Identifier: Apache-2.0
 * decode_many_layout.h: how moe_decode_many_sm90 divides shared memory. */
#ifndef MOII_DECODE_MANY_LAYOUT_H
#define MOII_DECODE_MANY_LAYOUT_H

#include "decode_f16_layout.h"

/* Tokens of a launch up to which pass 1 routes them itself; what it routes by: HELD. */
int moii_decode_many_routed(int64_t experts, int64_t top_k);
int moii_decode_many_held(int64_t experts, int64_t top_k, int64_t tokens);

/* Arguments of passes 1 and 2, but for the operands, and launches for up to `tokens` (at most MANY_TOKENS) tokens of a layer that moe_decode_f16_sm90
 * takes; groups: GROUPS.  Pass 2's are those of the first of its launches.  False: so many tokens do not fit. */
bool moii_decode_many_layout(const moi_moe_decode_desc *d, int tokens, int sms, int shared_bytes, moe_decode_f16_sm90_args args[2],
                             moii_gpu_launch launch[3], int *groups);

/* Batches have launches of their own up to 1, 2, 4, ... 32, 48, 64, 96, 128, ... 256, 320, MANY_TOKENS tokens: the size behind this one. */
int moii_decode_next_size(int tokens);

/* Pass 1: a worker has one slot, and there are fewer of them. */
bool moii_decode_many_shallow(const moe_decode_f16_sm90_args *up);

/* How often pass 2 is launched, each time with as many lines of its items as `down` has, or what is left. */
int moii_decode_many_launches(const moi_moe_decode_desc *d, const moe_decode_f16_sm90_args *down);

/* Sums that pass 2 leaves of so many tokens are discarded when pass 3 has read them. */
bool moii_decode_many_discards(const moi_moe_decode_desc *d, int tokens);

#endif
