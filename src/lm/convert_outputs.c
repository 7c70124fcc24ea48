/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert_folder.h"
#include "file_atomic.h"
#include "json_file.h"
#include "status.h"

enum { CONFIG_MAX = 1 << 24, INDEX_MAX = 1 << 28 };

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* ---- the list ---- */

typedef struct listing { moii_outputs *outputs; const char *file; } listing;

/* The module of a plain weight: lists of modules that stay plain name it. */
static moi_status note_kept(moii_outputs *o, const char *name)
{
    size_t n = strlen(name), suffix = strlen(".weight");
    bool packed = ends_in(name, "experts.gate_up_proj") || ends_in(name, "experts.down_proj");
    if (!packed && !ends_in(name, ".weight")) return MOI_OK;
    json_t *module = json_stringn(name, packed ? n : n - suffix);
    MOII_REQUIRE(module && !json_array_append_new(o->kept, module), MOI_ERR_NOMEM, "moi_folder_quantize: no memory");
    return MOI_OK;
}

static moi_status list_part(moii_convert *c, const moii_part *p, void *user)
{
    const listing *l = user;
    moii_outputs *o = l->outputs;
    moii_part_output out[2];
    char shown[MOII_ST_SHOWN];
    int count;
    MOII_TRY(moii_part_outputs(c, p, out, &count));
    for (int i = 0; i < count; i++) {
        MOII_REQUIRE(!json_object_get(o->weight_map, out[i].name), MOI_ERR_FORMAT, "%s: tensor '%s': the output would have two tensors called '%s'",
                     c->call, p->tensor->name, moii_st_show(shown, out[i].name));
        MOII_REQUIRE(!json_object_set_new(o->weight_map, out[i].name, json_string(l->file)), MOI_ERR_NOMEM, "%s: no memory", c->call);
        o->bytes += out[i].bytes;
    }
    c->report.quantized += p->quantized;
    return p->quantized ? MOI_OK : note_kept(o, p->name);
}

/* A weight that we would quantise, in a type that says that somebody did. */
static moi_status check_plain(const moi_tensor *t, const char *file)
{
    char shown[MOII_ST_SHOWN];
    bool linear = ends_in(t->name, "_proj.weight") || ends_in(t->name, "experts.gate_up_proj") || ends_in(t->name, "experts.down_proj");
    bool plain = t->dtype == MOI_F32 || t->dtype == MOI_F16 || t->dtype == MOI_BF16;
    MOII_REQUIRE(!linear || plain, MOI_ERR_FORMAT, "%s: tensor '%s': wanted plain weights (F32, F16 or BF16), got %s", file,
                 moii_st_show(shown, t->name), moi_st_dtype_name(t->dtype));
    return MOI_OK;
}

static bool has_text(const json_t *list, const char *text)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
        if (!strcmp(json_string_value(item), text)) return true;
    return false;
}

moi_status moii_outputs_list(moii_outputs *o, moii_convert *c)
{
    moi_tensor t;
    const char *file;
    *o = (moii_outputs){ .weight_map = json_object(), .kept = json_array() };
    MOII_REQUIRE(o->weight_map && o->kept, MOI_ERR_NOMEM, "%s: no memory", c->call);
    c->report.tensors = moii_shards_count(c->shards);
    for (int64_t i = 0; i < c->report.tensors; i++) {
        moii_shards_get(c->shards, i, &t, &file);
        MOII_TRY(check_plain(&t, file));
        listing l = { o, moii_shards_file_name(c->shards, moii_shards_file_of(c->shards, i)) };
        MOII_TRY(moii_convert_parts(c, &t, list_part, &l));
        c->total += t.bytes;
    }
    /* also where it is tied to the embedding, so that no reader makes it a quantised layer */
    if (!has_text(o->kept, "lm_head")) json_array_append_new(o->kept, json_string("lm_head"));
    return MOI_OK;
}

void moii_outputs_free(moii_outputs *o)
{
    json_decref(o->weight_map);
    json_decref(o->kept);
}

moi_status moii_outputs_index(const moii_outputs *o, const char *in, const char *path)
{
    json_t *index;
    MOII_TRY(moii_json_load(&index, in, INDEX_MAX));
    if (!json_is_object(json_object_get(index, "metadata"))) json_object_set_new(index, "metadata", json_object());
    int bad = json_object_set_new(json_object_get(index, "metadata"), "total_size", json_integer(o->bytes));
    bad |= json_object_set(index, "weight_map", o->weight_map);
    moi_status status = bad ? moii_fail(MOI_ERR_NOMEM, "cannot write %s: no memory", path) : moii_json_save(index, path);
    json_decref(index);
    return status;
}

