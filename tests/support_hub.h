/* SPDX-License-Identifier: Apache-2.0
 * support_hub.h: model folders as the hub has them: every convention of quantised weights, per-expert or packed names. */
#ifndef MOIT_SUPPORT_HUB_H
#define MOIT_SUPPORT_HUB_H

#include "support_lm.h"

typedef enum moit_convention {
    MOIT_PLAIN,
    MOIT_FP8_BLOCK,
    MOIT_FP8_BLOCK_BF16, /* the same with scales in BF16 */
    MOIT_MODELOPT_MXFP8,
    MOIT_CT_MXFP8,
    MOIT_CT_MXFP4,
    MOIT_BLOCKS_MXFP4,   /* packed experts only; attention stays plain */
    MOIT_CONVENTIONS
} moit_convention;

typedef struct moit_hub {
    moit_convention convention;
    moi_dtype plain;   /* what is not quantised: F32, BF16, F16 */
    bool packed;       /* names of experts */
    bool odd;          /* a tensor of 3 bytes lies before the others: no other is aligned */
    const char *keep;  /* "modules_to_not_convert" and the like: one module that stays plain, or NULL */
} moit_hub;

/* Writes `lm` that way, and gives its masters the very numbers that were written. */
void moit_hub_write(moi_lm *lm, const char *folder, const moit_hub *hub);
const char *moit_hub_name(const moit_hub *hub);

#endif
