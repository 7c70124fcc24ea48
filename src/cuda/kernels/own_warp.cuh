/* SPDX-License-Identifier: Apache-2.0
 * own_warp.cuh: the warp's number, which the compiler takes to be the same of all its lanes.
 *
 * As threadIdx.x / 32 it does not: for whatever lanes do together behind a branch on it (shuffles, votes, barriers) it then writes a second form,
 * for warps whose lanes have parted, with a copy of what follows.  That is never run here, but was a quarter of the code, and the more code a kernel has,
 * the slower it starts.  A loop that lanes leave apart does the same to all that follows it: such loops go round as often for all, with a test inside
 * (docs/notes/warp-decode.md). */
#ifndef MOII_OWN_WARP_CUH
#define MOII_OWN_WARP_CUH

#include "num.h"

MOII_FN int own_warp(void) { return __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / 32, 0); }

#endif
