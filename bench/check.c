/* SPDX-License-Identifier: Apache-2.0
 * check.c: whether a product lies within the bound that moiety.h promises. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "bench.h"

double bench_value(moi_dtype dtype, const void *x, int64_t index) { return (double)moi_decode(dtype, x, index); }

void bench_corrupt(const bench *b, moi_dtype dtype, void *x)
{
    if (b->corrupt) ((uint8_t *)x)[(moi_dtype_bits(dtype) + 7) / 8 - 1] ^= 0x40;
}

static double *magnitudes(const double *x, int64_t rows, int64_t cols, int64_t ld)
{
    double *y = bench_alloc(rows * cols * 8);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) y[i * cols + j] = fabs(x[i * ld + j]);
    return y;
}

static void multiply(const double *a, int64_t lda, const double *b, int64_t ldb, int64_t m, int64_t n, int64_t k, double *d)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb, 0.0, d, (int)n);
}

double bench_check_product(const double *a, int64_t lda, const double *b, int64_t ldb, int64_t m, int64_t n, int64_t k, moi_dtype out,
                           const void *d)
{
    double worst = 0;
    if (m == 0 || n == 0) return 0;
    double *exact = bench_alloc(m * n * 8), *sum = bench_alloc(m * n * 8);
    if (k > 0) {
        double *abs_a = magnitudes(a, m, k, lda), *abs_b = magnitudes(b, n, k, ldb);
        multiply(a, lda, b, ldb, m, n, k, exact);
        multiply(abs_a, k, abs_b, k, m, n, k, sum);
        free(abs_a);
        free(abs_b);
    }
    double unit = out == MOI_BF16 ? 0x1p-8 : 0x1p-24; /* half a unit in the last place, relative */
    for (int64_t i = 0; i < m * n; i++) {
        double before = (double)(k + 4) * 0x1p-24 * sum[i]; /* rounding to `out` */
        double bound = before + unit * (fabs(exact[i]) + before) + 0x1p-140;
        double ratio = fabs(bench_value(out, d, i) - exact[i]) / bound;
        if (!(ratio <= worst)) worst = ratio; /* NaN too */
        if (isnan(worst)) break;
    }
    free(exact);
    free(sum);
    return worst;
}
