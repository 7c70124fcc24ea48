/* SPDX-License-Identifier: Apache-2.0
 * tensors.h: what the commands about checkpoint files share. */
#ifndef TENSORS_H
#define TENSORS_H

#include "moiety_lm.h"

/* The formats of moi_file_format as --format and --error take them. */
#define TENSOR_FORMATS "mxfp8|mxfp4|mxfp6|fp8-block"
moi_file_format tensor_file_format(const char *name);
/* How the library holds a weight of that format. */
moi_format tensor_format(moi_file_format format);
/* Whether moi_checkpoint_quantize would quantise it. */
bool tensor_is_linear(const moi_tensor *t);
/* The name without control characters, which a terminal would obey; shortened to the buffer. */
const char *tensor_shown(char *text, size_t size, const char *name);
/* "[128, 64]" */
const char *tensor_shape(char *text, size_t size, const moi_tensor *t);

#endif
