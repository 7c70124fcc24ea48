/* SPDX-License-Identifier: Apache-2.0
 * test_convert_folder.c: moi_folder_quantize: every weight has the bits of moi_quantize under the names that its configuration
 * promises, the rest is untouched, and a run that was broken off is completed with the same bytes. */
#include "support.h"
#include "support_files.h"
#include "support_folder.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/lm/quant_config.h"

#define A "model-00001-of-00003.safetensors"
#define B "model-00002-of-00003.safetensors"
#define C "model-00003-of-00003.safetensors"
#define LAYER(l) "model.layers." #l
#define CONFIG "{\n  \"model_type\": \"qwen3_moe\",\n  \"rms_norm_eps\": 1e-06,\n  \"rope_theta\": 1000000.0\n}\n"

static const moit_tensor model[] = {
    { "model.embed_tokens.weight", MOI_BF16, 2, { 10, 64 }, A },
    { LAYER(0) ".self_attn.q_proj.weight", MOI_BF16, 2, { 130, 64 }, A },
    { LAYER(0) ".self_attn.q_proj.bias", MOI_BF16, 1, { 130 }, A },
    { LAYER(0) ".self_attn.q_norm.weight", MOI_F32, 1, { 33 }, A },
    { LAYER(0) ".mlp.gate.weight", MOI_BF16, 2, { 3, 64 }, B },
    { LAYER(0) ".mlp.experts.0.up_proj.weight", MOI_F16, 2, { 257, 160 }, B },
    { LAYER(0) ".mlp.experts.2.up_proj.weight", MOI_F32, 2, { 4, 0 }, B },
    { LAYER(0) ".self_attn.o_proj.weight", MOI_F32, 2, { 300, 8224 }, B }, /* wider and longer than a piece */
    { LAYER(1) ".mlp.experts.gate_up_proj", MOI_BF16, 3, { 3, 262, 160 }, C },
    { LAYER(1) ".mlp.experts.down_proj", MOI_F32, 3, { 3, 64, 1184 }, C },
    { "lm_head.weight", MOI_BF16, 2, { 10, 64 }, C },
};
enum { MODEL = sizeof model / sizeof *model };

static const struct { moi_file_format file; moii_quant_kind kind; moi_format format; } formats[] = {
    { MOI_FILE_MXFP8, MOII_QUANT_CT_MXFP8, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 } },
    { MOI_FILE_MXFP4, MOII_QUANT_CT_MXFP4, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 } },
    { MOI_FILE_FP8_BLOCK, MOII_QUANT_FP8_BLOCK, { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE } },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    moit_write_file(path, text, (int64_t)strlen(text));
}

static bool has_file(const char *folder, const char *name)
{
    char path[400];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &s) == 0;
}

/* The model as a folder, with what lies beside the weights on the hub. */
static void write_folder(const char *name)
{
    char folder[320];
    moit_write_model(name, model, MODEL, CONFIG);
    strcpy(folder, moit_path(name));
    write_text(folder, "tokenizer.json", "{\"version\": \"1.0\"}");
    write_text(folder, "generation_config.json", "{}");
    write_text(folder, "chat_template.jinja", "{{ x }}");
    write_text(folder, "merges.txt", "a b\n");
    write_text(folder, "pytorch_model.bin", "weights");
    write_text(folder, "other.safetensors", "weights");
    write_text(folder, ".gitattributes", "hidden");
}

static moi_status run(const char *in, const char *out, moi_file_format format, moi_convert_report *report)
{
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.format = format;
    o.report = report;
    char from[320];
    snprintf(from, sizeof from, "%s", moit_path(in));
    return moi_folder_quantize(moit_ctx(0), from, moit_path(out), &o);
}

/* ---- what comes out ---- */

