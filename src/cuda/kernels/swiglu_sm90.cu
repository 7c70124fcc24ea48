/* SPDX-License-Identifier: Apache-2.0
 * swiglu_sm90: see swiglu_sm90.cuh. */
#define AHEAD 0
#define SWIGLU_ENTRY \
    extern "C" __global__ void __launch_bounds__(256, FEW_REGISTERS ? 2 : 1) swiglu_sm90(const __grid_constant__ swiglu_sm90_args a)
#include "swiglu_sm90.cuh"
