/* SPDX-License-Identifier: Apache-2.0
 * view.h: a weight where it lies. */
#ifndef MOII_VIEW_H
#define MOII_VIEW_H

#include "moiety.h"

typedef struct moii_view {
    moi_format format;
    int64_t rows, cols;
    moi_operand at;
    int shape; /* of a mapped model: which of its distinct (format, rows, cols) this is */
} moii_view;

#endif
