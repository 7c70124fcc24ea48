/* SPDX-License-Identifier: Apache-2.0
 * convert.h: quantising the linear weights of checkpoints: what a single file and a folder share.
 *
 * A tensor of the input becomes one or more parts, each with a name of its own in the output: usually itself; packed experts,
 * for folders, become one part for each expert and projection.  A part is copied, or becomes codes and scales. */
#ifndef MOII_CONVERT_H
#define MOII_CONVERT_H

#include "safetensors.h"
#include "shards.h"

typedef struct moii_file_format {
    const char *name; /* in the metadata */
    const char *suffix, *scale_suffix;
    moi_format format;
    moi_dtype type, scale_type; /* as the file declares them */
} moii_file_format;

/* A piece has at most this many elements; see convert_part.c. */
enum { MOII_CONVERT_PIECE = 1 << 20, MOII_CONVERT_NAME = 640 };

typedef struct moii_convert {
    const char *call; /* begins messages */
    moi_ctx *ctx;
    moi_convert_options options;
    const moii_file_format *file_format;
    moi_format format;
    bool folder; /* conventions of folders: only matrices, so packed experts are taken apart */
    moi_convert_report report;
    int64_t done, total; /* bytes of the input */
    unsigned char *source, *codes, *scales;
    moi_plan *plan; /* of plan_desc */
    moi_quantize_desc plan_desc;
    void *workspace;
    /* the file at hand */
    moi_st *in;
    const moii_shards *shards; /* NULL: all tensors of `in` */
    int64_t begin, end;        /* which of the shards' tensors, or of those of `in` */
    moi_st_writer *out;
    int64_t next; /* output tensor that comes next */
} moii_convert;

typedef struct moii_part {
    const moi_tensor *tensor;
    const char *name; /* in the output, without a suffix */
    bool quantized;
    int64_t first;    /* the element of the tensor it begins with */
    int32_t rank;
    int64_t shape[MOI_ST_MAX_RANK];
    int64_t elements;
} moii_part;

/* A tensor that a part becomes. */
typedef struct moii_part_output {
    char name[MOII_CONVERT_NAME];
    moi_dtype dtype;
    int32_t rank;
    int64_t shape[MOI_ST_MAX_RANK];
    int64_t bytes;
} moii_part_output;

/* Checks the arguments that both forms have and gets the buffers; close frees them, whatever happened. */
moi_status moii_convert_open(moii_convert *c, const char *call, moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options);
void moii_convert_close(moii_convert *c);
/* Copies c->report to the caller's, if there is one. */
void moii_convert_publish(const moii_convert *c);

/* Tensor i of the file at hand, begin <= i < end. */
void moii_convert_tensor(const moii_convert *c, int64_t i, moi_tensor *out);
/* Calls `each` for every part of a tensor, in the order of the output. */
typedef moi_status (*moii_part_fn)(moii_convert *c, const moii_part *part, void *user);
moi_status moii_convert_parts(moii_convert *c, const moi_tensor *tensor, moii_part_fn each, void *user);
/* The one or two tensors that a part becomes; *count says how many.  Errors: SHAPE. */
moi_status moii_part_outputs(const moii_convert *c, const moii_part *part, moii_part_output out[2], int *count);
/* Converts the tensors begin..end of c->in into a file that has `source` (may be NULL) as moiety.source in its metadata. */
moi_status moii_convert_file(moii_convert *c, const char *path, const char *source);

/* convert_part.c: the numbers of one part, into the output tensors c->next... */
moi_status moii_convert_part(moii_convert *c, const moii_part *part);

#endif
