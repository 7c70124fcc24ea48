/* SPDX-License-Identifier: Apache-2.0
 * test_folder_errors.c: a list of malformed model folders.  Each row takes a good folder, spoils one thing in one file (see
 * moit_spoil), and says what the one-line error must name: the file, the tensor or field, the reason. */
#include "support.h"
#include "support_files.h"
#include "support_folder.h"

#include <stdio.h>

#include "../src/lm/shards.h"

#define A "model-00001-of-00002.safetensors"
#define B "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static const moit_tensor plain[] = {
    { "a", MOI_F32, 2, { 4, 4 }, A }, { "b", MOI_BF16, 1, { 7 }, A }, { "c", MOI_F32, 2, { 4, 4 }, B }, { "d", MOI_U8, 1, { 3 }, B },
};

typedef struct layout { const moit_tensor *tensors; int count; const char *config; } layout;
#define LAYOUT(tensors, config) { (tensors), (int)(sizeof(tensors) / sizeof *(tensors)), (config) }
enum { PLAIN };
static const layout layouts[] = { [PLAIN] = LAYOUT(plain, "{}") };

typedef struct row {
    int layout;
    const char *file, *from, *to;
    moi_status status;
    const char *names[3];
} row;

static const row rows[] = {
    /* the index */
    { PLAIN, INDEX, NULL, NULL, MOI_ERR_IO, { "errors", "no model here", "model.safetensors or model.safetensors.index.json" } },
    { PLAIN, INDEX, NULL, "<100", MOI_ERR_FORMAT, { INDEX, "line", "not valid JSON" } },
    { PLAIN, INDEX, NULL, "<0", MOI_ERR_FORMAT, { INDEX, "not valid JSON" } },
    { PLAIN, INDEX, NULL, "[1]", MOI_ERR_FORMAT, { INDEX, "wanted a JSON object" } },
    { PLAIN, INDEX, NULL, "{\"metadata\": {}}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\" is missing" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": []}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "wanted an object" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": null}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "wanted an object" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": {}}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "at least one tensor" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": 7", MOI_ERR_FORMAT, { INDEX, "'b'", "wanted a file name as a string" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"../" A "\"", MOI_ERR_FORMAT, { INDEX, "'b'", "wanted the plain name of a file in this folder, got '../" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"/etc/passwd\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got '/etc/passwd'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"..\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got '..'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got ''" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" A "\", \"b\": \"" B "\"", MOI_ERR_FORMAT, { INDEX, "\"b\"", "duplicate" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" B "\"", MOI_ERR_FORMAT, { INDEX, "'b'", "shard '" B "', which lacks it; it is in '" A "'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" A "\", \"e\": \"" A "\"", MOI_ERR_FORMAT, { INDEX, "'e'", "'" A "', which lacks it" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"x.safetensors\"", MOI_ERR_IO, { INDEX, "'b'", "the shard 'x.safetensors', which is missing" } },
    /* the shards */
    { PLAIN, B, NULL, NULL, MOI_ERR_IO, { INDEX, "'c'", "the shard '" B "', which is missing" } },
    { PLAIN, B, NULL, "<20", MOI_ERR_FORMAT, { B, "truncated" } },
    { PLAIN, B, NULL, "<0", MOI_ERR_FORMAT, { B, "wanted a safetensors file" } },
    { PLAIN, B, NULL, "<200", MOI_ERR_FORMAT, { B, "'", "data_offsets must ascend within" } },
    { PLAIN, B, "\"c\":", "\"a\":", MOI_ERR_FORMAT, { B, "'a'", "is also in " A } },
    { PLAIN, B, "\"d\":", "\"c\":", MOI_ERR_FORMAT, { B, "'c'", "is there twice" } },
    { PLAIN, B, "\"F32\"", "\"F31\"", MOI_ERR_FORMAT, { B, "'c'", "unknown dtype 'F31'" } },
    { PLAIN, B, "[4,4]", "[-4,-4]", MOI_ERR_FORMAT, { B, "'c'", "dimension 0 must be an integer >= 0" } },
    { PLAIN, B, "[4,4]", "[4,5]", MOI_ERR_FORMAT, { B, "'c'", "its shape wants 80 bytes" } },
    { PLAIN, B, "[4,4]", "[4,4611686018427387904]", MOI_ERR_FORMAT, { B, "'c'", "overflows" } },
    { PLAIN, B, "[0,64]", "[4,68]", MOI_ERR_FORMAT, { B, "'", "" } },
};

static moi_status open_folder(const char *folder)
{
    moii_shards *shards;
    moi_status status = moii_shards_open(&shards, folder);
    if (!status) moii_shards_close(shards);
    return status;
}

static void test_rows(void **state)
{
    (void)state;
    char folder[320], path[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const layout *l = &layouts[r->layout];
        moit_write_model("errors", l->tensors, l->count, l->config);
        strcpy(folder, moit_path("errors"));
        moit_ok(open_folder(folder));
        snprintf(path, sizeof path, "%s/%s", folder, r->file);
        moit_spoil(path, r->from, r->to);
        for (int k = 0; k < 3 && r->names[k]; k++) moit_refused(open_folder(folder), r->status, r->names[k]);
        assert_null(strchr(moi_last_error(), '\n'));
    }
    assert_int_equal(moit_entries(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
