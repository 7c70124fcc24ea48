/* SPDX-License-Identifier: Apache-2.0
 * test_open_large.c: folders of gigabytes, as files of holes: opening one costs almost nothing, and one that is larger than the
 * machine's memory is refused before anything is read. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "moiety_lm.h"
#include "support.h"
#include "support_files.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECKED_BUILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CHECKED_BUILD 1
#endif
#endif

typedef struct header { char *text; size_t used, room; int64_t data; } header;

static void tensor(header *h, const char *dtype, int64_t bytes_each, int64_t rows, int64_t cols, const char *name)
{
    if (h->room - h->used < 512) h->text = realloc(h->text, h->room += 1 << 20);
    const int64_t bytes = rows * (cols ? cols : 1) * bytes_each;
    char shape[64];
    if (cols) snprintf(shape, sizeof shape, "%lld,%lld", (long long)rows, (long long)cols);
    else snprintf(shape, sizeof shape, "%lld", (long long)rows);
    h->used += (size_t)snprintf(h->text + h->used, h->room - h->used, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                                h->used ? ',' : '{', name, dtype, shape, (long long)h->data, (long long)(h->data + bytes));
    h->data += bytes;
}

static void linear(header *h, int64_t rows, int64_t cols, const char *name)
{
    char scale[160];
    snprintf(scale, sizeof scale, "%.140s_scale", name);
    tensor(h, "F8_E4M3", 1, rows, cols, name);
    tensor(h, "U8", 1, rows, cols / 32, scale);
}

static const char *named(const char *format, int layer, int expert)
{
    static char name[128];
    char inner[32];
    snprintf(inner, sizeof inner, "%d", expert);
    if (strstr(format, "%e")) {
        const char *e = strstr(format, "%e");
        snprintf(name, sizeof name, "model.layers.%d.%.*s%s%s", layer, (int)(e - format), format, inner, e + 2);
    } else snprintf(name, sizeof name, "model.layers.%d.%s", layer, format);
    return name;
}

enum { LAYERS = 7, H = 2048, F = 768, EXPERTS = 128, VOCAB = 32768, Q = 4096, KV = 512, WIDTH = 128 };

static void layer(header *h, int l)
{
    tensor(h, "BF16", 2, H, 0, named("input_layernorm.weight", l, 0));
    tensor(h, "BF16", 2, H, 0, named("post_attention_layernorm.weight", l, 0));
    tensor(h, "BF16", 2, WIDTH, 0, named("self_attn.q_norm.weight", l, 0));
    tensor(h, "BF16", 2, WIDTH, 0, named("self_attn.k_norm.weight", l, 0));
    tensor(h, "BF16", 2, EXPERTS, H, named("mlp.gate.weight", l, 0));
    linear(h, Q, H, named("self_attn.q_proj.weight", l, 0));
    linear(h, KV, H, named("self_attn.k_proj.weight", l, 0));
    linear(h, KV, H, named("self_attn.v_proj.weight", l, 0));
    linear(h, H, Q, named("self_attn.o_proj.weight", l, 0));
    for (int e = 0; e < EXPERTS; e++) {
        linear(h, F, H, named("mlp.experts.%e.gate_proj.weight", l, e));
        linear(h, F, H, named("mlp.experts.%e.up_proj.weight", l, e));
        linear(h, H, F, named("mlp.experts.%e.down_proj.weight", l, e));
    }
}

/* The header, then a hole. */
static void write_model(const char *path, header *h)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    h->text[h->used++] = '}';
    while (h->used % 8) h->text[h->used++] = ' ';
    const uint64_t length = h->used;
    assert_true(fd >= 0 && write(fd, &length, 8) == 8 && write(fd, h->text, h->used) == (ssize_t)h->used);
    assert_int_equal(ftruncate(fd, (off_t)(8 + (int64_t)h->used + h->data)), 0);
    close(fd);
    free(h->text);
}

static void write_config(const char *path, int64_t vocab, int64_t hidden, int layers)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"model_type\": \"qwen3_moe\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,"
               "\"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": 6144, \"moe_intermediate_size\": %d, \"num_experts\": %d,"
               "\"num_experts_per_tok\": 8, \"tie_word_embeddings\": true,"
               "\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\", \"ignore\": [\"lm_head\"]}}",
            (long long)vocab, (long long)hidden, layers, Q / WIDTH, KV / WIDTH, WIDTH, F, EXPERTS);
    fclose(f);
}

static int64_t private_kb(void)
{
    char line[256];
    long long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kb < 0 && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %lld", &kb);
    if (f) fclose(f);
    return kb;
}

/* Opening 4 GB adds less than 100 MB of private memory and takes less than a second. */
static void test_cost(void **state)
{
    (void)state;
    header h = { .used = 0 };
    moi_lm *lm;
    moit_remove_tree("large");
    assert_int_equal(mkdir(moit_path("large"), 0700), 0);
    tensor(&h, "BF16", 2, VOCAB, H, "model.embed_tokens.weight");
    for (int l = 0; l < LAYERS; l++) layer(&h, l);
    tensor(&h, "BF16", 2, H, 0, "model.norm.weight");
    assert_true(h.data > 4000000000);
    const int64_t bytes = h.data;
    write_model(moit_path("large/model.safetensors"), &h);
    write_config(moit_path("large/config.json"), VOCAB, H, LAYERS);
    const int64_t before = private_kb();
    const clock_t start = clock(); /* of this process: others' work does not count */
    moit_ok(moi_lm_open(&lm, moit_ctx(0), moit_path("large"), NULL));
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    const int64_t added = private_kb() - before;
    print_message("%.1f GB: %.3f s, %.1f MB private\n", (double)bytes / 1e9, seconds, (double)added / 1e3);
    assert_true(moi_lm_parameters(lm, false) > 4000000000 && moi_lm_parameters(lm, true) < moi_lm_parameters(lm, false) / 5);
#ifndef CHECKED_BUILD
    assert_true(seconds < 1.0);
    if (before >= 0) assert_true(added < 100000);
    moi_session *s;
    static float logits[VOCAB];
    const int32_t token = 5;
    moit_ok(moi_session_create(&s, lm, 16));
    moit_ok(moi_session_feed(s, &token, 1, logits)); /* all weights are 0 */
    assert_true(logits[0] == 0.0f && logits[VOCAB - 1] == 0.0f);
    moi_session_free(s);
#endif
    moi_lm_free(lm);
    moit_remove_tree("large");
}

static void test_too_large(void **state)
{
    (void)state;
    header h = { .used = 0 };
    moi_lm *lm;
    moit_remove_tree("huge");
    assert_int_equal(mkdir(moit_path("huge"), 0700), 0);
    tensor(&h, "BF16", 2, 1 << 24, 1 << 16, "model.embed_tokens.weight"); /* 2.2 TB; all others are missing, which comes later */
    write_model(moit_path("huge/model.safetensors"), &h);
    write_config(moit_path("huge/config.json"), 1 << 24, 1 << 16, 1);
    moit_refused(moi_lm_open(&lm, moit_ctx(0), moit_path("huge"), NULL), MOI_ERR_NOMEM, "huge needs 2199.0 GB of memory, this machine has ");
    moit_remove_tree("huge");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cost), cmocka_unit_test(test_too_large) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
