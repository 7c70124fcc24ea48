/* SPDX-License-Identifier: Apache-2.0
 * ggemm_sm90: moi_ggemm_run on Hopper; product_sm90.cuh says what the defines mean. */
#include "product_sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) ggemm_sm90(const __grid_constant__ product_args a) { product(a); }
