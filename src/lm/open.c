/* SPDX-License-Identifier: Apache-2.0
 * open.c: a model whose weights stay in their files. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "folder.h"
#include "mapped.h"
#include "status.h"

void moii_mapped_free(moii_mapped *m)
{
    if (!m) return;
    for (int64_t l = 0; l < m->layer_count; l++) free(m->layers[l].experts), free(m->layers[l].apart);
    for (int i = 0; i < m->copy_count; i++) free(m->copies[i]);
    free(m->copies);
    free(m->layers);
    free(m->shapes);
    moii_quant_config_free(m->quant);
    moii_shards_close(m->shards);
    free(m->folder);
    free(m);
}

/* What this path needs of the sizes: rows of activations in BF16 begin on 16 bytes. */
static moi_status check_sizes(const moi_lm_config *c, const char *path)
{
    const struct { const char *name; int64_t value, unit; } sizes[] = {
        { "hidden_size", c->hidden_size, 8 },
        { "head_dim", c->head_dim, 4 },
        { "num_attention_heads * head_dim", c->num_attention_heads * c->head_dim, 8 },
        { "intermediate_size", c->intermediate_size, 8 },
        { "moe_intermediate_size", c->moe_intermediate_size, 8 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        MOII_REQUIRE(sizes[i].value % sizes[i].unit == 0, MOI_ERR_UNSUPPORTED, "moi_lm_open: %s: %s must be a multiple of %lld, got %lld", path,
                     sizes[i].name, (long long)sizes[i].unit, (long long)sizes[i].value);
    return MOI_OK;
}

static moi_status open_shards(moi_lm *lm, const char *folder)
{
    moii_mapped *m = lm->mapped = calloc(1, sizeof *m);
    MOII_REQUIRE(m && (m->folder = strdup(folder)), MOI_ERR_NOMEM, "moi_lm_open: no memory");
    MOII_TRY(moii_quant_config_load(&m->quant, folder));
    MOII_TRY(moii_shards_open(&m->shards, folder));
    for (int i = 0; i < moii_shards_files(m->shards); i++) m->bytes += moii_shards_file(m->shards, i)->size;
    return moii_check_memory("moi_lm_open", lm, 0);
}

moi_status moi_lm_open(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options)
{
    moi_lm_options o;
    moi_lm_config c;
    moii_path path;
    MOII_REQUIRE(out && ctx && folder, MOI_ERR_ARG, "moi_lm_open: %s is NULL", !out ? "out" : ctx ? "folder" : "ctx");
    *out = NULL;
    MOII_TRY(moii_options_take(&o, options, "moi_lm_open: options"));
    MOII_REQUIRE(o.recipe == MOI_RECIPE_F32 || o.recipe == MOI_RECIPE_BF16, MOI_ERR_UNSUPPORTED,
                 "moi_lm_open: options.recipe says what activations are in, f32 or bf16, got %s; weights are used as the folder has them: "
                 "quantise the folder (moiety quantize), or read it with moi_lm_load", moi_recipe_name(o.recipe));
    MOII_TRY(moii_folder_path(&path, folder, "config.json"));
    MOII_TRY(moii_config_load(&c, path.text));
    MOII_TRY(check_sizes(&c, path.text));
    moi_lm *lm;
    MOII_TRY(moii_lm_begin(&lm, ctx, &c, &o));
    lm->source = &moii_source_mapped;
    moi_status status = open_shards(lm, folder);
    if (!status) status = moii_mapped_find(lm);
    if (status) moi_lm_free(lm);
    else *out = lm;
    return status;
}
