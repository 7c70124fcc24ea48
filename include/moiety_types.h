/* SPDX-License-Identifier: Apache-2.0
 *
 * moiety_types.h: what a call answers, and how numbers are written: status, element types, recipes, formats of matrices, their
 * scales in memory.  Part of moiety.h, which says how to use all this; any program may include this file alone.
 */
#ifndef MOIETY_TYPES_H
#define MOIETY_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOI_API __attribute__((visibility("default")))
#else
#define MOI_API
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef enum moi_status {
    MOI_OK = 0,
    MOI_ERR_ARG = 1,         /* an argument is NULL, out of its range, or contradicts another */
    MOI_ERR_SHAPE = 2,       /* a size does not fit the operation or the plan */
    MOI_ERR_ALIGN = 3,       /* a pointer or leading dimension is not aligned as required */
    MOI_ERR_UNSUPPORTED = 4, /* no row supports the description; the message lists each row's reason */
    MOI_ERR_WORKSPACE = 5,   /* the workspace is missing or too small */
    MOI_ERR_NO_DEVICE = 6,
    MOI_ERR_NO_COMPILER = 7,
    MOI_ERR_COMPILE = 8,
    MOI_ERR_DRIVER = 9,
    MOI_ERR_NOMEM = 10,
    MOI_ERR_IO = 11,     /* the operating system refused to read or write; the message has its reason */
    MOI_ERR_FORMAT = 12, /* a file is malformed; the message says where and what was expected */
    MOI_ERR_INTERNAL = 13,
    MOI_ERR_CANCELLED = 14 /* a callback asked to stop */
} moi_status;

/* The message of this thread's last failing call: function, argument, rule, value, hint.  Never NULL; valid until the
 * thread's next failing call. */
MOI_API const char *moi_last_error(void);
/* "MOI_ERR_SHAPE" and so on; "unknown" for any other number. */
MOI_API const char *moi_status_name(moi_status status);
/* "0.1.0" */
MOI_API const char *moi_version(void);

/* ---- number formats, recipes, scale layouts ---------------------------------------------------------------------- */

/* Element types.  Codes of 6 and 4 bits are packed along a row, the first element in the lowest bits (an E2M1 byte
 * holds elements 2i and 2i+1 in its low and high nibble); a row begins on a byte. */
typedef enum moi_dtype {
    MOI_F32 = 1,
    MOI_F16 = 2,
    MOI_BF16 = 3,
    MOI_E4M3 = 4, /* 1-4-3, bias 7, max 448, NaN 0x7F, no infinity ("e4m3fn") */
    MOI_E5M2 = 5, /* 1-5-2, bias 15, max 57344, infinities and NaN */
    MOI_E3M2 = 6, /* 6 bits, bias 3, max 28 */
    MOI_E2M3 = 7, /* 6 bits, bias 1, max 7.5 */
    MOI_E2M1 = 8, /* 4 bits, bias 1, max 6 */
    MOI_INT8 = 9, /* MXINT8: two's complement, value = code / 64; -128 is never written */
    MOI_E8M0 = 10, /* a scale: 2^(code - 127), 0xFF is NaN */
    MOI_F64 = 11,
    MOI_I64 = 12,
    MOI_I32 = 13,
    MOI_I16 = 14,
    MOI_I8 = 15,
    MOI_U8 = 16,
    MOI_BOOL = 17,
    MOI_U16 = 18,
    MOI_U32 = 19,
    MOI_U64 = 20
} moi_dtype;

/* How numbers are scaled. */
typedef enum moi_recipe {
    MOI_RECIPE_F32 = 0,   /* plain FP32: no rounding of operands */
    MOI_RECIPE_BF16 = 1,  /* operands rounded to BF16 */
    MOI_RECIPE_MX32 = 2,  /* OCP MX: 1x32 blocks along the reduction, E8M0 scales; E4M3 E5M2 E3M2 E2M3 E2M1 INT8 */
    MOI_RECIPE_BLK128 = 3 /* 1x128 vectors or 128x128 squares, FP32 scales; E4M3 or E5M2 */
} moi_recipe;

/* Which power of two a 1x32 block gets; a = max |v| of the block, L = largest normal of the element, emax its exponent. */
typedef enum moi_round {
    MOI_ROUND_RCEIL = 0, /* smallest 2^s >= a / L: nothing saturates.  arXiv:2506.08027, the default */
    MOI_ROUND_FLOOR = 1, /* 2^(floor(log2 a) - emax): OCP MX v1.0, 6.3; the largest values may saturate */
    MOI_ROUND_CEIL = 2,  /* 2^(ceil(log2 a) - emax) */
    MOI_ROUND_EVEN = 3   /* FLOOR after rounding a to the element's mantissa (half away from zero) */
} moi_round;

/* Order of the scales in memory.  S[r][b]: row r, block b of nb = blocks per row. */
typedef enum moi_layout {
    MOI_LAYOUT_ROW = 0,      /* S[r][b] at r * nb + b */
    MOI_LAYOUT_TILED = 1,    /* E8M0 only, the 128x4 atoms that tcgen05.mma and cuBLASLt read: byte
                                ((r/128) * ceil(nb/4) + b/4) * 512 + (r%32) * 16 + (r/32%4) * 4 + b%4; padding is 0 */
    MOI_LAYOUT_COL = 2       /* S[r][b] at b * R + r, R = rows rounded up to 16 bytes of scales; padding is 0 */
} moi_layout;

