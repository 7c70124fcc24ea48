/* SPDX-License-Identifier: Apache-2.0
 * quant_weight.c: where the codes and scales of a weight lie, and whether they are what the configuration promises. */
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "quant_config_types.h"
#include "status.h"

enum { NAME_MAX_BYTES = 512, SHAPE_TEXT = 128 };

/* One stored tensor of a weight. */
typedef struct wanted {
    const char *suffix;
    moi_dtype types[3]; /* any of them */
    int32_t rank;
    int64_t shape[MOI_ST_MAX_RANK];
} wanted;

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

bool moii_quant_config_has(const moii_quant_config *c, const char *weight, moi_format *format)
{
    char module[NAME_MAX_BYTES];
    size_t n = strlen(weight);
    if (c->kind == MOII_QUANT_NONE || n >= sizeof module) return false;
    memcpy(module, weight, n + 1);
    if (ends_in(module, ".weight")) module[n - strlen(".weight")] = '\0';
    if (moii_module_list_has(c->kept, module)) return false;
    if (c->kind == MOII_QUANT_BLOCKS_MXFP4 && !ends_in(module, ".experts.gate_up_proj") && !ends_in(module, ".experts.down_proj")) return false;
    if (c->targets && !c->all_linear && !moii_module_list_has(c->targets, module)) return false;
    if (!format) return true;
    *format = (moi_format){ .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 };
    if (c->kind == MOII_QUANT_FP8_BLOCK) *format = (moi_format){ .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE };
    if (c->kind == MOII_QUANT_CT_MXFP4 || c->kind == MOII_QUANT_BLOCKS_MXFP4) format->elem = MOI_E2M1;
    return true;
}

/* What the convention stores for a weight of this shape. */
static moi_status convention(const moii_quant_config *c, const char *shown, int32_t rank, const int64_t *shape, wanted *codes, wanted *scales)
{
    const bool bytes = c->kind == MOII_QUANT_CT_MXFP4 || c->kind == MOII_QUANT_BLOCKS_MXFP4;
    const int64_t cols = shape[rank - 1];
    *codes = (wanted){ .types = { bytes ? MOI_U8 : MOI_E4M3 }, .suffix = "", .rank = rank };
    *scales = (wanted){ .types = { MOI_U8, MOI_E8M0 }, .suffix = "_scale", .rank = rank };
    for (int32_t i = 0; i < rank; i++) codes->shape[i] = scales->shape[i] = shape[i];
    if (c->kind == MOII_QUANT_FP8_BLOCK) {
        scales->suffix = "_scale_inv";
        scales->types[0] = MOI_F32, scales->types[1] = MOI_BF16;
        scales->shape[rank - 1] = moii_ceil_div(cols, MOII_BLK);
        scales->shape[rank - 2] = moii_ceil_div(shape[rank - 2], MOII_BLK);
        return MOI_OK;
    }
    MOII_REQUIRE(cols % MOII_MX_BLOCK == 0, MOI_ERR_FORMAT, "%s: quantization_config: weight '%s': wanted rows of a multiple of 32, got %lld",
                 c->where, shown, (long long)cols);
    scales->shape[rank - 1] = cols / MOII_MX_BLOCK;
    if (c->kind == MOII_QUANT_CT_MXFP4) {
        codes->suffix = "_packed";
        codes->shape[rank - 1] = cols / 2;
    } else if (c->kind == MOII_QUANT_BLOCKS_MXFP4) {
        codes->suffix = "_blocks", scales->suffix = "_scales";
        codes->shape[rank - 1] = cols / MOII_MX_BLOCK;
        codes->shape[rank] = MOII_MX_BLOCK / 2;
        codes->rank = rank + 1;
    }
    return MOI_OK;
}

static const char *shape_text(char text[SHAPE_TEXT], int32_t rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int32_t i = 0; i < rank && used < SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < SHAPE_TEXT) snprintf(text + used, SHAPE_TEXT - used, "]");
    return text;
}

static moi_status check(const wanted *w, const moi_tensor *t, const char *file)
{
    char shown[MOII_ST_SHOWN], a[SHAPE_TEXT], b[SHAPE_TEXT];
    bool known = false;
    moii_st_show(shown, t->name);
    for (int i = 0; i < 3; i++) known |= w->types[i] && t->dtype == w->types[i];
    const char *other = w->types[1] ? moi_st_dtype_name(w->types[1]) : "", *third = w->types[2] ? moi_st_dtype_name(w->types[2]) : "";
    MOII_REQUIRE(known, MOI_ERR_FORMAT, "%s: tensor '%s': wanted dtype %s%s%s%s%s, got %s", file, shown, moi_st_dtype_name(w->types[0]),
                 *other ? " or " : "", other, *third ? " or " : "", third, moi_st_dtype_name(t->dtype));
    MOII_REQUIRE(t->rank == w->rank && !memcmp(t->shape, w->shape, (size_t)t->rank * sizeof *t->shape), MOI_ERR_FORMAT,
                 "%s: tensor '%s': wanted shape %s, got %s", file, shown, shape_text(a, w->rank, w->shape), shape_text(b, t->rank, t->shape));
    return MOI_OK;
}

static moi_status find(const moii_quant_config *c, const moii_shards *shards, const char *weight, const wanted *w, moi_tensor *out, const char **file)
{
    char name[NAME_MAX_BYTES + 16], shown[MOII_ST_SHOWN];
    int n = snprintf(name, sizeof name, "%.*s%s", NAME_MAX_BYTES, weight, w->suffix);
    MOII_REQUIRE(n > 0 && strlen(weight) < NAME_MAX_BYTES && moii_shards_find(shards, name, out, file), MOI_ERR_FORMAT,
                 "%s: tensor '%s' is missing, which %s of config.json (%s) wants", moii_shards_where(shards), moii_st_show(shown, name),
                 c->kind ? "quantization_config" : "the model", moii_quant_config_name(c));
    return check(w, out, *file);
}

moi_status moii_quant_find(const moii_quant_config *c, const moii_shards *shards, const char *weight, int32_t rank, const int64_t *shape,
                           moii_quant_weight *out)
{
    char shown[MOII_ST_SHOWN];
    wanted codes = { .suffix = "", .types = { MOI_BF16, MOI_F32, MOI_F16 }, .rank = rank }, scales;
    MOII_REQUIRE(rank >= 2 && rank < MOI_ST_MAX_RANK, MOI_ERR_INTERNAL, "weight '%s': rank %d", moii_st_show(shown, weight), (int)rank);
    *out = (moii_quant_weight){ .quantized = false };
    out->quantized = moii_quant_config_has(c, weight, &out->format);
    if (!out->quantized) {
        memcpy(codes.shape, shape, (size_t)rank * sizeof *shape);
        return find(c, shards, weight, &codes, &out->codes, &out->codes_file);
    }
    MOII_TRY(convention(c, moii_st_show(shown, weight), rank, shape, &codes, &scales));
    MOII_TRY(find(c, shards, weight, &codes, &out->codes, &out->codes_file));
    return find(c, shards, weight, &scales, &out->scales, &out->scales_file);
}
