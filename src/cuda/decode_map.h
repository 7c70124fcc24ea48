/* SPDX-License-Identifier: Apache-2.0
 * decode_map.h: tensor maps by which the decode rows send for boxes of weights. */
#ifndef MOII_DECODE_MAP_H
#define MOII_DECODE_MAP_H

#include "gpu.h"
#include "kernels/product_sm90_args.h"

/* Of bytes, up to five dimensions, the first of stride 1; strides: of the others.  Boxes whose lines have 128, 64 or 32 bytes lie swizzled over them.  The
 * driver encodes only where a context is current. */
moi_status moii_decode_map(const moi_plan *plan, product_map *map, const void *data, int rank, const int64_t *sizes, const int64_t *strides,
                           const int *box);

#endif
