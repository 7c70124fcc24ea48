/* SPDX-License-Identifier: Apache-2.0
 * support.h: what all tests share: reproducible inputs, contexts, rows, guarded buffers. */
#ifndef MOIT_SUPPORT_H
#define MOIT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "moiety.h"

/* xorshift64*, seeded by a name: the same numbers on every machine. */
typedef struct moit_rng { uint64_t state; } moit_rng;
moit_rng moit_seed(const char *name, uint64_t salt);
uint64_t moit_next(moit_rng *rng);
double moit_uniform(moit_rng *rng);          /* [0, 1) */
float moit_normal(moit_rng *rng);            /* mean 0, deviation 1 */
int64_t moit_below(moit_rng *rng, int64_t n); /* 0..n-1 */
void moit_fill_normal(moit_rng *rng, float *x, int64_t n, float scale);
/* Normals with wide per-element exponents, and zeros, subnormals, saturation edges; with NaN and Inf if nonfinite. */
void moit_fill_nasty(moit_rng *rng, float *x, int64_t n, int nonfinite);

/* Whether to run case `i` of a table: all, or every n-th where MOIT_EVERY=n asks for a selection (compute-sanitizer is slow). */
int moit_picked(uint64_t i);
/* MOIT_PART=i/n in the environment: a test of many cases does every n-th from the i-th on, so that several processes compile kernels at once.  Else
 * 0 of 1. */
int moit_part(int *parts);

/* A context that lives until the test program ends.  reference: only reference rows. */
moi_ctx *moit_ctx(int reference);
/* Rows of one operation that the context's back end has: moit_row(op, i) for i = 0, 1, ... until NULL. */
const char *moit_row(const char *op, int i);

/* A buffer with guard bands: moit_free fails the test if a byte before or behind it was written. */
void *moit_alloc(int64_t bytes);
void moit_free(void *p);
int64_t moit_size(const void *p); /* of a whole buffer */
/* A workspace for the plan (guarded too; NULL where it needs none). */
void *moit_workspace(const moi_plan *plan);

/* The most memory that this process has held so far. */
int64_t moit_peak_bytes(void);
/* Whether a thread sanitizer keeps a shadow of what is touched, so that memory cannot be judged. */
bool moit_shadowed(void);

#define moit_ok(call)                                                                       \
    do {                                                                                    \
        moi_status moit_status_ = (call);                                                   \
        if (moit_status_)                                                                   \
            fail_msg("%s: %s: %s", #call, moi_status_name(moit_status_), moi_last_error()); \
    } while (0)
/* The call must fail with `status` and a message that contains `text`. */
#define moit_refused(call, status, text)                                                                  \
    do {                                                                                                  \
        moi_status moit_status_ = (call);                                                                 \
        if (moit_status_ != (status) || !strstr(moi_last_error(), (text)))                                \
            fail_msg("%s: wanted %s with \"%s\", got %s: %s", #call, moi_status_name(status), (text),     \
                     moi_status_name(moit_status_), moit_status_ ? moi_last_error() : "no error");        \
    } while (0)

#endif
