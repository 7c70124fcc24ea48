/* SPDX-License-Identifier: Apache-2.0
 * decode_crossing.h: from how many tokens grouped products are expected to be faster than the decode rows. */
#ifndef MOII_DECODE_CROSSING_H
#define MOII_DECODE_CROSSING_H

#include "moiety.h"

/* A launch of moe_decode_f16_sm90 for up to so many tokens; columns of a job; shallow: its workers have a slot each, and there are fewer of them. */
typedef struct moii_decode_launch { int tokens, columns; bool shallow; } moii_decode_launch;

/* Of a row whose launches are these, by tokens: from where experts have so many jobs in the mean that reading weights for each takes longer; one more than the
 * last one takes if nowhere. */
int64_t moii_decode_late(const moi_moe_decode_desc *d, const moii_decode_launch *launch, int launches);

/* f16: the row is moe_decode_f16_sm90, else that for all weights.  most: tokens of one launch of it, each of which reads the chosen experts' weights.
 * late: moii_decode_late; of the row for all weights most + 1. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, bool f16, int64_t most, int64_t late);

#endif
