/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_f16_sm90_args.h: one pass of a small-batch MoE layer with weights of 8 or 4 bits or BF16, as the launcher fills it and the kernel reads it. */
#ifndef MOII_MOE_DECODE_F16_SM90_ARGS_H
#define MOII_MOE_DECODE_F16_SM90_ARGS_H

#include "evict.h"
#include "product_sm90_args.h"

/* Weights: E4M3, E5M2 or E2M1 with 1x32 scales of E8M0, E4M3 with 128x128 scales of FP32, and BF16, which is multiplied as it is. */
#define F16_MX_E4M3 0
#define F16_MX_E5M2 1
#define F16_SQUARES 2
#define F16_BF16 3
#define F16_MXFP4 4

/* Warps: workers multiply; in pass 1 in teams that share an item, which another warp, one for each team, finishes; one more finds weights of a token. */
enum { F16_UP_WORKERS = 8, F16_TEAM = 4, F16_TEAMS = F16_UP_WORKERS / F16_TEAM, F16_UP_WARPS = F16_UP_WORKERS + F16_TEAMS + 1, F16_DOWN_WARPS = 8 };
/* Rows of an item (pass 1: 8 of gate, then 8 of up); values of k in a line, of BF16 half of them; by weights most lines of a slot of either pass. */
enum { F16_ROWS = 16, F16_LINE = 128 };
#define F16_UP_LINES(weights) ((weights) == F16_MXFP4 ? 4 : 2)
#define F16_DOWN_LINES(weights) ((weights) == F16_BF16 ? 2 : 3)
enum { F16_MOST_TOKENS = 8, F16_MOST_SLOTS = 16 };
enum { F16_X_VALUES = 256 }; /* of x, that a worker of pass 1 has in registers at once, a quarter of a column's in each lane */
/* Values of k in a line; bytes of a row in it, and of all; bytes of its columns in shared memory: values of 16 bits, then, but with BF16, factors of pairs of
 * columns. */
#define F16_LINE_VALUES(weights) ((weights) == F16_BF16 ? F16_LINE / 2 : F16_LINE)
#define F16_ROW_BYTES(weights) ((weights) == F16_MXFP4 ? 64 : 128)
#define F16_LINE_BYTES(weights) (F16_ROWS * F16_ROW_BYTES(weights))
/* MXFP4 in whole slots: a row's 128 bytes of two lines are one piece, and come together. */
#define F16_PIECE_LINES(weights, whole) ((weights) == F16_MXFP4 && (whole) ? 2 : 1)
/* Blocks of 32 in a line; words of a row's scales that come with so many lines: where rows are no whole lines, they begin anywhere in a word. */
#define F16_BLOCKS(weights) (F16_LINE_VALUES(weights) / 32)
#define F16_SCALE_WORDS(lines, tail) ((lines) + (tail))
#define F16_KEPT_LINE(weights, columns) (2 * F16_LINE_VALUES(weights) * (columns) + ((weights) == F16_BF16 ? 0 : 32))
/* Bytes of pass 1's sums, two places for each worker, by experts of a lane: routing has the room before. */
#define F16_UP_SUMS(held) ((held) == 4 ? 8192 : 1152 * (held))

/* More tokens, or of larger layers (moe_decode_many_sm90.cu): a job is up to 8, 16, 24 or 32 tokens of one expert.  Pass 1 has three teams, or where these
 * would have a slot for each worker, two.  One warp brings columns. */
