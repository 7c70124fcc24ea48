/* SPDX-License-Identifier: Apache-2.0
 * fuzz_quant.c: any bytes as config.json: an error with a message of one line, or settings that answer for every weight. */
#include <stdint.h>
#include <string.h>

#include "json_file.h"
#include "quant_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const weights[] = { "", ".", "lm_head.weight",
                                           "model.layers.3.mlp.experts.17.gate_proj.weight", "model.layers.3.mlp.experts.down_proj" };
    json_t *o;
    moii_quant_config *c;
    if (moii_json_parse(&o, "config.json", data, (int64_t)size)) return 0;
    moi_status status = moii_quant_config_parse(&c, "config.json", o);
    require((status == MOI_OK) == (c != NULL));
    if (status) require(status == MOI_ERR_FORMAT && strstr(moi_last_error(), "config.json") && !strchr(moi_last_error(), '\n'));
    for (size_t i = 0; c && i < sizeof weights / sizeof *weights; i++) {
        moi_format f = { 0 };
        if (moii_quant_config_has(c, weights[i], &f)) require(f.recipe == MOI_RECIPE_MX32 || f.recipe == MOI_RECIPE_BLK128);
    }
    moii_quant_config_free(c);
    json_decref(o);
    return 0;
}
