/* SPDX-License-Identifier: Apache-2.0
 * matrix.h: a matrix in some format inside one buffer: its codes, then its scales. */
#ifndef MOII_MATRIX_H
#define MOII_MATRIX_H

#include "format.h"
#include "moiety.h"

enum { MOII_BUFFER_ALIGN = 128 };

typedef struct moii_matrix { moi_format format; int64_t rows, cols; } moii_matrix;

static inline int64_t moii_matrix_data_bytes(const moii_matrix *m)
{
    return moii_round_up(m->rows * moi_row_bytes(m->format.elem, m->cols), MOII_BUFFER_ALIGN);
}
static inline int64_t moii_matrix_bytes(const moii_matrix *m)
{
    return moii_matrix_data_bytes(m) + moii_round_up(moi_scale_bytes(&m->format, m->rows, m->cols, 0), MOII_BUFFER_ALIGN);
}
static inline moi_operand moii_matrix_operand(const moii_matrix *m, const void *buffer)
{
    if (moii_format_plain(&m->format)) return (moi_operand){ buffer, NULL, 0 };
    return (moi_operand){ buffer, (const char *)buffer + moii_matrix_data_bytes(m), 0 };
}
static inline moi_result moii_matrix_result(const moii_matrix *m, void *buffer)
{
    if (moii_format_plain(&m->format)) return (moi_result){ buffer, NULL, 0 };
    return (moi_result){ buffer, (char *)buffer + moii_matrix_data_bytes(m), 0 };
}

#endif