enum { MANY_TEAMS = 3, MANY_FEWER_TEAMS = 2 };
#define MANY_UP_WORKERS(teams) ((teams) * F16_TEAM)
#define MANY_UP_WARPS(teams) (MANY_UP_WORKERS(teams) + (teams) + 1)
enum { MANY_GROUPS = 4 }; /* most columns of a job, 8 each */
/* Pass 2's: with 24 columns 8 bits need registers of which 12 warps have more than 13; BF16 has as many, as it was timed. */
#define MANY_DOWN_WORKERS(columns) ((columns) > 2 * F16_MOST_TOKENS ? 11 : 12)
#define MANY_DOWN_WARPS(columns) (MANY_DOWN_WORKERS(columns) + 1)
enum { MANY_SUM_WARPS = 8 };
/* Most tokens of a launch, and pairs: for more, i * inverse_top_k >> 16 would not always be i / top_k. */
enum { MANY_TOKENS = 384, MANY_PAIRS = 4096 };
/* Most lines of a slot of pass 2: of MXFP4 those of two where they are whole, or longer. */
#define MANY_DOWN_LINES(weights, longer) (F16_PIECE_LINES(weights, longer) * F16_DOWN_LINES(weights))
/* Jobs of more columns are better with more tokens than these, and more rows of each expert (few: up to MANY_TOKENS_FOR_16 tokens). */
enum { MANY_TOKENS_FOR_16 = 64, MANY_TOKENS_FOR_16_BF16 = 32, MANY_ROWS_FOR_16 = 4, MANY_ROWS_FOR_16_MXFP4 = 6, MANY_ROWS_FOR_16_FEW = 7 };
enum { MANY_ROWS_FOR_24 = 11, MANY_ROWS_FOR_24_MXFP8 = 12, MANY_ROWS_FOR_32_BF16 = 18 };
/* What a block of pass 2 finds: either half's share and what lies between them, then so many jobs' words of either half. */
enum { MANY_SHARE_JOBS = 3, MANY_SHARE_FIRST = 10, MANY_SHARE_WORDS = 16 };
/* Bytes where pass 1's sums lie: two places for each worker, or of jobs of more columns, which need the room, one; routing has it before them (of three teams
 * and up to 128 experts it needs as much as a place for 16 columns). */
#define MANY_SUM_PLACES(columns) ((columns) > F16_MOST_TOKENS ? 1 : 2)
#define MANY_ROUTING_BYTES(held) ((held) ? 2048 * (held) : 32768)
#define MANY_UP_SUM_BYTES(columns, teams) (MANY_SUM_PLACES(columns) * MANY_UP_WORKERS(teams) * 64 * (columns))
#define MANY_UP_SUMS(held, columns, teams)                                                                                                           \
    (MANY_UP_SUM_BYTES(columns, teams) > MANY_ROUTING_BYTES(held) ? MANY_UP_SUM_BYTES(columns, teams) : MANY_ROUTING_BYTES(held))
/* The same of 8 columns; where there are factors, u's exponents are there first. */
#define MANY_LINE(pass, weights) (F16_KEPT_LINE(weights, F16_MOST_TOKENS) + ((weights) == F16_BF16 || (pass) == 1 ? 0 : 96))

/* How blocks share items: part x of the blocks, the first ones, has items * ((1 - fast) * x + fast * min(x * MANY_FAST, 1)) + min(lead + more * items,
 * MANY_UNEVEN * items) * x * (1 - x) of them. */
#define MANY_UNEVEN 0.4f
#define MANY_FAST 11.0f /* of so many blocks one is taken for being on a fast multiprocessor, of the first ones */
typedef struct many_shares {
    int tiles;                  /* items of a job */
    unsigned int inverse_tiles; /* i / tiles is i * this >> 32 */
    float even, lead, more;     /* 1 / blocks; all blocks together, were each as far ahead as the first one; for each item besides */
    float fast;                 /* the part of all items that fast blocks share alone */
} many_shares;

