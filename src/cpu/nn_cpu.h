/* SPDX-License-Identifier: Apache-2.0
 * nn_cpu.h: the functions behind moii_nn_cpu, by file. */
#ifndef MOII_NN_CPU_H
#define MOII_NN_CPU_H

#include "nn.h"

/* nn_norm_fast.c */
void moii_cpu_rmsnorm(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, float eps, int64_t ldy, float *y, float *rstd);
void moii_cpu_rmsnorm_backward(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, const float *rstd, int64_t ld_dy,
                               const float *dy, int64_t ld_dx, float *dx, bool add, float *dgain);
void moii_cpu_rope(moi_ctx *ctx, moii_heads xs, float *x, const float *cos_sin, int64_t seq, int64_t past, bool inverse);
/* nn_attention_fast.c */
int64_t moii_cpu_attention_workspace(const moi_ctx *ctx, const moii_attention *a, bool backward);
void moii_cpu_attention(moi_ctx *ctx, const moii_attention *a, void *workspace);
void moii_cpu_attention_backward(moi_ctx *ctx, const moii_attention *a, void *workspace);

#endif
