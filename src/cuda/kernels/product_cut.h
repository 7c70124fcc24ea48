/* SPDX-License-Identifier: Apache-2.0
 * product_cut.h: how the last of a product's units are cut, those that would keep a few clusters busy while the others are done: into as many
 * pieces of a tile's rows as clusters can take at once.  The launcher and the kernel (product_units.cuh) ask the same question. */
#ifndef MOII_PRODUCT_CUT_H
#define MOII_PRODUCT_CUT_H

#include "num.h"

#define PRODUCT_UNCUT 0x7FFFFFFF

typedef struct product_cutting { int cut, pieces; } product_cutting; /* units from `cut` on come in so many pieces */

/* rows: of a tile */
MOII_FN product_cutting product_cut_rest(int units, int clusters, int rows)
{
    const int rest = units % clusters, pieces = rest * 4 <= clusters && rows == 256 ? 4 : 2;
    const product_cutting c = { units > clusters && rest > 0 && rest * pieces <= clusters ? units - rest : PRODUCT_UNCUT, pieces };
    return c;
}

#endif
