/* SPDX-License-Identifier: Apache-2.0
 * convert_folder.h: the parts of a folder's conversion: what comes out, the record of it, the files around the weights. */
#ifndef MOII_CONVERT_FOLDER_H
#define MOII_CONVERT_FOLDER_H

#include <jansson.h>

#include "convert.h"
#include "folder.h"

#define MOII_RECORD "moiety-quantize.json"

/* ---- convert_outputs.c: names and settings of the output, known before any of it is written ---- */

typedef struct moii_outputs {
    json_t *weight_map; /* tensor: file */
    json_t *kept;       /* modules that stay plain */
    int64_t bytes;      /* of all tensors */
} moii_outputs;

/* Goes over all tensors of c->shards; every error of names and shapes shows here.  Sets c->total and the counts of the report. */
moi_status moii_outputs_list(moii_outputs *o, moii_convert *c);
void moii_outputs_free(moii_outputs *o);
/* Writes model.safetensors.index.json; `in` is the input's index, whose other metadata is taken over. */
moi_status moii_outputs_index(const moii_outputs *o, const char *in, const char *path);
/* Writes the input's config.json, otherwise as it is, with quantization_config. */
moi_status moii_outputs_config(const moii_outputs *o, const moii_convert *c, const char *in, const char *path);

/* ---- convert_record.c: what an output folder says of itself ---- */

/* "SIZE-HASH" of a file and its header: ties an output file to its input. */
enum { MOII_SOURCE = 48 };
void moii_source_text(char text[MOII_SOURCE], const moi_st *file);
/* Settings and input, as a new object; NULL without memory. */
json_t *moii_record(const moii_convert *c);
/* Whether OUT may be written: it is empty but for leftovers, which go, or its record has the same settings and input.
 * Errors: ARG (what differs), IO. */
moi_status moii_record_check(const json_t *record, const char *folder);
moi_status moii_record_save(json_t *record, const char *folder, bool complete);

/* ---- convert_copy.c: everything but weights ---- */

/* Copies the regular files that belong to a model, through a buffer of `size` bytes. */
moi_status moii_copy_files(const char *in, const char *out, void *buffer, int64_t size);

#endif
