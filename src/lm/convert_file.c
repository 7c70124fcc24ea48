/* SPDX-License-Identifier: Apache-2.0
 * convert_file.c: which tensors of a file are quantised, under which names, and one file from begin to end. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "format.h"
#include "status.h"

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Whether one of the comma-separated pieces of `list` is part of the name. */
static bool listed(const char *list, const char *name)
{
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        for (const char *at = name; n && *at; at++)
            if (!strncmp(at, p, n)) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static bool is_packed(const char *name) { return ends_in(name, "experts.gate_up_proj") || ends_in(name, "experts.down_proj"); }

static bool is_linear(const moii_convert *c, const moi_tensor *t)
{
    if (!ends_in(t->name, "_proj.weight") && !is_packed(t->name)) return false;
    if (t->rank < 2 || (t->dtype != MOI_F32 && t->dtype != MOI_F16 && t->dtype != MOI_BF16)) return false;
    return !listed(c->options.keep, t->name);
}

void moii_convert_tensor(const moii_convert *c, int64_t i, moi_tensor *out)
{
    if (c->shards) moii_shards_get(c->shards, i, out, NULL);
    else *out = c->in->tensors[i];
}

/* Packed experts [E, rows, cols] as matrices: "X.experts.gate_up_proj" holds each expert's gate rows, then its up rows. */
static moi_status parts_of_experts(moii_convert *c, const moi_tensor *t, moii_part_fn each, void *user)
{
    char name[MOII_CONVERT_NAME], shown[MOII_ST_SHOWN];
    const bool both = ends_in(t->name, "gate_up_proj");
    static const char *const projections[] = { "gate_proj", "up_proj", "down_proj" };
    const int first = both ? 0 : 2, last = both ? 1 : 2;
    const int prefix = (int)(strlen(t->name) - strlen(both ? "gate_up_proj" : "down_proj"));
    MOII_REQUIRE(t->rank == 3 && (!both || t->shape[1] % 2 == 0), MOI_ERR_SHAPE, "%s: tensor '%s': wanted packed experts of shape [experts, %s, columns]",
                 c->call, moii_st_show(shown, t->name), both ? "2 * rows" : "rows");
    moii_part p = { .tensor = t, .name = name, .quantized = true, .rank = 2, .shape = { both ? t->shape[1] / 2 : t->shape[1], t->shape[2] } };
    p.elements = p.shape[0] * p.shape[1];
    for (int64_t e = 0; e < t->shape[0]; e++)
        for (int k = first; k <= last; k++) {
            int n = snprintf(name, sizeof name, "%.*s%lld.%s.weight", prefix, t->name, (long long)e, projections[k]);
            MOII_REQUIRE(n > 0 && (size_t)n < sizeof name - 16, MOI_ERR_FORMAT, "%s: tensor '%s': its name is too long", c->call, moii_st_show(shown, t->name));
            MOII_TRY(each(c, &p, user));
            p.first += p.elements;
        }
    return MOI_OK;
}

moi_status moii_convert_parts(moii_convert *c, const moi_tensor *t, moii_part_fn each, void *user)
{
    char shown[MOII_ST_SHOWN];
    moii_part p = { .tensor = t, .name = t->name, .quantized = is_linear(c, t), .rank = t->rank, .elements = t->elements };
    MOII_REQUIRE(strlen(t->name) < MOII_CONVERT_NAME - 16, MOI_ERR_FORMAT, "%s: tensor '%s': its name is too long", c->call, moii_st_show(shown, t->name));
    if (c->folder && p.quantized) {
        if (is_packed(t->name)) return parts_of_experts(c, t, each, user);
        MOII_REQUIRE(t->rank == 2, MOI_ERR_SHAPE, "%s: tensor '%s': wanted 2 dimensions, got %d; name it in `keep`", c->call,
                     moii_st_show(shown, t->name), (int)t->rank);
    }
    memcpy(p.shape, t->shape, sizeof p.shape);
    return each(c, &p, user);
}

moi_status moii_part_outputs(const moii_convert *c, const moii_part *p, moii_part_output out[2], int *count)
{
    const moii_file_format *f = c->file_format;
    char shown[MOII_ST_SHOWN];
    int64_t cols = p->rank ? p->shape[p->rank - 1] : 0, elements;
    *count = p->quantized ? 2 : 1;
    for (int i = 0; i < *count; i++) {
        out[i].dtype = !p->quantized ? p->tensor->dtype : i ? f->scale_type : f->type;
        out[i].rank = p->rank;
        memcpy(out[i].shape, p->shape, sizeof p->shape);
        snprintf(out[i].name, sizeof out[i].name, "%s%s", p->name, !p->quantized ? "" : i ? f->scale_suffix : f->suffix);
    }
    if (p->quantized) {
        MOII_REQUIRE(f->format.recipe != MOI_RECIPE_MX32 || cols % MOII_MX_BLOCK == 0, MOI_ERR_SHAPE,
                     "%s: tensor '%s': %s needs a last dimension that is a multiple of 32, got %lld; name it in `keep`", c->call,
                     moii_st_show(shown, p->tensor->name), f->name, (long long)cols);
        out[0].shape[p->rank - 1] = moi_row_bytes(f->format.elem, cols);
        out[1].shape[p->rank - 1] = moi_scale_blocks(&f->format, cols, 0);
        out[1].shape[p->rank - 2] = moii_scale_rows(&f->format, p->shape[p->rank - 2]);
    }
    for (int i = 0; i < *count; i++) out[i].bytes = moii_st_bytes(out[i].dtype, out[i].rank, out[i].shape, &elements);
    return MOI_OK;
}

static moi_status declare(moii_convert *c, const moii_part *p, void *user)
{
    moii_part_output out[2];
    int count;
    (void)user;
    MOII_TRY(moii_part_outputs(c, p, out, &count));
    for (int i = 0; i < count; i++) MOII_TRY(moi_st_writer_declare(c->out, out[i].name, out[i].dtype, out[i].rank, out[i].shape));
    return MOI_OK;
}

static moi_status convert(moii_convert *c, const moii_part *p, void *user)
{
    (void)user;
    return moii_convert_part(c, p);
}

static moi_status over_tensors(moii_convert *c, moii_part_fn each)
{
    moi_tensor t;
    for (int64_t i = c->begin; i < c->end; i++) {
        moii_convert_tensor(c, i, &t);
        MOII_TRY(moii_convert_parts(c, &t, each, NULL));
    }
    return MOI_OK;
}

static moi_status declare_all(moii_convert *c, const char *source)
{
    const char *key;
    json_t *value;
    json_object_foreach(c->in->metadata, key, value) MOII_TRY(moi_st_writer_metadata(c->out, key, json_string_value(value)));
    MOII_TRY(moi_st_writer_metadata(c->out, "moiety.format", c->file_format->name));
    if (c->format.recipe == MOI_RECIPE_MX32) MOII_TRY(moi_st_writer_metadata(c->out, "moiety.round", moi_round_name(c->format.round)));
    if (source) MOII_TRY(moi_st_writer_metadata(c->out, "moiety.source", source));
    return over_tensors(c, declare);
}

moi_status moii_convert_file(moii_convert *c, const char *path, const char *source)
{
    MOII_TRY(moi_st_writer_create(&c->out, path));
    c->next = 0;
    moi_status status = declare_all(c, source);
    posix_fadvise(c->in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!status) status = over_tensors(c, convert);
    moi_st_writer *out = c->out;
    c->out = NULL;
    if (!status) return moi_st_writer_commit(out);
    moi_st_writer_cancel(out);
    return status;
}
