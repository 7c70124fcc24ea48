/* SPDX-License-Identifier: Apache-2.0
 * generation_config.h: how a model folder wants to be sampled, and the tokens at which its texts end. */
#ifndef GENERATION_CONFIG_H
#define GENERATION_CONFIG_H

#include "buffer.h"

typedef struct generation_config {
    double temperature, top_p; /* below 0: the folder does not say */
    int64_t top_k;             /* below 0: the folder does not say */
    id_list eos;               /* of generation_config.json, else of config.json */
} generation_config;

/* A folder without generation_config.json says nothing.  false after a message: the file is not JSON, or a value is no number
 * or out of range. */
bool generation_config_read(generation_config *g, const char *command, const char *folder);
void generation_config_free(generation_config *g);
bool generation_config_ends(const generation_config *g, int32_t id);

#endif
