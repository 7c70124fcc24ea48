/* SPDX-License-Identifier: Apache-2.0
 * rebase_plain.h: rebasing as a second pass, for rows that do not do it in their own. */
#ifndef MOII_REBASE_PLAIN_H
#define MOII_REBASE_PLAIN_H

#include "gpu.h"

extern const moii_kernel moii_rebase_kernel;

/* The row-wise results of a quantisation, or the column-wise ones, in place, as its plan's rowwise_mx or colwise_mx wants them. */
moi_status moii_rebase_quantized_gpu(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_quantize_args *in, bool transposed, moi_stream stream);

#endif
