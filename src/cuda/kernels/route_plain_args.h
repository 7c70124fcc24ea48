/* SPDX-License-Identifier: Apache-2.0
 * route_plain_args.h: routing, as the launcher fills it and the kernel reads it. */
#ifndef MOII_ROUTE_PLAIN_ARGS_H
#define MOII_ROUTE_PLAIN_ARGS_H

/* One launch does one of these. */
enum { ROUTE_TOKENS = 0, ROUTE_AUX = 1, ROUTE_SLOPE = 2, ROUTE_BACKWARD = 3 };
enum { ROUTE_HELD_EXPERTS = 1024 }; /* whose slots are counted at a time */

typedef struct route_plain_args {
    const float *logits, *d_weights;
    float *probs, *weights, *aux, *d_logits;
    double *slope; /* [experts]: d aux / d p, and what aux is summed from */
    int *ids;
    long long tokens, experts, top_k;
    float aux_coef;
    int renormalize, step;
} route_plain_args;

#endif
