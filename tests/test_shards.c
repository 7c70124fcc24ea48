/* SPDX-License-Identifier: Apache-2.0
 * test_shards.c: the tensors of a folder, in one file or in many.  What is refused is in test_folder_errors.c. */
#include "support.h"
#include "support_files.h"
#include "support_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../src/lm/shards.h"

#define A "model-00001-of-00002.safetensors"
#define B "model-00002-of-00002.safetensors"

static const moit_tensor model[] = {
    { "z", MOI_BF16, 2, { 3, 5 }, A }, { "b", MOI_F32, 1, { 7 }, B },       { "a", MOI_U8, 1, { 3 }, A },
    { "d", MOI_I64, 0, { 0 }, B },     { "empty", MOI_F32, 2, { 0, 4 }, B }, { "y", MOI_E4M3, 2, { 2, 2 }, B },
};
enum { MODEL = sizeof model / sizeof *model };

static void check_tensors(const moii_shards *s, const char *folder)
{
    assert_int_equal(moii_shards_count(s), MODEL);
    for (int i = 0; i < MODEL; i++) {
        moi_tensor t, same;
        moi_st *own;
        const char *file = NULL;
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, model[i].file ? model[i].file : "model.safetensors");
        assert_true(moii_shards_find(s, model[i].name, &t, &file));
        assert_string_equal(file, path);
        assert_string_equal(t.name, model[i].name);
        assert_int_equal(t.dtype, model[i].dtype);
        assert_int_equal(t.rank, model[i].rank);
        moit_ok(moi_st_open(&own, path));
        moit_ok(moi_st_find(own, model[i].name, &same));
        assert_int_equal(same.bytes, t.bytes);
        assert_memory_equal(same.data, t.data, (size_t)t.bytes);
        moi_st_close(own);
        int64_t index = moii_shards_index(s, model[i].name);
        moi_tensor again;
        moii_shards_get(s, index, &again, NULL);
        assert_ptr_equal(again.name, t.name);
        assert_string_equal(moii_shards_file_name(s, moii_shards_file_of(s, index)), model[i].file ? model[i].file : "model.safetensors");
    }
    moi_tensor t = { .rank = -1 };
    const char *file = "untouched";
    assert_false(moii_shards_find(s, "", &t, &file));
    assert_false(moii_shards_find(s, "zz", &t, &file));
    assert_int_equal(t.rank, -1);
    assert_string_equal(file, "untouched");
}

static void test_sharded(void **state)
{
    (void)state;
    moii_shards *s;
    char folder[320];
    moit_write_model("sharded", model, MODEL, NULL);
    strcpy(folder, moit_path("sharded"));
    moit_ok(moii_shards_open(&s, folder));
    check_tensors(s, folder);
    assert_int_equal(moii_shards_files(s), 2);
    assert_string_equal(moii_shards_file_name(s, 1), B);
    assert_int_equal(moi_st_count(moii_shards_file(s, 0)), 2);
    int last = 0; /* by file, then in the order of the data */
    const unsigned char *at = NULL;
    for (int64_t i = 0; i < MODEL; i++) {
        moi_tensor t;
        moii_shards_get(s, i, &t, NULL);
        if (moii_shards_file_of(s, i) != last) at = NULL, last++;
        assert_true(!at || (const unsigned char *)t.data >= at);
        at = (const unsigned char *)t.data + t.bytes;
    }
    assert_int_equal(last, 1);
    moii_shards_close(s);
}

