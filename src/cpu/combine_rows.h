/* SPDX-License-Identifier: Apache-2.0
 * combine_rows.h: a map that comes from outside must stay inside its rows. */
#ifndef MOII_COMBINE_ROWS_H
#define MOII_COMBINE_ROWS_H

#include "cpu.h"

/* Of slot s of all tokens' slots; -1: it is skipped. */
static inline int64_t moii_combine_row(const moi_combine_args *a, int64_t s) { return a->row_of ? a->row_of[s] : s; }

static inline moi_status moii_combine_check(const moi_permute_desc *d, const moi_combine_args *a)
{
    int64_t rows = a->tokens * d->top_k;
    for (int64_t i = 0; i < rows && a->row_of; i++)
        MOII_REQUIRE(a->row_of[i] >= -1 && a->row_of[i] < rows, MOI_ERR_ARG, "combine run: row_of[%lld] must be -1..%lld, got %d",
                     (long long)i, (long long)rows - 1, a->row_of[i]);
    return MOI_OK;
}

#endif
