/* SPDX-License-Identifier: Apache-2.0
 * stored.h: an operand as stored.cuh and its like read it. */
#ifndef MOII_STORED_H
#define MOII_STORED_H

#include "format.h"
#include "kernels/stored_args.h"

/* rows x cols, not grouped. */
stored_matrix moii_stored_of(const moi_format *format, const moi_operand *in, int64_t rows, int64_t cols);

#endif
