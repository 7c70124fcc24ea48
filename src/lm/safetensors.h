/* SPDX-License-Identifier: Apache-2.0
 * safetensors.h: what the parts of src/lm see of safetensors files beyond moiety_lm.h. */
#ifndef MOII_SAFETENSORS_H
#define MOII_SAFETENSORS_H

#include <jansson.h>

#include "moiety_lm.h"

/* Limits.  The format's own is the first; the others keep the memory that a hostile header can ask for in proportion. */
enum { MOII_ST_HEADER_MAX = 100000000, MOII_ST_ENTRY_MAX = 1 << 16, MOII_ST_METADATA_MAX = 1 << 24 };

struct moi_st {
    char *path;
    int fd; /* -1: memory of the caller */
    const unsigned char *bytes;
    int64_t size, data_start;
    moi_tensor *tensors; /* in the order of their data */
    int64_t *by_name;    /* indices, sorted by name */
    int64_t count, capacity;
    json_t *metadata; /* an object of strings, or NULL */
};

/* Opens a file's content, which must outlive the object; `name` stands for the path in messages. */
moi_status moii_st_open_memory(moi_st **out, const char *name, const void *bytes, int64_t size);
/* Copies a part of a tensor without mapping its pages; a file that shrank meanwhile is an IO error, no signal. */
moi_status moii_st_read(const moi_st *file, const moi_tensor *tensor, int64_t offset, void *to, int64_t bytes);
/* The type of a name as the format spells it, 0 if unknown. */
moi_dtype moii_st_dtype(const char *name);
/* Bytes of a tensor, -1 where the product overflows or ends inside a byte. */
int64_t moii_st_bytes(moi_dtype dtype, int32_t rank, const int64_t *shape, int64_t *elements);
/* A name for messages: shortened, and without control characters, which a terminal would obey. */
enum { MOII_ST_SHOWN = 96 };
const char *moii_st_show(char text[MOII_ST_SHOWN], const char *name);

/* Writes at byte `offset` of declared tensor `index`; with this the order is free, and commit counts the bytes. */
moi_status moii_st_writer_write_at(moi_st_writer *writer, int64_t index, const void *data, int64_t bytes, int64_t offset);

#endif
