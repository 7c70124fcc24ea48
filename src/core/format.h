/* SPDX-License-Identifier: Apache-2.0
 * format.h: recipes and scale layouts: what a moi_format means in bytes. */
#ifndef MOII_FORMAT_H
#define MOII_FORMAT_H

#include "moiety.h"
#include "status.h"

enum { MOII_MX_BLOCK = 32, MOII_BLK = 128, MOII_ALIGN = 16, MOII_WORKSPACE_ALIGN = 128 };

static inline int64_t moii_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t moii_round_up(int64_t a, int64_t b) { return moii_ceil_div(a, b) * b; }
static inline int64_t moii_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t moii_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* a * b, or -1 where that is negative or does not fit (for sizes that come from outside). */
int64_t moii_mul(int64_t a, int64_t b);

/* Refuses a format that contradicts itself; `where` begins the message ("gemm plan: a"). */
moi_status moii_format_check(const moi_format *format, const char *where);
/* The same for weights beside plain activations, which may be F16 too. */
moi_status moii_format_check_weight(const moi_format *format, const char *where);
/* Refuses a format whose blocks cannot restart at the boundaries of ragged groups. */
moi_status moii_format_check_ragged(const moi_format *format, const char *where);
/* Refuses equal scales (`where`_mx) beyond `most`, or of a result that is not wanted or cannot have them. */
moi_status moii_mx_check(moi_mx_scales mx, moi_mx_scales most, const moi_format *format, bool wanted, const char *where);
/* E8M0 for mx32, F32 for blk128; 0 for plain formats. */
moi_dtype moii_format_scale(const moi_format *format);
static inline bool moii_format_plain(const moi_format *f)
{
    return f->recipe == MOI_RECIPE_F32 || f->recipe == MOI_RECIPE_BF16;
}
/* Scale rows of a matrix with `rows` rows: rows, or ceil(rows / 128) for squares. */
int64_t moii_scale_rows(const moi_format *format, int64_t rows);

/* Checks one operand of a run.  rows x cols as stored, `groups` as moi_scale_blocks; data may be NULL if it is empty. */
moi_status moii_operand_check(const char *where, const moi_format *format, const void *data, const void *scale, int64_t ld,
                              int64_t rows, int64_t cols);
/* The same for weights that lie wherever a file has them: only their elements' alignment is asked for. */
moi_status moii_weight_check(const char *where, const moi_format *format, const void *data, const void *scale, int64_t ld,
                             int64_t rows, int64_t cols);
/* The leading dimension in bytes, 0 meaning dense. */
static inline int64_t moii_ld_bytes(const moi_format *format, int64_t ld, int64_t cols)
{
    return moi_row_bytes(format->elem, ld ? ld : cols);
}
/* Where the codes of ragged group `group` begin in a stored row, `offset` being that of its first row. */
static inline int64_t moii_ragged_start(const moi_format *format, int64_t offset, int64_t group)
{
    int64_t block = moi_format_block(format);
    return block ? block * (offset / block + group) : offset;
}
bool moii_aligned(const void *p, int64_t to);

static inline moi_format moii_plain_format(moi_dtype dtype)
{
    return (moi_format){ .recipe = dtype == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = dtype };
}

#endif