/* Rows first..first + rows of the last-but-one dimension of all matrices in a row: the weight `name` of the output. */
static void check_weight(const moii_quant_config *config, const moii_shards *out, int f, const moi_tensor *in, const char *name, int64_t first,
                         int64_t rows)
{
    moii_quant_weight w;
    int64_t cols = in->shape[in->rank - 1], n = rows * cols, size = moi_dtype_bits(in->dtype) / 8;
    moit_ok(moii_quant_find(config, out, name, 2, (const int64_t[]){ rows, cols }, &w));
    assert_true(w.quantized);
    assert_int_equal(w.format.elem, formats[f].format.elem);
    assert_int_equal(w.format.recipe, formats[f].format.recipe);
    if (n == 0) return;
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.in = in->dtype, d.rowwise = formats[f].format, d.max_rows = rows, d.cols = cols;
    moi_plan *plan;
    moit_ok(moi_quantize_plan_create(&plan, moit_ctx(0), &d));
    void *x = moit_alloc(n * size), *q = moit_alloc(w.codes.bytes), *s = moit_alloc(w.scales.bytes), *work = moit_workspace(plan);
    memcpy(x, (const char *)in->data + first * cols * size, (size_t)(n * size));
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { x, NULL, 0 }, .rowwise = { q, s, 0 } };
    moit_ok(moi_quantize_run(plan, &a, work, moi_plan_workspace_bytes(plan), NULL));
    assert_memory_equal(q, w.codes.data, (size_t)w.codes.bytes);
    assert_memory_equal(s, w.scales.data, (size_t)w.scales.bytes);
    moit_free(x), moit_free(q), moit_free(s), moit_free(work);
    moi_plan_free(plan);
}

static void check_plain(const moii_quant_config *config, const moii_shards *out, const moi_tensor *in)
{
    moi_tensor t;
    assert_false(moii_quant_config_has(config, in->name, NULL) && !strstr(in->name, ".bias"));
    assert_true(moii_shards_find(out, in->name, &t, NULL));
    assert_int_equal(t.dtype, in->dtype);
    assert_memory_equal(t.shape, in->shape, sizeof t.shape);
    assert_memory_equal(t.data, in->data, (size_t)in->bytes);
}

static void check_experts(const moii_quant_config *config, const moii_shards *out, int f, const moi_tensor *in)
{
    char name[128];
    const bool both = strstr(in->name, "gate_up_proj") != NULL;
    const int64_t rows = in->shape[1] / (both ? 2 : 1);
    const char *const names[] = { both ? "gate" : "down", "up" };
    for (int64_t e = 0; e < in->shape[0]; e++)
        for (int k = 0; k < (both ? 2 : 1); k++) {
            snprintf(name, sizeof name, LAYER(1) ".mlp.experts.%d.%s_proj.weight", (int)e, names[k]);
            check_weight(config, out, f, in, name, e * in->shape[1] + k * rows, rows);
        }
}

static int check_folder(const char *in_name, const char *out_name, int f)
{
    moii_shards *in, *out;
    moii_quant_config *config;
    char folder[320];
    int weights = 0;
    strcpy(folder, moit_path(out_name));
    moit_ok(moii_shards_open(&in, moit_path(in_name)));
    moit_ok(moii_shards_open(&out, folder));
    moit_ok(moii_quant_config_load(&config, folder));
    assert_int_equal(moii_quant_config_kind(config), formats[f].kind);
    int plain = 0;
    for (int64_t i = 0; i < moii_shards_count(in); i++) {
        moi_tensor t;
        moii_shards_get(in, i, &t, NULL);
        if (strstr(t.name, "experts.gate_up_proj") || strstr(t.name, "experts.down_proj")) {
            check_experts(config, out, f, &t);
            weights += 3 * (strstr(t.name, "gate_up") ? 2 : 1);
        } else if (strstr(t.name, "_proj.weight")) {
            check_weight(config, out, f, &t, t.name, 0, t.shape[0]);
            weights++;
        } else {
            check_plain(config, out, &t);
            plain++;
        }
    }
    assert_int_equal(moii_shards_count(out), plain + 2 * weights);
    assert_int_equal(moii_shards_files(in), moii_shards_files(out));
    assert_false(moii_quant_config_has(config, "lm_head.weight", NULL)); /* also where it is tied to the embedding */
    moii_quant_config_free(config);
    moii_shards_close(in);
    moii_shards_close(out);
    return weights;
}

