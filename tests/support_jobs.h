/* SPDX-License-Identifier: Apache-2.0
 * support_jobs.h: products on Hopper's tensor cores as tests describe, run and check them, against sums in double. */
#ifndef MOIT_SUPPORT_JOBS_H
#define MOIT_SUPPORT_JOBS_H

#include "support_gpu.h"
#include "support_products.h"

enum { MOIT_ALL_PAIRS = 9, MOIT_PAIRS = 8, MOIT_SAME_PAIRS = 6, MOIT_GROUPS = 9, MOIT_MOST_GROUPS = 80, MOIT_DENSE = -1 };

/* Formats of A and B; those of one recipe in front, those that want whole blocks of 32 behind MOIT_PAIRS. */
typedef struct moit_pair { moi_format a, b; } moit_pair;
extern const moit_pair moit_pairs[MOIT_ALL_PAIRS];

typedef struct moit_job {
    bool gpu;
    int grouping;       /* MOIT_DENSE, MOI_GROUP_M, MOI_GROUP_K, MOI_GROUP_MASKED */
    moit_matrix a, b;
    moi_dtype out;
    int64_t ldd;        /* 0: n */
    bool accumulate;
    moi_mx_scales mx;
    int32_t sm_limit;
    bool overlap;
    int runs;           /* behind each other, nothing in between; 0: one */
    int64_t expected, m, n, k, groups, offsets[MOIT_MOST_GROUPS + 1], counts[MOIT_MOST_GROUPS], rows, lines; /* masked: rows of each matrix; no offsets */
    int64_t a_rows;     /* > 0: index names each row's row of A */
    int32_t *index;
    int64_t d_rows;     /* > 0: place names where each row goes, or -1 */
    int32_t *place;
    float *weight;      /* of each row, or NULL */
    moi_plan *plan;
    char kernel[512];   /* its defines */
    float *before;
    void *d;
} moit_job;

static inline int64_t moit_under(moit_rng *rng, int64_t n) { return (int64_t)moit_below(rng, (uint32_t)n); }

/* Bytes of a row of D with what lies behind it. */
int64_t moit_job_line(const moit_job *j);
/* Each group has its own B. */
bool moit_job_experts(const moit_job *j);
/* A test sets formats, sizes, offsets and lists.  Then come operands, the plan with room for D, D before the run, and the run; check gives the
 * largest error as a share of the bound. */
void moit_job_weigh(moit_job *j, moit_rng *rng);
/* The product's rows go to rows of D in no order, some nowhere. */
void moit_job_scatter(moit_job *j, moit_rng *rng);
void moit_job_gather(moit_job *j, moit_rng *rng, int64_t a_rows);
void moit_job_operands(moit_job *j, moit_rng *rng);
void moit_job_plan(moit_job *j, moi_ctx *ctx);
bool moit_job_chose(const moit_job *j, const char *define);
void moit_job_fill(moit_job *j, moit_rng *rng);
void moit_job_run(moit_job *j);
double moit_job_check(const moit_job *j, uint64_t seed);
void moit_job_free_lists(moit_job *j);
void moit_job_close(moit_job *j);
/* Plans a job on the device, which must choose this, runs and checks it, and closes it. */
void moit_job_prove(moit_job *j, const char *chosen, moit_rng *rng, uint64_t seed);

#endif
