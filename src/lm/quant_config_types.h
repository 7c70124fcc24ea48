/* SPDX-License-Identifier: Apache-2.0
 * quant_config_types.h: the inside of moii_quant_config, for quant_config.c and quant_weight.c. */
#ifndef MOII_QUANT_CONFIG_TYPES_H
#define MOII_QUANT_CONFIG_TYPES_H

#include "module_list.h"
#include "quant_config.h"

struct moii_quant_config {
    moii_quant_kind kind;
    char *where; /* the path of config.json */
    moii_module_list *kept;    /* modules that stay plain */
    moii_module_list *targets; /* compressed-tensors: modules that are quantised, beside all linear ones if all_linear */
    bool all_linear;
};

#endif
