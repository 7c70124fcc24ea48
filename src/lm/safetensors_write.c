/* SPDX-License-Identifier: Apache-2.0
 * safetensors_write.c: writing a file of tensors, complete or not at all. */
#include <stdlib.h>
#include <string.h>

#include "file_atomic.h"
#include "format.h"
#include "safetensors.h"
#include "status.h"

typedef struct piece { int64_t begin, bytes; } piece;

struct moi_st_writer {
    moii_atomic file;
    json_t *header, *metadata;
    piece *tensors;
    int64_t count, capacity;
    int64_t data_bytes, written; /* declared; so far */
    int64_t data_start;          /* 0: the header is not yet written */
    bool broken;
};

static moi_status no_memory(const moi_st_writer *w) { return moii_fail(MOI_ERR_NOMEM, "cannot write %s: no memory", w->file.path); }

static void writer_free(moi_st_writer *w)
{
    moii_atomic_cancel(&w->file);
    json_decref(w->header);
    json_decref(w->metadata);
    free(w->tensors);
    free(w);
}

moi_status moi_st_writer_create(moi_st_writer **out, const char *path)
{
    MOII_REQUIRE(out, MOI_ERR_ARG, "moi_st_writer_create: out is NULL");
    *out = NULL;
    moi_st_writer *w = calloc(1, sizeof *w);
    MOII_REQUIRE(w, MOI_ERR_NOMEM, "moi_st_writer_create: no memory");
    moi_status status = moii_atomic_open(&w->file, path);
    if (!status && (!(w->header = json_object()) || !(w->metadata = json_object()))) status = no_memory(w);
    if (status) writer_free(w);
    else *out = w;
    return status;
}

static moi_status check_open(const moi_st_writer *w, const char *call)
{
    MOII_REQUIRE(w, MOI_ERR_ARG, "%s: writer is NULL", call);
    MOII_REQUIRE(!w->broken, MOI_ERR_ARG, "%s: %s: an earlier call failed; only cancel is left", call, w->file.path);
    MOII_REQUIRE(!w->data_start, MOI_ERR_ARG, "%s: %s: too late, data was written already", call, w->file.path);
    return MOI_OK;
}

moi_status moi_st_writer_metadata(moi_st_writer *w, const char *key, const char *value)
{
    MOII_TRY(check_open(w, "moi_st_writer_metadata"));
    MOII_REQUIRE(key && value, MOI_ERR_ARG, "moi_st_writer_metadata: %s is NULL", key ? "value" : "key");
    json_t *text = json_string(value);
    MOII_REQUIRE(text && json_object_set_new(w->metadata, key, text) == 0, MOI_ERR_ARG,
                 "moi_st_writer_metadata: %s: key and value must be UTF-8", w->file.path);
    return MOI_OK;
}

static moi_status note(moi_st_writer *w, int64_t bytes)
{
    if (w->count == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 64;
        piece *grown = realloc(w->tensors, (size_t)capacity * sizeof *grown);
        if (!grown) return no_memory(w);
        w->tensors = grown;
        w->capacity = capacity;
    }
    w->tensors[w->count++] = (piece){ w->data_bytes, bytes };
    w->data_bytes += bytes;
    return MOI_OK;
}

