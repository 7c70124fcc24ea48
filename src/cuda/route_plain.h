/* SPDX-License-Identifier: Apache-2.0
 * route_plain.h: routing as a launch of another row's run. */
#ifndef MOII_ROUTE_PLAIN_H
#define MOII_ROUTE_PLAIN_H

#include "gpu.h"

extern const moii_kernel moii_route_kernel; /* no defines */

/* ids, weights and probs of args; `kernel` is prepared. */
moi_status moii_route_tokens(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_route_desc *desc, const moi_route_args *args, moi_stream stream);

#endif
