/* SPDX-License-Identifier: Apache-2.0
 * swiglu_ahead_sm90: see swiglu_sm90.cuh. */
#define SWIGLU_KERNEL swiglu_ahead_sm90
#define AHEAD 1
#include "swiglu_sm90.cuh"
