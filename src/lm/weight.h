/* SPDX-License-Identifier: Apache-2.0
 * weight.h: one weight of a mapped model: its tensors, checked, as an operand of a product. */
#ifndef MOII_WEIGHT_H
#define MOII_WEIGHT_H

#include "mapped.h"

typedef struct moii_module { char text[128]; } moii_module;
/* Prints into m->text and returns it. */
const char *moii_module_name(moii_module *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A linear weight [rows, cols] in the format that the configuration declares.  experts > 0: as many of them in one tensor
 * [experts, rows, cols]; the view is then of the first.  Errors: FORMAT (file, tensor, wanted, got). */
moi_status moii_weight_find(moii_mapped *mapped, const char *module, int64_t experts, int64_t rows, int64_t cols, moii_view *out);
/* Whether there is such a weight with all experts in one tensor. */
bool moii_weight_exists(const moii_mapped *mapped, const char *module);
/* `rows` rows from `first` on, of the matrix that lies `expert` matrices like `v` behind it. */
moii_view moii_weight_part(const moii_view *v, int64_t expert, int64_t first, int64_t rows);
/* Whether the scales of a matrix can be cut at this row. */
bool moii_weight_cuts(const moii_view *v, int64_t row);

/* A matrix in F32, F16 or BF16, never quantised. */
moi_status moii_plain_find(moii_mapped *mapped, const char *name, int64_t rows, int64_t cols, moii_view *out);
/* A vector in F32, F16 or BF16, converted. */
moi_status moii_vector_read(const moii_mapped *mapped, const char *name, int64_t count, float *to);

#endif
