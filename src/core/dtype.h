/* SPDX-License-Identifier: Apache-2.0
 * dtype.h: the table of number formats.  A format is one row here and one encode/decode pair in num.h. */
#ifndef MOII_DTYPE_H
#define MOII_DTYPE_H

#include "block.h"
#include "moiety.h"
#include "num.h"

typedef struct moii_dtype_info {
    const char *name;
    int bits;
    double max;              /* largest finite magnitude, 0 where it has no meaning */
    moii_scale_rule rule;    /* MX elements */
    bool is_mx_element;
    unsigned int nan_code;   /* what every element of a block with a NaN scale gets */
} moii_dtype_info;

/* Never NULL: an unknown type has bits = 0. */
const moii_dtype_info *moii_dtype(moi_dtype dtype);

/* What the scales of a format's blocks follow. */
static inline moii_block_rule moii_block_rule_of(const moi_format *f)
{
    const moii_dtype_info *elem = moii_dtype(f->elem);
    return (moii_block_rule){ elem->rule, (float)elem->max, (int)f->round, f->recipe == MOI_RECIPE_MX32,
                              (f->flags & MOI_SCALE_POW2) != 0, (f->flags & MOI_NONFINITE_LENIENT) != 0 };
}

/* One code, unpacked: low `bits` bits. */
float moii_code_decode(moi_dtype dtype, unsigned int code);
unsigned int moii_code_encode(moi_dtype dtype, float value);

/* Packed access: code `index` of a row. */
unsigned int moii_code_load(int bits, const void *row, int64_t index);
void moii_code_store(int bits, void *row, int64_t index, unsigned int code);

#endif
