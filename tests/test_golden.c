/* SPDX-License-Identifier: Apache-2.0
 * test_golden.c: small model folders with what the transformers library computes from them (tests/golden/models, made by its
 * make.py): logits within the deviation that rounding to BF16 brings, and the same greedy continuation in FP32. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "support_lm.h"

enum { STEPS = 64, SIGMAS = 6 };

static char root[512];

typedef struct golden {
    moi_st *file;
    moi_tensor prompt, exact, sigma, greedy;
    int64_t count, vocab;
} golden;

/* tests/golden/models beside this file's source, wherever the program runs. */
static bool find_root(void)
{
    struct stat s;
    const char *source = __FILE__, *slash = strrchr(source, '/');
    snprintf(root, sizeof root, "%.*s/golden/models", slash ? (int)(slash - source) : 1, slash ? source : ".");
    return !stat(root, &s);
}

static moi_tensor tensor(const moi_st *file, const char *name, moi_dtype dtype)
{
    moi_tensor t = { .size = sizeof t };
    moit_ok(moi_st_find(file, name, &t));
    assert_int_equal(t.dtype, dtype);
    return t;
}

static golden open_golden(const char *folder)
{
    char path[700];
    golden g;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    moit_ok(moi_st_open(&g.file, path));
    g.prompt = tensor(g.file, "prompt", MOI_I32), g.greedy = tensor(g.file, "greedy", MOI_I32);
    g.exact = tensor(g.file, "exact", MOI_F32), g.sigma = tensor(g.file, "sigma", MOI_F32);
    g.count = g.prompt.shape[0], g.vocab = g.exact.shape[1];
    assert_true(g.exact.shape[0] == g.count && g.sigma.elements == g.exact.elements && g.greedy.shape[0] == STEPS);
    return g;
}

/* The largest error in standard deviations, over rows first.. of the golden logits. */
static double worst(const golden *g, const float *got, int64_t first, int64_t rows)
{
    double most = 0;
    for (int64_t i = 0; i < rows * g->vocab; i++) {
        float want, sigma;
        memcpy(&want, (const char *)g->exact.data + 4 * (first * g->vocab + i), 4);
        memcpy(&sigma, (const char *)g->sigma.data + 4 * (first * g->vocab + i), 4);
        const double d = fabs((double)got[i] - (double)want) / (double)sigma;
        if (!(d <= most)) most = d;
    }
    return most;
}

/* All tokens together and one by one. */
static double run(moi_lm *lm, const golden *g)
{
    int32_t tokens[256] = { 0 };
    double loss, most;
    float *logits = moit_alloc(g->count * g->vocab * 4);
    moi_session *s;
    assert_true(g->count < 256);
    memcpy(tokens, g->prompt.data, (size_t)g->prompt.bytes);
    moit_ok(moi_lm_evaluate(lm, tokens, 1, g->count, &loss, logits)); /* the last target counts for the loss alone */
    most = worst(g, logits, 0, g->count);
    moit_ok(moi_session_create(&s, lm, g->count));
    for (int64_t t = 0; t < g->count; t++) {
        moit_ok(moi_session_feed(s, tokens + t, 1, logits));
        most = fmax(most, worst(g, logits, t, 1));
    }
    moi_session_free(s);
    moit_free(logits);
    return most;
}

static void check_greedy(moi_lm *lm, const golden *g, const char *name)
{
    moi_sampling greedy = MOI_SAMPLING_INIT;
    float *logits = moit_alloc(g->vocab * 4);
    int32_t prompt[256], token;
    moi_session *s;
    greedy.temperature = 0;
    memcpy(prompt, g->prompt.data, (size_t)g->prompt.bytes);
    moit_ok(moi_session_create(&s, lm, g->count + STEPS));
    moit_ok(moi_session_feed(s, prompt, g->count, logits));
    for (int64_t i = 0; i < STEPS; i++) {
        int32_t want;
        memcpy(&want, (const char *)g->greedy.data + 4 * i, 4);
        moit_ok(moi_sample(logits, g->vocab, &greedy, &token));
        if (token != want) fail_msg("%s: token %d of the continuation is %d, want %d", name, (int)i, token, want);
        if (i + 1 < STEPS) moit_ok(moi_session_feed(s, &token, 1, logits));
    }
    moi_session_free(s);
    moit_free(logits);
}

/* With BF16 at linear layers, at most 6 deviations of an implementation that rounds every number to BF16.  FP32 rounds 2^-16 times as
 * coarsely; its sums of up to some hundred terms lose at most a few bits of that, so its errors are below 2^-8 of a deviation. */
static void check_model(const char *name)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%.500s/%.90s", root, name);
    golden g = open_golden(folder);
    moi_lm *half = moit_open(folder, MOI_RECIPE_BF16), *single = moit_open(folder, MOI_RECIPE_F32);
    const double of_half = run(half, &g), of_single = run(single, &g);
    print_message("%s: BF16 %.2f deviations off, FP32 %.2g\n", name, of_half, of_single);
    assert_true(of_half <= SIGMAS && of_single <= 0x1p-8);
    check_greedy(single, &g, name);
    moi_lm_free(half), moi_lm_free(single);
    moi_st_close(g.file);
}

static void test_models(void **state)
{
    (void)state;
    struct dirent **entries = NULL;
    int found = 0;
    if (!find_root()) skip();
    const int n = scandir(root, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[900];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s/golden.safetensors", root, entries[i]->d_name);
        if (!stat(path, &s)) check_model(entries[i]->d_name), found++;
        free(entries[i]);
    }
    free(entries);
    if (!found) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_models) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
