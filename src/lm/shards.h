/* SPDX-License-Identifier: Apache-2.0
 * shards.h: the weights of a model folder as one list of tensors, whether they lie in one file or in many.
 *
 * A folder has model.safetensors, or model.safetensors.index.json and the files (shards) that it names.  Where both are there
 * the index wins: it is what loaders of the hub's layout ask for first when it exists, and a single file beside it is a leftover.
 * Tensors that a shard has and the index does not are ignored, but no name may be in two shards: which one counts would be luck. */
#ifndef MOII_SHARDS_H
#define MOII_SHARDS_H

#include "safetensors.h"

#define MOII_SHARDS_SINGLE "model.safetensors"
#define MOII_SHARDS_INDEX "model.safetensors.index.json"

typedef struct moii_shards moii_shards;

/* Maps every file and reads the headers, no tensor data.  Errors, in one line that names file, tensor and reason: IO (neither
 * file, a missing shard), FORMAT (the index, a shard, or what one says of the other), NOMEM. */
moi_status moii_shards_open(moii_shards **out, const char *folder);
void moii_shards_close(moii_shards *shards);

/* Tensors in the order of the files' names, within a file in the order of their data.  *file, if asked for, is the path of the
 * file the tensor lies in, for messages.  Everything given out is valid until close. */
int64_t moii_shards_count(const moii_shards *shards);
void moii_shards_get(const moii_shards *shards, int64_t i, moi_tensor *out, const char **file);
/* False, with *out and *file untouched, where there is no such tensor. */
bool moii_shards_find(const moii_shards *shards, const char *name, moi_tensor *out, const char **file);
/* The index for moii_shards_get, -1 where there is no such tensor. */
int64_t moii_shards_index(const moii_shards *shards, const char *name);

/* The path of the index, or of the single file, for messages about tensors that no file has. */
const char *moii_shards_where(const moii_shards *shards);
/* The files, by name.  A file may also have tensors that the index left out. */
int moii_shards_files(const moii_shards *shards);
moi_st *moii_shards_file(const moii_shards *shards, int file);
const char *moii_shards_file_name(const moii_shards *shards, int file); /* without the folder */
int moii_shards_file_of(const moii_shards *shards, int64_t i);          /* which of them tensor i lies in */

#endif
