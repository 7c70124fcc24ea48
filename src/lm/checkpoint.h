/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.h: a model's tensors in safetensors files, shared by models and trainers. */
#ifndef MOII_CHECKPOINT_H
#define MOII_CHECKPOINT_H

#include "folder.h"
#include "lm.h"

/* Every file that a save may write; a save of a model alone leaves the other two out. */
enum { MOII_FILE_CONFIG, MOII_FILE_MODEL, MOII_FILE_OPTIMIZER, MOII_FILE_TRAINER, MOII_FILES };
extern const char *const moii_file_names[MOII_FILES];

/* Tensor sets of one layout: numbers [sets][params.floats]; set s of tensor NAME is called NAME + suffixes[s]. */
typedef struct moii_tensors {
    const moi_lm *lm;
    int sets;
    const char *suffixes[2];
    float *numbers[2];
} moii_tensors;

/* step >= 0 is noted in the file, so that files of different saves are not taken for one. */
moi_status moii_tensors_save(const moii_tensors *tensors, const char *path, moi_dtype dtype, int64_t step);
/* Every tensor must be there with its shape, and no others; *step is -1 if none is noted. */
moi_status moii_tensors_load(const moii_tensors *tensors, const char *path, int64_t *step);

/* Writes config.json and model.safetensors as NAME.next of a folder that has begun. */
moi_status moii_model_write(const moi_lm *lm, const char *folder, moi_dtype dtype, int64_t step);
moi_status moii_model_read(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options, int64_t *step);

#endif
