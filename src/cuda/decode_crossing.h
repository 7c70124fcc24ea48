/* SPDX-License-Identifier: Apache-2.0
 * decode_crossing.h: from how many tokens grouped products are expected to be faster than the decode rows. */
#ifndef MOII_DECODE_CROSSING_H
#define MOII_DECODE_CROSSING_H

#include "moiety.h"

/* f16: the row is moe_decode_f16_sm90, else that for all weights.  most: tokens of one launch of it, each of which reads the chosen experts' weights. */
int64_t moii_decode_crossing(const moi_moe_decode_desc *d, bool f16, int64_t most);

#endif
