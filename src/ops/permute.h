/* SPDX-License-Identifier: Apache-2.0
 * permute.h: permutations and combinations are described alike. */
#ifndef MOII_PERMUTE_H
#define MOII_PERMUTE_H

#include "ctx.h"
#include "format.h"
#include "status.h"

/* Copies and checks a description for `op`, MOII_OP_PERMUTE or MOII_OP_COMBINE. */
moi_status moii_permute_desc_take(moi_permute_desc *d, const moi_permute_desc *desc, moii_op op);

#endif