typedef enum moi_block {
    MOI_BLOCK_VECTOR = 0, /* 1x32 (mx32) or 1x128 (blk128) along the reduction */
    MOI_BLOCK_SQUARE = 1  /* 128x128, blk128 weights */
} moi_block;

/* Which E8M0 scales of a row are equal; of a product: those of a and b alike. */
typedef enum moi_mx_scales {
    MOI_MX_FREE = 0,    /* none need be */
    MOI_MX_PER_128 = 1, /* those of each 128 elements: moi_rebase with group 128 */
    MOI_MX_PER_ROW = 2  /* all: moi_rebase with group 0 */
} moi_mx_scales;

enum {
    MOI_SCALE_POW2 = 1,       /* blk128: round the FP32 scale up to a power of two ("ue8m0" checkpoints) */
    MOI_NONFINITE_LENIENT = 2 /* see moi_quantize_run: keep finite values of a block that has NaN or Inf */
};

/* How one matrix is stored.  Plain matrices (recipes F32 and BF16) have no scales and ignore the other fields. */
typedef struct moi_format {
    moi_recipe recipe;
    moi_dtype elem;
    moi_block block;
    moi_round round;
    moi_layout layout;
    uint32_t flags;
} moi_format;

#define MOI_FMT_(r, e, b) { (r), (e), (b), MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#ifndef __cplusplus
#define MOI_FORMAT_F32 ((moi_format)MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BF16 ((moi_format)MOI_FMT_(MOI_RECIPE_BF16, MOI_BF16, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_F16 ((moi_format)MOI_FMT_(MOI_RECIPE_BF16, MOI_F16, MOI_BLOCK_VECTOR)) /* weights beside plain activations only */
#define MOI_FORMAT_MXFP8 ((moi_format)MOI_FMT_(MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_MXFP4 ((moi_format)MOI_FMT_(MOI_RECIPE_MX32, MOI_E2M1, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BLK128_ACT ((moi_format)MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BLK128_WEIGHT ((moi_format)MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE))
#endif

/* Names as users write them ("e4m3", "bf16", "mx32", "rceil"); "?" for other numbers. */
MOI_API const char *moi_dtype_name(moi_dtype dtype);
MOI_API const char *moi_recipe_name(moi_recipe recipe);
MOI_API const char *moi_round_name(moi_round round);
MOI_API const char *moi_layout_name(moi_layout layout);
/* Bits of one element; 0 for an unknown type. */
MOI_API int moi_dtype_bits(moi_dtype dtype);
/* Largest finite magnitude; 0 for types that are not floating-point or MX elements. */
MOI_API double moi_dtype_max(moi_dtype dtype);
/* Bytes of one row of `cols` elements: ceil(cols * bits / 8). */
MOI_API int64_t moi_row_bytes(moi_dtype dtype, int64_t cols);
/* Elements that share one scale along the reduction: 32, 128, or 0 for plain formats. */
MOI_API int64_t moi_format_block(const moi_format *format);
/* Scales per row for a reduction of `cols`: ceil(cols / block), or, where the reduction is cut into `groups` > 0 ragged
 * groups, cols / block + groups: group g, starting at element o, owns blocks from o / block + g, so that no block
 * crosses a group. */
MOI_API int64_t moi_scale_blocks(const moi_format *format, int64_t cols, int64_t groups);
/* Elements of a stored row whose reduction of `cols` is cut into `groups` ragged groups: group g's codes lie with its scales,
 * from element block * (o / block + g) on, in a row of block * moi_scale_blocks(cols, groups); what lies between is 0.
 * `cols` for groups = 0, and for plain formats, whose elements stay packed: group g's begin at o. */
MOI_API int64_t moi_ragged_cols(const moi_format *format, int64_t cols, int64_t groups);
/* Elements from one row to the next of a column-wise result [cols, rows] that memory takes fastest (moi_quantize_run, moi_swiglu_run):
 * moi_ragged_cols(rows, groups) rounded up to 16; from 64 KB on to whole pieces of 256 bytes, and one more where that is a multiple of 4096 bytes, as
 * columns then meet in the same parts of memory: on an H200, 131072 rows of both directions take 2 % less time.  -1 where rows is negative or
 * the size overflows. */
MOI_API int64_t moi_colwise_ld(const moi_format *format, int64_t rows, int64_t groups);
/* Bytes of the scales of a rows x cols matrix in format->layout, padding included; 0 for plain formats, -1 where the
 * format is invalid or the size overflows. */
MOI_API int64_t moi_scale_bytes(const moi_format *format, int64_t rows, int64_t cols, int64_t groups);
/* Element index (not byte) of S[row][block] in the layout; row and block count scales, so for a 128x128 format pass
 * rows / 128.  `rows` and `blocks` are the full extents. */
MOI_API int64_t moi_scale_index(moi_layout layout, moi_dtype scale, int64_t row, int64_t block, int64_t rows, int64_t blocks);

/* Computes  the value of code `index` of a packed row.  Exact for every element type. */
MOI_API float moi_decode(moi_dtype dtype, const void *row, int64_t index);
/* Computes  row[index] = round-to-nearest-even(value), saturating for MX elements; NaN becomes 0x7F for E4M3 and E5M2,
 *           +max for E3M2, E2M3, E2M1 and INT8; infinities saturate for all MX elements. */
MOI_API void moi_encode(moi_dtype dtype, void *row, int64_t index, float value);

#ifdef __cplusplus
}
#endif
#endif
