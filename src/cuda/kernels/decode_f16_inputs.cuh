/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_inputs.cuh: pass 1's inputs are asked for before they may be read; THREADS is the includer's. */
#ifndef MOII_DECODE_F16_INPUTS_CUH
#define MOII_DECODE_F16_INPUTS_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "ptx_sm90.cuh"

/* Asks for what routing and x need to be in L2, each line by one thread of the grid: before it may be read. */
MOII_FN void ask_for(const void *p, long long bytes, int &line)
{
    const int lines = (int)((bytes + 127) / 128), all = (int)(gridDim.x * THREADS);
    for (; line < lines; line += all) line_fetch((const char *)p + (long long)line * 128);
    line -= lines;
}
MOII_FN void ask_for_inputs(const moe_decode_f16_sm90_args &a)
{
    int line = (int)(blockIdx.x + threadIdx.x * gridDim.x);
    if (a.logits) ask_for(a.logits, (long long)a.tokens * a.experts * 4, line);
    else ask_for(a.ids, (long long)a.tokens * a.top_k * 4, line);
    ask_for(a.x, (long long)a.tokens * a.hidden * 2, line);
}

#endif
