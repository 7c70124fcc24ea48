/* SPDX-License-Identifier: Apache-2.0
 * row_list.cuh: rows that a list names. */
#ifndef MOII_ROW_LIST_CUH
#define MOII_ROW_LIST_CUH

#include "num.h"
#include "row_list_args.h"

MOII_FN int listed_row(const row_list &l, int row) { return l.rows ? min(max(__ldg(l.rows + row), 0), l.there - 1) : row; }

/* Of so many rows those that are wanted. */
MOII_FN int listed_rows(const row_list &l, int rows) { return l.rows ? (int)min(max(__ldg(l.end), 0ll), (long long)rows) : rows; }

#endif
