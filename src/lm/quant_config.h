/* SPDX-License-Identifier: Apache-2.0
 * quant_config.h: what "quantization_config" of config.json says of a folder's weights.
 *
 * The format of a weight comes from the configuration alone; types and shapes of the tensors are then checked against it,
 * never used to guess it.  Callers ask for the linear weights of attention and experts; router, norms, embeddings and head
 * are plain in every convention here. */
#ifndef MOII_QUANT_CONFIG_H
#define MOII_QUANT_CONFIG_H

#include <jansson.h>

#include "moiety_lm.h"
#include "shards.h"

typedef enum moii_quant_kind {
    MOII_QUANT_NONE,
    MOII_QUANT_FP8_BLOCK,      /* quant_method fp8: NAME (E4M3) and NAME_scale_inv, one a square of 128 x 128, multiplied */
    MOII_QUANT_MODELOPT_MXFP8, /* quant_method modelopt, quant_algo MXFP8: NAME (E4M3) and NAME_scale (E8M0 in bytes) */
    MOII_QUANT_CT_MXFP8,       /* compressed-tensors, format mxfp8-quantized: the same tensors */
    MOII_QUANT_CT_MXFP4,       /* compressed-tensors, format mxfp4-pack-quantized: NAME_packed and NAME_scale */
    MOII_QUANT_BLOCKS_MXFP4    /* quant_method mxfp4: packed experts as NAME_blocks [.., N, K/32, 16] and NAME_scales [.., N, K/32] */
} moii_quant_kind;

typedef struct moii_quant_config moii_quant_config;

/* Reads config.json of a folder.  No quantization_config, or null, is MOII_QUANT_NONE.  Errors: IO, FORMAT (config.json, the
 * field, wanted, got), NOMEM. */
moi_status moii_quant_config_load(moii_quant_config **out, const char *folder);
/* The same from a parsed config.json; `where` begins messages. */
moi_status moii_quant_config_parse(moii_quant_config **out, const char *where, const json_t *config);
void moii_quant_config_free(moii_quant_config *config);
moii_quant_kind moii_quant_config_kind(const moii_quant_config *config);
/* "fp8", "modelopt MXFP8" and so on, for messages. */
const char *moii_quant_config_name(const moii_quant_config *config);

/* Whether the configuration has this weight quantised, and how.  Names as the model's parameters are called: "X.weight", or
 * "..experts.gate_up_proj" and "..experts.down_proj" for packed experts. */
bool moii_quant_config_has(const moii_quant_config *config, const char *weight, moi_format *format);

typedef struct moii_quant_weight {
    bool quantized;
    moi_format format; /* where quantized */
    moi_tensor codes, scales; /* scales: where quantized.  Otherwise codes are the plain numbers */
    const char *codes_file, *scales_file;
} moii_quant_weight;

/* Finds a linear weight of logical shape [N, K] or [E, N, K] among the tensors of the folder, as the configuration has it stored,
 * and checks types and shapes: codes E4M3 or bytes, scales as the convention has them; a plain weight is F32, F16 or BF16.
 * Errors: FORMAT naming file, tensor, wanted, got. */
moi_status moii_quant_find(const moii_quant_config *config, const moii_shards *shards, const char *weight, int32_t rank,
                           const int64_t *shape, moii_quant_weight *out);

#endif