typedef struct moe_decode_f16_sm90_args {
    product_map map;            /* of the weights */
    unsigned long long policy;  /* by which they stay in L2 */
    unsigned long long kept;    /* and what a pass leaves there for the next one, so that it is not written to memory: sums, u and y; of 8 tokens blank u */
    const unsigned char *scale, *codes; /* all experts' as they lie; codes only for sums that are worked out anew (decode_f16_far.cuh) */
    const unsigned short *x;    /* BF16 [tokens, hidden] */
    unsigned short *u;          /* FP16 [job, columns, width], times a power of two for each 8 values: 2^(exponent - 141); beside BF16 weights BF16 */
    unsigned char *exponent;    /* [job, columns, width / 8], rows exponent_row apart: decode_f16_columns.cuh; beside BF16 it says that u is there */
    void *out;                  /* y [tokens, hidden] */
    const int *ids;             /* [tokens * top_k] */
    const float *weights;       /* the same; pass 2: of routed tokens (logits) blank until pass 1 has found them */
    const float *logits;        /* pass 1: [tokens, experts], or NULL; from them it finds ids_out and weights_out, which are pass 2's ids and weights */
    int *ids_out;
    float *weights_out;
    unsigned int expert_scale_bytes;
    int tokens, top_k, experts;
    int width, hidden, exponent_row;
    int renormalize;
    int out_f32;                /* y is FP32, else BF16 */
    int columns;                /* of x that are kept: 1, 2, 4 or 8; more tokens: of a job, 8 to 32 */
    int tiles;                  /* items of one expert */
    int lines, parts, slot_lines; /* of an item; slots for an item; lines of a slot */
    int ring, slot_bytes;       /* slots of each worker */
    int known_jobs;             /* pass 1, up to 8 tokens, from logits: jobs by which weights are sent for before there are lists */
    int late_turns;             /* pass 1, up to 8 tokens: pass 2 may start when a team has as many items left (lets_in); 0: at once */
    int step_job, step_rest;    /* up to 8 tokens: from a team's item to its next: jobs, and tiles of a job; pass 2: from a worker's unit: jobs, and parts */
    int block_tiles;            /* pass 2, up to 8 tokens: tiles of a block */
    int step_number;            /* pass 2, up to 8 tokens: tiles of a block from a worker's unit to its next */
    int items;                  /* pass 2, up to 8 tokens, for the launcher: a kernel's ITEMS; steps are from a worker's item to its next */
    int scale_row;              /* bytes of scales of a row, or of 128 rows: as many */
    unsigned int inverse_top_k; /* i / top_k is i * this >> 16 */
    int most_jobs;
    int first_slots;            /* pass 2, up to 8 tokens: slots of a worker that it sends for before it has u */
    /* where things lie in shared memory; the ring at 0 */
    int at_scales, at_columns, at_sums, at_barriers, at_ids, at_weights, at_first, at_expert, at_column, at_job;
    int *jobs_left;             /* by pass 1 for pass 2, of each job its expert, and their number at most_jobs; more tokens: columns << 16 with it, no number */
    /* more tokens alone */
    int *shares_left;           /* of each block of pass 2 what it does of either half (decode_many_lists.cuh), and their first jobs' words */
    short *pairs_left;          /* [job, columns]: pairs, -1 behind them */
    float *sums;                /* [pair, hidden]: by pass 2 for pass 3 */
    int discards;               /* pass 3: sums that are read leave L2 and need not be written to memory */
    int before;                 /* pass 2: lines before these, whose sums are there: a launch behind the first (decode_many_down.cuh) */
    int buffers;                /* jobs whose columns have room */
    int likely;                 /* pass 1: slots of each worker that are asked for before jobs are known */
    many_shares shares, down_shares; /* of pass 1's blocks, and pass 2's */
    int token_words;            /* 32 tokens each */
    int at_kept, at_scratch, at_share, at_tokens;
    /* of few tokens, too */
    int format, tail, whole;    /* for the launcher: a kernel's WEIGHTS; 1: rows are no whole lines, its TAIL; its WHOLE */
    int last_blocks;            /* of 32 values, in the last line */
    /* pass 1 of more tokens, MXFP8 in whole slots */
    int scale_rooms, scale_box; /* items of a team whose scales have room; bytes of a row in a box */
    int teams;                  /* more tokens, for the launcher: MANY_TEAMS, or of pass 1 MANY_FEWER_TEAMS, a kernel's FEWER */
    int shifts;                 /* pass 1: 1: a team's warps change places from item to item (MAY_SHIFT); else 0 */
    int longer;                 /* pass 2, for the launcher: a kernel's LONGER */
    product_map scale_map;      /* of scales that come by boxes */
    product_map whole_map;      /* where rows are no whole lines, of those lines of the weights that are */
} moe_decode_f16_sm90_args;

#endif
