/* SPDX-License-Identifier: Apache-2.0
 * status.h: the three macros that report errors.  A message names function, argument, rule, value and hint. */
#ifndef MOII_STATUS_H
#define MOII_STATUS_H

#include "moiety.h"

/* Records the message for moi_last_error and returns `status`. */
moi_status moii_fail(moi_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records the message with strerror(errno) behind it. */
moi_status moii_fail_errno(moi_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* if (bad) MOII_FAIL(MOI_ERR_SHAPE, "gemm plan: k must be >= 0, got %lld", (long long)k); */
#define MOII_FAIL(status, ...) return moii_fail((status), __VA_ARGS__)
/* Returns the status of a failing call to the caller. */
#define MOII_TRY(call)                              \
    do {                                            \
        moi_status moii_try_status_ = (call);       \
        if (moii_try_status_) return moii_try_status_; \
    } while (0)
/* Refuses when `condition` does not hold. */
#define MOII_REQUIRE(condition, status, ...)                 \
    do {                                                     \
        if (!(condition)) return moii_fail((status), __VA_ARGS__); \
    } while (0)

#endif
