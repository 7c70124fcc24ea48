/* SPDX-License-Identifier: Apache-2.0 */
#include "support_folder.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"
#include "support_files.h"

static int64_t elements(const moit_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static void fill(const moit_tensor *t, unsigned char *data, int64_t n, int64_t bytes)
{
    moit_rng rng = moit_seed(t->name, 1);
    int scale = t->dtype == MOI_E8M0 || (t->dtype == MOI_U8 && strstr(t->name, "_scale"));
    if (t->dtype == MOI_F32 || t->dtype == MOI_BF16 || t->dtype == MOI_F16)
        for (int64_t i = 0; i < n; i++) moi_encode(t->dtype, data, i, ldexpf(moit_normal(&rng), -4));
    else if (t->dtype == MOI_E4M3)
        for (int64_t i = 0; i < n; i++) moi_encode(t->dtype, data, i, moit_normal(&rng));
    else
        for (int64_t i = 0; i < bytes; i++) data[i] = (unsigned char)(scale ? 120 + moit_below(&rng, 12) : moit_below(&rng, 256));
}

/* The tensors of one shard, or all where file is NULL. */
static void write_shard(const char *path, const moit_tensor *tensors, int count, const char *file)
{
    moi_st_writer *w;
    moit_ok(moi_st_writer_create(&w, path));
    moit_ok(moi_st_writer_metadata(w, "format", "pt"));
    for (int i = 0; i < count; i++)
        if (!file || !strcmp(file, tensors[i].file))
            moit_ok(moi_st_writer_declare(w, tensors[i].name, tensors[i].dtype, tensors[i].rank, tensors[i].shape));
    for (int i = 0; i < count; i++) {
        if (file && strcmp(file, tensors[i].file) != 0) continue;
        int64_t n = elements(&tensors[i]), bytes = n * moi_dtype_bits(tensors[i].dtype) / 8;
        unsigned char *data = calloc((size_t)bytes + 1, 1);
        fill(&tensors[i], data, n, bytes);
        moit_ok(moi_st_writer_write(w, data, bytes));
        free(data);
    }
    moit_ok(moi_st_writer_commit(w));
}

void moit_write_tensors(const char *path, const moit_tensor *tensors, int count) { write_shard(path, tensors, count, NULL); }

static const char *inside(char text[320], const char *folder, const char *name)
{
    snprintf(text, 320, "%.150s/%.150s", folder, name);
    return text;
}

void moit_write_model(const char *name, const moit_tensor *tensors, int count, const char *config)
{
    char folder[160], path[320];
    moit_remove_tree(name);
    snprintf(folder, sizeof folder, "%.159s", moit_path(name));
    assert_int_equal(mkdir(folder, 0777), 0);
    if (config) moit_write_file(inside(path, folder, "config.json"), config, (int64_t)strlen(config));
    if (count == 0) return;
    if (!tensors[0].file) {
        write_shard(inside(path, folder, "model.safetensors"), tensors, count, NULL);
        return;
    }
    json_t *map = json_object();
    for (int i = 0; i < count; i++) {
        int first = 1;
        for (int k = 0; k < i; k++) first &= strcmp(tensors[k].file, tensors[i].file) != 0;
        if (first) write_shard(inside(path, folder, tensors[i].file), tensors, count, tensors[i].file);
        json_object_set_new(map, tensors[i].name, json_string(tensors[i].file));
    }
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 0, "weight_map", map);
    assert_int_equal(json_dump_file(index, inside(path, folder, "model.safetensors.index.json"), JSON_INDENT(2)), 0);
    json_decref(index);
}

static int64_t find(const unsigned char *bytes, int64_t count, const char *text)
{
    int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i + n <= count; i++)
        if (!memcmp(bytes + i, text, (size_t)n)) return i;
    fail_msg("'%s' is not there", text);
    return -1;
}

void moit_spoil(const char *path, const char *from, const char *to)
{
    if (!to) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    if (*to == '<') {
        assert_int_equal(truncate(path, atol(to + 1)), 0);
        return;
    }
    if (!from) {
        moit_write_file(path, to, (int64_t)strlen(to));
        return;
    }
    int64_t count, n = (int64_t)strlen(from), m = (int64_t)strlen(to);
    unsigned char *old = moit_read_file(path, &count);
    assert_non_null(old);
    unsigned char *spoilt = malloc((size_t)(count + m));
    int64_t at = find(old, count, from);
    memcpy(spoilt, old, (size_t)at);
    memcpy(spoilt + at, to, (size_t)m);
    memcpy(spoilt + at + m, old + at + n, (size_t)(count - at - n));
    if (strstr(path, ".safetensors") && !strstr(path, ".json"))
        for (int64_t i = 0, length = (int64_t)old[0] + old[1] * 256 + old[2] * 65536 + m - n; i < 8; i++) spoilt[i] = (unsigned char)(length >> 8 * i);
    moit_write_file(path, spoilt, count + m - n);
    free(old);
    free(spoilt);
}
