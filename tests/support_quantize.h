/* SPDX-License-Identifier: Apache-2.0
 * support_quantize.h: quantisations as tests describe, run and compare them. */
#ifndef MOIT_SUPPORT_QUANTIZE_H
#define MOIT_SUPPORT_QUANTIZE_H

#include "support_gpu.h"

/* One quantisation: what goes in, and the buffers that come out. */
typedef struct moit_quant {
    moi_dtype in;
    moi_format f[2]; /* row-wise, column-wise */
    uint32_t want;
    int64_t rows, cols, batch, groups, pad; /* pad: elements between the rows of every buffer, in 4-element steps */
    const int64_t *offsets;
    moi_mx_scales mx[2];
    void *x, *data[2], *scale[2];
    int64_t data_bytes[2], scale_bytes[2];
} moit_quant;

/* Of a side: rows as stored, values of each, codes of each, elements between rows (0: dense), bytes. */
int64_t moit_quant_rows(const moit_quant *t, int side);
int64_t moit_quant_cols(const moit_quant *t, int side);
int64_t moit_quant_stored(const moit_quant *t, int side);
int64_t moit_quant_ld(const moit_quant *t, int side);
int64_t moit_quant_row_bytes(const moit_quant *t, int side);

void moit_quant_input(moit_quant *t, uint64_t salt, int nonfinite);
void moit_quant_outputs(moit_quant *t);
/* The outputs. */
void moit_quant_free(moit_quant *t);
/* False where the row, which is not the CPU's, declines the case: that is its right, and tests see that each takes some. */
bool moit_quant_run(const moit_quant *t, const char *row);
void moit_quant_same(const moit_quant *a, const moit_quant *b, int side, const char *what);
/* Every row that takes it gives what the reference has given; its buffers go.  ran, if wanted: counts of 16 rows. */
void moit_quant_rows_agree(moit_quant *ref, int *ran);
/* The same, and the reference's own run before. */
void moit_quant_all_agree(moit_quant *ref, int *ran);

#endif
