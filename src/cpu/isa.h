/* SPDX-License-Identifier: Apache-2.0
 * isa.h: the inner loops that are written once per instruction set.  Each isa_<name>.c is compiled with its own flags and
 * fills one table; isa.c picks the best one that the machine has (or the one MOI_CPU_ISA names). */
#ifndef MOII_ISA_H
#define MOII_ISA_H

#include "dot.h"
#include "moiety.h"
#include "nn.h"

typedef struct moii_isa {
    const char *name;
    bool (*available)(void);
    /* nn_body.h */
    float (*nn_max)(const float *x, int64_t n);
    float (*nn_exp_sum)(float *y, const float *x, float scale, float shift, int64_t n);
    float (*nn_dot)(const float *a, const float *b, int64_t n);
    void (*nn_scale)(float *y, float s, int64_t n);
    void (*nn_softmax_backward)(float *ds, const float *p, const float *dp, float delta, float scale, int64_t n);
    void (*nn_adamw)(float *w, const float *g, float *m, float *v, int64_t n, const moii_adamw *how);
    /* dequant_body.h: `first` is the index of an element that begins a block; block = 0: plain, no scales */
    void (*dequant)(moi_dtype elem, const void *row, int64_t first, int64_t count, int64_t block, const float *scale, float *out);
    const struct moii_quant_loops *quant; /* quantize_loops.h */
    /* swiglu_body.h */
    void (*swiglu)(const float *gate, const float *up, float *act, int64_t n);
    void (*swiglu_backward)(const float *gate, const float *up, const float *d_act, float *d_gate, float *d_up, int64_t n);
    /* dot_body.h */
    moii_dot_kernel dot[MOI_INT8 + 1]; /* by element type */
    void (*dot_scales)(const unsigned char *code, float *scale, int64_t n);
} moii_isa;

extern const moii_isa moii_isa_generic;
#if defined(__x86_64__)
extern const moii_isa moii_isa_avx2;
#endif

/* NULL if `name` is unknown or not available here; "" asks for the best. */
const moii_isa *moii_isa_choose(const char *name);

#endif