static void test_formats(void **state)
{
    (void)state;
    char path[400];
    write_folder("in");
    for (int f = 0; f < FORMATS; f++) {
        moi_convert_report r = MOI_CONVERT_REPORT_INIT;
        moit_remove_tree("out");
        moit_ok(run("in", "out", formats[f].file, &r));
        int weights = check_folder("in", "out", f);
        assert_int_equal(r.quantized, weights);
        assert_int_equal(r.tensors, MODEL);
        assert_int_equal(r.files, 3);
        assert_int_equal(r.files_kept, 0);
        static const char *const copied[] = { "tokenizer.json", "generation_config.json", "chat_template.jinja", "merges.txt" };
        for (int i = 0; i < 4; i++) assert_true(has_file(moit_path("out"), copied[i]));
        assert_false(has_file(moit_path("out"), "pytorch_model.bin") || has_file(moit_path("out"), "other.safetensors") ||
                     has_file(moit_path("out"), ".gitattributes"));
        /* the rest of config.json stays as it was written; total_size is that of the tensors */
        int64_t n;
        snprintf(path, sizeof path, "%s/config.json", moit_path("out"));
        char *text = (char *)moit_read_file(path, &n);
        assert_memory_equal(text, CONFIG, strlen(CONFIG) - 3);
        free(text);
        moii_shards *out;
        int64_t bytes = 0;
        moit_ok(moii_shards_open(&out, moit_path("out")));
        for (int64_t i = 0; i < moii_shards_count(out); i++) {
            moi_tensor t;
            moii_shards_get(out, i, &t, NULL);
            bytes += t.bytes;
        }
        moii_shards_close(out);
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", moit_path("out"));
        json_error_t error;
        json_t *index = json_load_file(path, 0, &error);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), bytes);
        json_decref(index);
    }
}

/* A folder with one file stays one; `keep` leaves packed experts packed. */
static void test_single_and_keep(void **state)
{
    (void)state;
    moit_tensor single[MODEL];
    memcpy(single, model, sizeof single);
    for (int i = 0; i < MODEL; i++) single[i].file = NULL;
    moit_write_model("in", single, MODEL, CONFIG);
    moit_remove_tree("out");
    moit_ok(run("in", "out", MOI_FILE_MXFP4, NULL));
    check_folder("in", "out", 1);
    assert_false(has_file(moit_path("out"), "model.safetensors.index.json"));
    moit_remove_tree("out");
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.keep = "layers.1.,o_proj";
    char in[320];
    strcpy(in, moit_path("in"));
    moit_ok(moi_folder_quantize(moit_ctx(0), in, moit_path("out"), &o));
    moii_shards *s;
    moii_quant_config *c;
    moi_tensor t;
    moit_ok(moii_shards_open(&s, moit_path("out")));
    moit_ok(moii_quant_config_load(&c, moit_path("out")));
    assert_true(moii_shards_find(s, LAYER(1) ".mlp.experts.gate_up_proj", &t, NULL));
    assert_int_equal(t.dtype, MOI_BF16);
    assert_false(moii_quant_config_has(c, LAYER(1) ".mlp.experts.gate_up_proj", NULL));
    assert_false(moii_quant_config_has(c, LAYER(0) ".self_attn.o_proj.weight", NULL));
    assert_true(moii_quant_config_has(c, LAYER(0) ".self_attn.q_proj.weight", NULL));
    moii_quant_config_free(c);
    moii_shards_close(s);
}

/* ---- what is refused ---- */