moi_status moi_st_writer_declare(moi_st_writer *w, const char *name, moi_dtype dtype, int32_t rank, const int64_t *shape)
{
    static const char call[] = "moi_st_writer_declare";
    char shown[MOII_ST_SHOWN];
    int64_t elements;
    MOII_TRY(check_open(w, call));
    MOII_REQUIRE(name && (shape || rank == 0), MOI_ERR_ARG, "%s: %s is NULL", call, name ? "shape" : "name");
    moii_st_show(shown, name);
    const char *type = moi_st_dtype_name(dtype);
    MOII_REQUIRE(type, MOI_ERR_ARG, "%s: '%s': the format has no type for %s", call, shown, moi_dtype_name(dtype));
    MOII_REQUIRE(rank >= 0 && rank <= MOI_ST_MAX_RANK, MOI_ERR_ARG, "%s: '%s': rank must be 0..%d, got %d", call, shown, (int)MOI_ST_MAX_RANK, (int)rank);
    int64_t bytes = moii_st_bytes(dtype, rank, shape, &elements);
    MOII_REQUIRE(bytes >= 0 && bytes <= INT64_MAX / 2 - w->data_bytes, MOI_ERR_SHAPE,
                 "%s: '%s': its shape is negative, overflows, or ends inside a byte", call, shown);
    MOII_REQUIRE(strcmp(name, "__metadata__") != 0 && !json_object_get(w->header, name), MOI_ERR_ARG,
                 "%s: %s: a second tensor, or a reserved name, '%s'", call, w->file.path, shown);
    json_t *dims = json_array();
    for (int32_t i = 0; i < rank; i++) json_array_append_new(dims, json_integer(shape[i]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", dims, "data_offsets", (json_int_t)w->data_bytes,
                              (json_int_t)(w->data_bytes + bytes));
    MOII_REQUIRE(entry && json_object_set_new(w->header, name, entry) == 0, MOI_ERR_ARG, "%s: '%s': the name must be UTF-8", call, shown);
    moi_status status = note(w, bytes);
    if (status) w->broken = true;
    return status;
}

/* The length, the JSON, and spaces up to a multiple of 8, so that the data is aligned. */
static moi_status write_header(moi_st_writer *w)
{
    json_t *all = json_object();
    int bad = !all || (json_object_size(w->metadata) && json_object_set(all, "__metadata__", w->metadata)) || json_object_update(all, w->header);
    char *text = bad ? NULL : json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!text) return no_memory(w);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    char *block = malloc(8 + padded);
    moi_status status = block ? MOI_OK : no_memory(w);
    if (!status && padded > MOII_ST_HEADER_MAX)
        status = moii_fail(MOI_ERR_ARG, "cannot write %s: its header would have %zu bytes, the format allows %d", w->file.path, padded,
                           (int)MOII_ST_HEADER_MAX);
    if (!status) {
        for (int i = 0; i < 8; i++) block[i] = (char)(unsigned char)((uint64_t)padded >> 8 * i);
        memcpy(block + 8, text, length);
        memset(block + 8 + length, ' ', padded - length);
        status = moii_atomic_write_at(&w->file, block, 8 + (int64_t)padded, 0);
        w->data_start = 8 + (int64_t)padded;
    }
    free(block);
    free(text);
    return status;
}

static moi_status put(moi_st_writer *w, const void *data, int64_t bytes, int64_t offset)
{
    moi_status status = w->data_start ? MOI_OK : write_header(w);
    if (!status) status = moii_atomic_write_at(&w->file, data, bytes, w->data_start + offset);
    if (status) w->broken = true;
    else w->written += bytes;
    return status;
}

moi_status moi_st_writer_write(moi_st_writer *w, const void *data, int64_t bytes)
{
    MOII_REQUIRE(w, MOI_ERR_ARG, "moi_st_writer_write: writer is NULL");
    MOII_REQUIRE(!w->broken, MOI_ERR_ARG, "moi_st_writer_write: %s: an earlier call failed; only cancel is left", w->file.path);
    MOII_REQUIRE(bytes >= 0 && (data || bytes == 0), MOI_ERR_ARG, "moi_st_writer_write: data is NULL or bytes negative");
    MOII_REQUIRE(bytes <= w->data_bytes - w->written, MOI_ERR_SHAPE, "moi_st_writer_write: %s: %lld bytes are declared, got %lld", w->file.path,
                 (long long)w->data_bytes, (long long)(w->written + bytes));
    return put(w, data, bytes, w->written);
}

moi_status moii_st_writer_write_at(moi_st_writer *w, int64_t index, const void *data, int64_t bytes, int64_t offset)
{
    const piece *t = &w->tensors[index];
    MOII_REQUIRE(!w->broken && offset >= 0 && bytes >= 0 && offset <= t->bytes && bytes <= t->bytes - offset, MOI_ERR_INTERNAL,
                 "safetensors: bytes %lld + %lld of a tensor of %lld", (long long)offset, (long long)bytes, (long long)t->bytes);
    return put(w, data, bytes, t->begin + offset);
}

moi_status moi_st_writer_commit(moi_st_writer *w)
{
    MOII_REQUIRE(w, MOI_ERR_ARG, "moi_st_writer_commit: writer is NULL");
    moi_status status = MOI_OK;
    if (w->broken) status = moii_fail(MOI_ERR_ARG, "moi_st_writer_commit: %s: an earlier call failed", w->file.path);
    else if (w->written != w->data_bytes)
        status = moii_fail(MOI_ERR_SHAPE, "moi_st_writer_commit: %s: %lld bytes are declared, got %lld", w->file.path,
                           (long long)w->data_bytes, (long long)w->written);
    else if (!w->data_start) status = write_header(w);
    if (!status) status = moii_atomic_commit(&w->file);
    writer_free(w);
    return status;
}

void moi_st_writer_cancel(moi_st_writer *w)
{
    if (w) writer_free(w);
}
