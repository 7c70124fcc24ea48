/* SPDX-License-Identifier: Apache-2.0
 * tile8.h: what the launchers of kernels that include tile8.cuh share. */
#ifndef MOII_TILE8_H
#define MOII_TILE8_H

#include "gpu.h"
#include "kernels/tile8_args.h"

enum { MOII_TILE = 128, MOII_TILE_THREADS = 256 };

/* TILE_...; -1: not a format that tile8.cuh makes. */
int moii_tile8_kind(const moi_format *format);
/* rows x cols as stored: of the transposed matrix for the column-wise side. */
tile8_side moii_tile8_side(const moi_format *format, const moi_result *out, int64_t rows, int64_t cols, int64_t groups);
/* How many strips of units * 128 rows there are at most. */
int64_t moii_tile8_strips(int64_t rows, int64_t groups, int64_t units);
/* How many strips a block makes one below the other, where `stripes` columns of tiles stand beside one another and the device has
 * `at_once` blocks at a time: so that all end at about the same time. */
int64_t moii_tile8_depth(int64_t strips, int64_t stripes, int64_t at_once);

/* Numbers below 2^31 divided by n: with 2^s the power of two at or above n, i * ceil(2^(31 + s) / n) >> 31 + s is exact there
 * (Granlund and Montgomery, Division by invariant integers, 1994).  1: magic 0. */
void moii_set_divisor(int64_t n, unsigned int *magic, unsigned int *shift);

#endif