/* ---- quantization_config ---- */

/* Settings of compressed-tensors for numbers of `bits` bits in blocks of 32. */
static json_t *blocks_of_32(int bits, bool dynamic)
{
    return json_pack("{s:n, s:n, s:b, s:i, s:i, s:n, s:{}, s:s, s:s, s:b, s:s, s:s}", "actorder", "block_structure", "dynamic", (int)dynamic,
                     "group_size", 32, "num_bits", bits, "observer", "observer_kwargs", "scale_dtype", "torch.uint8", "strategy", "group",
                     "symmetric", 1, "type", "float", "zp_dtype", "torch.uint8");
}

static json_t *settings(const moii_outputs *o, moi_file_format format)
{
    if (format == MOI_FILE_FP8_BLOCK)
        return json_pack("{s:s, s:s, s:s, s:[i, i], s:O}", "quant_method", "fp8", "fmt", "e4m3", "activation_scheme", "dynamic",
                         "weight_block_size", 128, 128, "modules_to_not_convert", o->kept);
    const bool eight = format == MOI_FILE_MXFP8;
    const char *name = eight ? "mxfp8-quantized" : "mxfp4-pack-quantized";
    /* with weights of 4 bits activations stay as they are */
    return json_pack("{s:s, s:s, s:s, s:{s:{s:s, s:[s], s:o, s:o, s:n}}, s:O, s:n, s:n}", "quant_method", "compressed-tensors", "format", name,
                     "quantization_status", "compressed", "config_groups", "group_0", "format", name, "targets", "Linear", "weights",
                     blocks_of_32(eight ? 8 : 4, false), "input_activations", eight ? blocks_of_32(8, true) : json_null(), "output_activations",
                     "ignore", o->kept, "kv_cache_scheme", "global_compression_ratio");
}

/* The text of the input with one member more, so that the rest of it stays as somebody wrote it. */
static moi_status insert(const char *text, const json_t *member, char **out)
{
    char *added = json_dumps(member, JSON_INDENT(2));
    const char *end = strrchr(text, '}');
    size_t lines = 0, n = end ? (size_t)(end - text) : 0;
    for (const char *p = added; p && *p; p++) lines += *p == '\n';
    char *to = *out = added ? malloc(n + strlen(added) + 2 * lines + 64) : NULL;
    if (!to || !end) {
        free(added);
        return to ? MOI_OK : moii_fail(MOI_ERR_NOMEM, "moi_folder_quantize: no memory");
    }
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    memcpy(to, text, n);
    to += n;
    to += sprintf(to, "%s\n  \"quantization_config\": ", text[n - 1] == '{' ? "" : ",");
    for (const char *p = added; *p; p++) { /* two spaces further right */
        *to++ = *p;
        if (*p == '\n') *to++ = ' ', *to++ = ' ';
    }
    memcpy(to, "\n}\n", 4);
    free(added);
    return MOI_OK;
}

static moi_status save_text(const char *path, const char *text)
{
    moii_atomic file;
    MOII_TRY(moii_atomic_open(&file, path));
    moi_status status = moii_atomic_write_at(&file, text, (int64_t)strlen(text), 0);
    if (!status) return moii_atomic_commit(&file);
    moii_atomic_cancel(&file);
    return status;
}

moi_status moii_outputs_config(const moii_outputs *o, const moii_convert *c, const char *in, const char *path)
{
    json_t *config, *q = NULL;
    char *text = NULL, *whole = NULL;
    MOII_TRY(moii_json_load(&config, in, CONFIG_MAX));
    moi_status status = (q = settings(o, c->options.format)) ? MOI_OK : moii_fail(MOI_ERR_NOMEM, "cannot write %s: no memory", path);
    if (!status && json_object_get(config, "quantization_config")) { /* null: written anew */
        json_object_set(config, "quantization_config", q);
        status = moii_json_save(config, path);
    } else if (!status) {
        status = moii_text_load(&text, in, CONFIG_MAX);
        if (!status) status = insert(text, q, &whole);
        if (!status) status = save_text(path, whole);
    }
    free(text);
    free(whole);
    json_decref(q);
    json_decref(config);
    return status;
}
