/* SPDX-License-Identifier: Apache-2.0
 * carve.h: hands out parts of one buffer.  The same list of calls runs twice: with base NULL it adds sizes up, with a base it
 * gives places. */
#ifndef MOII_CARVE_H
#define MOII_CARVE_H

#include "matrix.h"

typedef struct moii_carve { char *base; int64_t used; } moii_carve;

static inline void *moii_carve_take(moii_carve *c, int64_t bytes)
{
    char *p = c->base ? c->base + c->used : NULL;
    c->used += moii_round_up(bytes, MOII_BUFFER_ALIGN);
    return p;
}
static inline float *moii_carve_floats(moii_carve *c, int64_t n) { return moii_carve_take(c, n * 4); }

#endif