static void test_single_and_links(void **state)
{
    (void)state;
    moii_shards *s;
    char folder[320], from[400], to[400];
    moit_write_model("single", (const moit_tensor[]){ { "only", MOI_F32, 1, { 4 }, NULL } }, 1, NULL);
    strcpy(folder, moit_path("single"));
    moit_ok(moii_shards_open(&s, folder));
    assert_int_equal(moii_shards_count(s), 1);
    assert_int_equal(moii_shards_files(s), 1);
    assert_string_equal(moii_shards_file_name(s, 0), "model.safetensors");
    moii_shards_close(s);
    /* an index beside it wins; files may be links, as in the cache of a hub client */
    moit_write_model("sharded", model, MODEL, NULL);
    const char *const names[] = { A, B, "model.safetensors.index.json" };
    for (int i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s/%s", moit_path("sharded"), names[i]);
        snprintf(to, sizeof to, "%s/%s", folder, names[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    moit_ok(moii_shards_open(&s, folder));
    check_tensors(s, folder);
    moii_shards_close(s);
}

static void test_extra_tensors_are_ignored(void **state)
{
    (void)state;
    moii_shards *s;
    moi_tensor t;
    char path[400];
    moit_write_model("extra", model, MODEL, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", moit_path("extra"));
    moit_spoil(path, "    \"b\": \"" B "\",\n", "");
    moit_ok(moii_shards_open(&s, moit_path("extra")));
    assert_int_equal(moii_shards_count(s), MODEL - 1);
    assert_int_equal(moi_st_count(moii_shards_file(s, 1)), 4);
    assert_false(moii_shards_find(s, "b", &t, NULL));
    for (int i = 0; i < MODEL; i++) assert_int_equal(moii_shards_find(s, model[i].name, &t, NULL), i != 1);
    moii_shards_close(s);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void close_shard(FILE *f, int64_t data)
{
    long end = ftell(f) - 1; /* over the last comma */
    fseek(f, end, SEEK_SET);
    fputs("}", f);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(end + 1 - 8) >> 8 * i);
    rewind(f);
    fwrite(length, 1, 8, f);
    fflush(f);
    assert_int_equal(ftruncate(fileno(f), end + 1 + data), 0); /* a hole, which no disk pays for */
    fclose(f);
}

/* As large folders are: 20,480 tensors of 3 MB in 16 shards.  Opening reads headers and no data. */
static void test_large_folder(void **state)
{
    (void)state;
    enum { SHARDS = 16, EACH = 1280, BYTES = 2 * 2048 * 768 };
    char folder[320], path[400];
    strcpy(folder, moit_path("large"));
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    FILE *index = fopen(path, "w");
    fputs("{\"metadata\": {\"total_size\": 64424509440}, \"weight_map\": {\n", index);
    for (int s = 0; s < SHARDS; s++) {
        snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, s + 1, SHARDS);
        FILE *f = fopen(path, "wb");
        fputs("12345678{", f);
        for (int i = 0; i < EACH; i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight", s, i);
            fprintf(f, "\"%s\":{\"dtype\":\"BF16\",\"shape\":[768,2048],\"data_offsets\":[%lld,%lld]},", name, (long long)i * BYTES, (i + 1LL) * BYTES);
            fprintf(index, "%s\"%s\": \"model-%05d-of-%05d.safetensors\"", s + i ? ",\n" : "", name, s + 1, SHARDS);
        }
        close_shard(f, (int64_t)EACH * BYTES);
    }
    fputs("}}\n", index);
    fclose(index);
    double best = 1e9;
    moii_shards *s = NULL;
    struct rusage before, after;
    for (int i = 0; i < 3; i++) {
        double start = seconds();
        getrusage(RUSAGE_SELF, &before);
        moit_ok(moii_shards_open(&s, folder));
        getrusage(RUSAGE_SELF, &after);
        double took = seconds() - start;
        if (took < best) best = took;
        assert_int_equal(moii_shards_count(s), SHARDS * EACH);
        if (i < 2) moii_shards_close(s);
    }
    print_message("opening %d tensors in %d shards: %.3f s, %ld KB more at the peak\n", SHARDS * EACH, SHARDS, best, after.ru_maxrss - before.ru_maxrss);
    moi_tensor t;
    assert_true(moii_shards_find(s, "model.layers.15.mlp.experts.1279.gate_proj.weight", &t, NULL));
    assert_int_equal(t.bytes, BYTES);
    assert_int_equal(((const unsigned char *)t.data)[BYTES - 1], 0);
    moii_shards_close(s);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    assert_true(best < 2.0); /* 0.1 s alone on a core; others may be busy */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharded), cmocka_unit_test(test_single_and_links), cmocka_unit_test(test_extra_tensors_are_ignored),
        cmocka_unit_test(test_large_folder),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
