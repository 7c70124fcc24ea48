/* SPDX-License-Identifier: Apache-2.0
 * support_folder.h: model folders for tests, and ways to spoil them. */
#ifndef MOIT_SUPPORT_FOLDER_H
#define MOIT_SUPPORT_FOLDER_H

#include <stdint.h>

#include "moiety_lm.h"

typedef struct moit_tensor {
    const char *name;
    moi_dtype dtype;
    int32_t rank;
    int64_t shape[4];
    const char *file; /* of a folder, the shard it goes to; NULL: the single file */
} moit_tensor;

/* A file of these tensors with reproducible values: small normals, any bytes for other types, 120..131 for E8M0 and "_scale". */
void moit_write_tensors(const char *path, const moit_tensor *tensors, int count);
/* Makes the folder `name` inside the test's: its tensors, shard by shard with an index (none for the single file), and its
 * config.json where that is not NULL.  What was there is removed. */
void moit_write_model(const char *name, const moit_tensor *tensors, int count, const char *config);
/* Replaces the first occurrence of `from` in a file (of a .safetensors file: in its header, whose length follows); from NULL:
 * the whole file becomes `to`; to NULL: the file is removed; to of the form "<12": it is cut to 12 bytes. */
void moit_spoil(const char *path, const char *from, const char *to);

#endif
