/* SPDX-License-Identifier: Apache-2.0
 * product_sm90_args.h: a matrix product, dense or grouped, as the launchers fill it and product_sm90.cuh reads it. */
#ifndef MOII_PRODUCT_SM90_ARGS_H
#define MOII_PRODUCT_SM90_ARGS_H

#include "block.h"
#include "product_scales_args.h"

#ifdef __cplusplus
#define PRODUCT_ALIGNED alignas(128)
#else
#define PRODUCT_ALIGNED _Alignas(128)
#endif

/* The define GROUPING: what a tile's rows, and its share of the reduction, are. */
#define PRODUCT_DENSE 0
#define PRODUCT_ROWS 1    /* rows of A and D are cut by offsets, B is the group's */
#define PRODUCT_DEPTH 2   /* the reduction is cut by offsets, D is the group's */
#define PRODUCT_MASKED 3  /* A, B and D are the group's; so many of its rows are there as counts say */

/* The define SCALING. */
#define SCALING_NONE 0    /* plain operands */
#define SCALING_SQUARE 1  /* FP32: A 1x128, B 128x128 */
#define SCALING_VECTOR 2  /* FP32 or E8M0: one per row and 128 of the reduction, for A and for B */
#define SCALING_MX 3      /* E8M0: one per row and 32 */
#define SCALING_ROWS 4    /* E8M0: one per row, applied at the end */

/* The tensor cores' own operands of scales (product_outer.cuh). */
#define OUTER_LINE 16   /* bytes of a row, or column: eight values */
#define OUTER_EIGHT 144 /* from eight rows to the next, so that lanes which have four each write to different banks */
#define OUTER_FAR 128   /* between them, in a stage: not 0 where threads multiply */
#define OUTER_FLOATS(rows) ((rows) / 8 * (OUTER_EIGHT / 4)) /* of so many rows, in a stage */
#define OUTER_ZEROS (16 * OUTER_EIGHT) /* bytes */

/* The defines ELEM_A and ELEM_B: numbers of moi_dtype, for the preprocessor. */
#define PRODUCT_BF16 3
#define PRODUCT_E4M3 4
#define PRODUCT_E5M2 5
#define PRODUCT_E2M1 8

#define WIDEN_ROWS 4           /* WIDENS: of a ticket */
#define WIDEN_CHUNK 128        /* whose tickets are counted together */
#define PRODUCT_STEP_BYTES 128 /* of a row of A or B in one stage */
#define THIN_GROUPS 512        /* thin_sm90, mixed_sm90, halves_sm90: at most */
#define THIN_LISTS (2 * (THIN_GROUPS + 1) * 4) /* thin_units.cuh: bytes */
#define MIXED_SCALES(lines) ((lines) * 5 + 16) /* bytes of a stage: mixed_scales.cuh */
#define THIN_CARDS 4           /* units that warps of mixed_sm90 or halves_sm90 know of at a time */
#define THIN_CARD 48           /* of one: bytes */
#define THIN_ROWS 32           /* of A that come at a time */
#define HALVES_ROWS 16         /* the same of halves_sm90 */
#define MIXED_ROWS(bn) ((bn) % THIN_ROWS ? 16 : THIN_ROWS) /* the same of mixed_sm90 */
#define THIN_ROOM(bn) ((bn) > 128 ? 1024 : 2048) /* of a warp, for what it stores: bytes */

typedef struct product_map { PRODUCT_ALIGNED unsigned long long opaque[16]; } product_map;

typedef struct product_args {
    product_map a_map, b_map;
    product_map part_map;     /* of A as a_map, boxes of 64 rows: tiles that lack some */
    product_map d_map;        /* if d_boxes: BF16 */
    product_scales a_scales, b_scales;
    const long long *offsets; /* groups + 1: PRODUCT_ROWS, PRODUCT_DEPTH; PRODUCT_MASKED: groups counts */
    const void *a;            /* WIDENS: where A's codes lie, bytes between rows */
    long long a_pitch;
    const int *rows_of_d;     /* SCATTER: where the product's rows go, of d_rows */
    const float *row_weight;  /* WEIGHTED */
    const float *row_factor;  /* mixed_sm90, halves_sm90: of each row of A, a power of two */
    int d_rows;
    void *d;
    long long ldd;
    int groups;
    int m, n, k;              /* m: rows of all groups for PRODUCT_ROWS, of each group's matrix for PRODUCT_MASKED */
    int depth_block;          /* PRODUCT_DEPTH: group g's values begin at the (offset / block + g)-th multiple, or, where it is 0, at the offset */
    int n_tiles;              /* of CLUSTER * BN columns, without a strip */
    unsigned int *tickets;    /* DEAL, mixed_sm90, halves_sm90: drawn so far, 0 at first and in the end */
    int units;                /* DEAL, but for PRODUCT_ROWS and PRODUCT_MASKED: all, pieces of those that are cut among them */
    void *wide;               /* WIDENS: A in BF16, dense, which a_map names */
    int *counters;            /* WIDENS: tickets drawn, then for each WIDEN_CHUNK rows those that are done; 0 at first */
    int band;                 /* rows of tiles that are walked together */
    int strip_at;             /* STRIP: the first of its units */
    int cut, pieces;          /* PRODUCT_DENSE: units from `cut` on come in so many pieces, of fewer rows: what is left over for all clusters at once */
    int d_boxes;
    int vectors;              /* rows of D begin at multiples of 16 bytes */
    void *act;                /* SWIGLU: codes, bytes between rows, scales, how they are made */
    long long act_pitch;
    product_scales act_scales;
    moii_block_rule act_rule;
} product_args;

#endif
