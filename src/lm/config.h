/* SPDX-License-Identifier: Apache-2.0
 * config.h: what a model's configuration may be, and its config.json. */
#ifndef MOII_CONFIG_H
#define MOII_CONFIG_H

#include <jansson.h>

#include "moiety_lm.h"

/* Refuses a configuration that contradicts itself or cannot be sized; `where` begins the message. */
moi_status moii_config_check(const moi_lm_config *config, const char *where, moi_status status);
moi_status moii_options_take(moi_lm_options *out, const moi_lm_options *options, const char *where);
/* True if layer l has experts. */
bool moii_config_sparse(const moi_lm_config *config, int64_t layer);

moi_status moii_config_load(moi_lm_config *out, const char *path);
json_t *moii_config_json(const moi_lm_config *config, moi_dtype dtype); /* NULL: no memory */
/* The shortest decimal that is read back as this float. */
json_t *moii_json_float(float x);
/* A required number that is kept as a float. */
moi_status moii_json_get_float(const json_t *object, const char *where, const char *key, int need, double min, double max, float *out);

#endif