static void test_refusals(void **state)
{
    (void)state;
    char path[400], in[320], link[320];
    write_folder("in");
    moit_remove_tree("out");
    strcpy(in, moit_path("in"));
    snprintf(path, sizeof path, "%s/config.json", in);
    moit_refused(run("in", "out", MOI_FILE_MXFP6, NULL), MOI_ERR_UNSUPPORTED, "mxfp6 is for single files");
    moit_refused(run("none", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_IO, "none: No such file");
    moit_refused(run("in/config.json", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "in must be a folder");
    moit_refused(run("in", "in", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "out must not be in or inside it");
    moit_refused(run("in", "in/a/b", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "out must not be in or inside it");
    moit_refused(run("in", "in/../in/x", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "out must not be in or inside it");
    strcpy(link, moit_path("link"));
    assert_int_equal(symlink(in, link), 0);
    moit_refused(run("in", "link/x", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "out must not be in or inside it");
    unlink(link);
    assert_false(has_file(moit_path("."), "out"));
    moit_spoil(path, "\n}", ",\n\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_FORMAT, "wanted a model that is not quantised, got fp8");
    unlink(path);
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_IO, "config.json: No such file");
    moit_write_file(path, CONFIG, (int64_t)strlen(CONFIG));
    snprintf(path, sizeof path, "%s/" A, in);
    moit_spoil(path, "\"BF16\",\"shape\":[130,64]", "\"I16\",\"shape\":[130,64]");
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_FORMAT, "q_proj.weight': wanted plain weights (F32, F16 or BF16), got I16");
    moit_spoil(path, "\"I16\",\"shape\":[130,64]", "\"BF16\",\"shape\":[260,32]");
    moit_ok(run("in", "out", MOI_FILE_MXFP8, NULL));
    /* what is there is not mixed with anything else */
    moit_refused(run("in", "out", MOI_FILE_MXFP4, NULL), MOI_ERR_ARG, "was begun with format \"mxfp8\", not \"mxfp4\"");
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.round = MOI_ROUND_FLOOR;
    moit_refused(moi_folder_quantize(moit_ctx(0), in, moit_path("out"), &o), MOI_ERR_ARG, "was begun with round \"rceil\", not \"floor\"");
    o.round = MOI_ROUND_RCEIL, o.keep = "q_proj";
    moit_refused(moi_folder_quantize(moit_ctx(0), in, moit_path("out"), &o), MOI_ERR_ARG, "was begun with keep \"\", not \"q_proj\"");
    struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
    assert_int_equal(utimensat(0, path, times, 0), 0);
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "begun from other input (" A " is not the same)");
    moit_remove_tree("out");
    mkdir(moit_path("out"), 0777);
    write_text(moit_path("out"), "letter.txt", "mine");
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_ARG, "has letter.txt");
    moit_refused(run("in", "out/letter.txt", MOI_FILE_MXFP8, NULL), MOI_ERR_IO, "letter.txt");
    moit_refused(run("out", "in", MOI_FILE_MXFP8, NULL), MOI_ERR_IO, "config.json: No such file");
    moit_spoil(path, "[260,32]", "[4,2080]");
    moit_spoil(path, "[10,64]", "[64,10]");
    snprintf(path, sizeof path, "%s/" C, in);
    moit_spoil(path, "[3,262,160]", "[3,131,320]");
    moit_remove_tree("out");
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_SHAPE, "gate_up_proj': wanted packed experts of shape [experts, 2 * rows, columns]");
    moit_spoil(path, "[3,131,320]", "[3,524,80]");
    moit_refused(run("in", "out", MOI_FILE_MXFP8, NULL), MOI_ERR_SHAPE, "multiple of 32, got 80");
    assert_false(has_file(moit_path("."), "out")); /* all of it was seen before anything was written */
}

/* ---- runs that are broken off ---- */

static void same_bytes(const char *a, const char *b, const char *name)
{
    char pa[640], pb[640];
    int64_t na = -1, nb = -2;
    snprintf(pa, sizeof pa, "%s/%s", a, name);
    snprintf(pb, sizeof pb, "%s/%s", b, name);
    unsigned char *x = moit_read_file(pa, &na), *y = moit_read_file(pb, &nb);
    if (na != nb || memcmp(x, y, (size_t)na)) fail_msg("%s differs", name);
    free(x), free(y);
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    if (d) closedir(d);
    return n;
}

static void same_folders(const char *a_name, const char *b_name)
{
    char a[320], b[320];
    strcpy(a, moit_path(a_name)), strcpy(b, moit_path(b_name));
    assert_int_equal(entries(a), entries(b));
    DIR *d = opendir(a);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) same_bytes(a, b, e->d_name);
    closedir(d);
}

typedef struct breaker { int calls, at; bool kill; } breaker;

static bool on_progress(void *user, const char *name, int64_t done, int64_t total)
{
    breaker *b = user;
    assert_non_null(name);
    assert_true(done <= total);
    if (++b->calls != b->at) return true;
    if (b->kill) raise(SIGKILL);
    return false;
}

static moi_status broken(const char *in, const char *out, breaker *b, int64_t threads)
{
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    moi_ctx *ctx;
    config.threads = (int32_t)threads;
    moit_ok(moi_ctx_create(&ctx, &config));
    o.progress = on_progress;
    o.user = b;
    moi_status status = moi_folder_quantize(ctx, in, out, &o);
    moi_ctx_free(ctx);
    return status;
}

/* P:folder.resume: cancelled or killed at every other call of the progress function */
static void test_resume(void **state)
{
    (void)state;
    char in[320], out[320];
    write_folder("in");
    moit_remove_tree("whole");
    moit_remove_tree("out");
    strcpy(in, moit_path("in"));
    strcpy(out, moit_path("out"));
    breaker b = { .at = -1 };
    moit_ok(broken(in, moit_path("whole"), &b, 1));
    int calls = b.calls, kept = 0;
    assert_true(calls > 20);
    for (int k = 1; k <= calls; k += 2) {
        const bool killed = k % 4 == 1;
        b = (breaker){ .at = k, .kill = killed };
        if (killed) {
            pid_t child = fork();
            if (child == 0) _exit(broken(in, out, &b, 1) ? 1 : 0);
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status));
        } else {
            moit_refused(broken(in, out, &b, 1), MOI_ERR_CANCELLED, "stopped at tensor");
        }
        assert_false(has_file(out, "config.json"));
        moi_convert_report r = MOI_CONVERT_REPORT_INIT;
        moit_ok(run("in", "out", MOI_FILE_MXFP8, &r));
        kept += (int)r.files_kept;
        same_folders("whole", "out");
        moit_remove_tree("out");
    }
    assert_true(kept > calls / 2);
}

