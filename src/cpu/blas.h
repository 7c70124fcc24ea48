/* SPDX-License-Identifier: Apache-2.0
 * blas.h: CBLAS as our threads may call it. */
#ifndef MOII_BLAS_H
#define MOII_BLAS_H

#include <cblas.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>

/* Called by every thread of a team before it calls BLAS: BLAS starts no threads of its own inside a team, except in a team of
 * one, where this thread (and no other) must say so. */
static inline void moii_blas_alone(void)
{
    if (omp_get_num_threads() == 1) omp_set_num_threads(1);
}

/* D [m, n] = A B + (add ? D : 0); ta, tb: A is stored [k, m], B [n, k] */
static inline void moii_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                              bool add, float *d, int64_t ldd)
{
    const CBLAS_TRANSPOSE at = ta ? CblasTrans : CblasNoTrans, bt = tb ? CblasTrans : CblasNoTrans;
    const float beta = add ? 1.0f : 0.0f;
    if (openblas_get_parallel() != OPENBLAS_SEQUENTIAL) {
        cblas_sgemm(CblasRowMajor, at, bt, (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta, d, (int)ldd);
    } else { /* the build of OpenBLAS without threads keeps its buffers without locks */
#pragma omp critical(moii_blas)
        cblas_sgemm(CblasRowMajor, at, bt, (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta, d, (int)ldd);
    }
}

#endif