/* P:folder.resume: what a run that died later, or a disk that lost something, leaves */
static void test_resume_from_states(void **state)
{
    (void)state;
    static const struct { const char *file, *from, *to; int kept; } left[] = {
        { "config.json", NULL, NULL, 3 },
        { "model.safetensors.index.json", NULL, NULL, 3 },
        { "tokenizer.json", NULL, NULL, 3 },
        { "tokenizer.json", NULL, "cut", 3 },
        { "moiety-quantize.json", "complete", "unfinished", 3 },
        { B, NULL, NULL, 2 },
        { B, NULL, "<5000", 2 },
        { B, NULL, "<0", 2 },
        { B, "rceil", "floor", 2 },
        { B, "\"moiety.source\":\"", "\"moiety.source\":\"7", 2 },
        { ".config.json.1234-0.part", NULL, "{", 3 },
        { "." B ".1234-0.part", NULL, "half", 3 },
    };
    char path[400];
    write_folder("in");
    moit_remove_tree("whole");
    moit_remove_tree("out");
    moit_ok(run("in", "whole", MOI_FILE_MXFP8, NULL));
    moit_ok(run("in", "out", MOI_FILE_MXFP8, NULL));
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        moi_convert_report r = MOI_CONVERT_REPORT_INIT;
        snprintf(path, sizeof path, "%s/%s", moit_path("out"), left[i].file);
        moit_spoil(path, left[i].from, left[i].to);
        moit_ok(run("in", "out", MOI_FILE_MXFP8, &r));
        assert_int_equal(r.files_kept, left[i].kept);
        same_folders("whole", "out");
    }
    /* a folder that was complete is no model while a file of it is made again */
    char in[320];
    strcpy(in, moit_path("in"));
    snprintf(path, sizeof path, "%s/" B, moit_path("out"));
    unlink(path);
    breaker b = { .at = 1 };
    assert_true(has_file(moit_path("out"), "config.json"));
    moit_refused(broken(in, moit_path("out"), &b, 1), MOI_ERR_CANCELLED, "stopped at tensor");
    assert_false(has_file(moit_path("out"), "config.json"));
}

/* A folder of 0.2 GB (of holes) in two files must not cost more than a few buffers and its headers. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    if (moit_shadowed()) skip();
    enum { ALLOWED = 32 << 20 };
    static const struct { const char *name, *header; int64_t bytes; } files[] = {
        { "model-00001-of-00002.safetensors",
          "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[65536,1024],\"data_offsets\":[0,134217728]}}", 134217728 },
        { "model-00002-of-00002.safetensors",
          "{\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[32,1536,1024],\"data_offsets\":[0,100663296]}}", 100663296 },
    };
    char folder[320], path[400];
    moit_remove_tree("in");
    moit_remove_tree("out");
    strcpy(folder, moit_path("in"));
    mkdir(folder, 0777);
    write_text(folder, "config.json", CONFIG);
    write_text(folder, "model.safetensors.index.json",
               "{\"metadata\": {}, \"weight_map\": {\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\","
               "\"model.layers.0.mlp.experts.gate_up_proj\": \"model-00002-of-00002.safetensors\"}}");
    for (int i = 0; i < 2; i++) {
        unsigned char head[512] = { (unsigned char)strlen(files[i].header) };
        memcpy(head + 8, files[i].header, strlen(files[i].header));
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        moit_write_file(path, head, 8 + (int64_t)strlen(files[i].header));
        assert_int_equal(truncate(path, 8 + (off_t)strlen(files[i].header) + files[i].bytes), 0);
    }
    moit_ctx(0);
    int64_t before = moit_peak_bytes();
    moit_ok(run("in", "out", MOI_FILE_MXFP8, NULL));
    assert_in_range(moit_peak_bytes() - before, 0, ALLOWED);
    moit_remove_tree("in");
    moit_remove_tree("out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_bounded), cmocka_unit_test(test_resume), cmocka_unit_test(test_resume_from_states),
        cmocka_unit_test(test_formats), cmocka_unit_test(test_single_and_keep), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
