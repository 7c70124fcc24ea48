/* SPDX-License-Identifier: Apache-2.0
 * cli_folder.c: what the transcripts in tests/cli need and a shell cannot do.
 *   cli_folder make FOLDER VOCAB SEED [POSITIONS]   a small model with random weights, F32; 64 positions unless said otherwise
 *   cli_folder read DUMP                     tokens, vocabulary, mean loss of a file of `moiety perplexity --dump-logits`, from its rows
 *   cli_folder slow FOLDER WINDOW STRIDE ID...   mean loss by the definition of --window and --stride, one token at a time
 *   cli_folder same DUMP DUMP                largest difference of two dumps' logits */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moiety_lm.h"

static void check(moi_status status)
{
    if (!status) return;
    fprintf(stderr, "cli_folder: %s\n", moi_last_error());
    exit(1);
}

static double nats(const float *z, int64_t vocab, int32_t target)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++) top = fmax(top, (double)z[i]);
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)z[i] - top);
    return log(sum) + top - (double)z[target];
}

static void make(moi_ctx *ctx, int argc, char **argv)
{
    moi_lm_config c = MOI_LM_CONFIG_INIT;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    moi_lm *lm;
    c.vocab_size = atoll(argv[1]), c.hidden_size = 64, c.num_hidden_layers = 2, c.num_attention_heads = 2, c.num_key_value_heads = 1;
    c.head_dim = 32, c.intermediate_size = 64, c.moe_intermediate_size = 64, c.num_experts = 4, c.max_position_embeddings = argc > 3 ? atoll(argv[3]) : 64;
    c.initializer_range = 0.3f;
    o.recipe = MOI_RECIPE_F32;
    check(moi_lm_create(&lm, ctx, &c, &o, (uint64_t)atoll(argv[2])));
    check(moi_lm_save(lm, argv[0], MOI_F32));
    moi_lm_free(lm);
}

/* *logits is copied out: [*rows, *vocab] */
static moi_st *open_dump(const char *path, moi_tensor *targets, float **logits, int64_t *rows, int64_t *vocab)
{
    moi_st *file;
    moi_tensor t = { .size = sizeof t };
    targets->size = sizeof *targets;
    check(moi_st_open(&file, path));
    check(moi_st_find(file, "logits", &t));
    check(moi_st_find(file, "targets", targets));
    if (t.dtype != MOI_F32 || t.rank != 2 || targets->dtype != MOI_I32 || targets->rank != 1 || targets->shape[0] != t.shape[0]) exit(3);
    *rows = t.shape[0], *vocab = t.shape[1];
    if (!(*logits = malloc((size_t)t.bytes + 1))) exit(3);
    memcpy(*logits, t.data, (size_t)t.bytes);
    return file;
}

static void read_dump(const char *path)
{
    moi_tensor targets;
    float *logits;
    int64_t rows, vocab;
    moi_st *file = open_dump(path, &targets, &logits, &rows, &vocab);
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        int32_t target;
        memcpy(&target, (const char *)targets.data + r * 4, 4);
        loss += nats(logits + r * vocab, vocab, target);
    }
    printf("%lld tokens, %lld, loss %.8f\n", (long long)rows, (long long)vocab, loss / (double)rows);
    free(logits);
    moi_st_close(file);
}

static void same(char **argv)
{
    moi_tensor targets;
    float *z[2];
    int64_t rows[2], vocab[2];
    double most = 0;
    moi_st *file[2];
    for (int i = 0; i < 2; i++) file[i] = open_dump(argv[i], &targets, &z[i], &rows[i], &vocab[i]);
    if (rows[0] != rows[1] || vocab[0] != vocab[1]) exit(3);
    for (int64_t i = 0; i < rows[0] * vocab[0]; i++) most = fmax(most, fabs((double)z[0][i] - (double)z[1][i]));
    printf("%.3g\n", most);
    for (int i = 0; i < 2; i++) free(z[i]), moi_st_close(file[i]);
}

static void slow(moi_ctx *ctx, int argc, char **argv)
{
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    moi_lm_config c = MOI_LM_CONFIG_INIT;
    moi_lm *lm;
    const int64_t window = atoll(argv[1]), stride = atoll(argv[2]), n = argc - 3;
    o.recipe = MOI_RECIPE_F32;
    check(moi_lm_load(&lm, ctx, argv[0], &o));
    check(moi_lm_get_config(lm, &c));
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    float *logits = calloc((size_t)(window * c.vocab_size), sizeof *logits);
    if (!ids || !logits) exit(3);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)atoll(argv[3 + i]);
    double loss = 0, mean;
    for (int64_t t = 1; t < n; t++) { /* the first window that reaches token t: begin + window >= t */
        int64_t begin = 0;
        while (begin + window < t) begin += stride;
        check(moi_lm_evaluate(lm, ids + begin, 1, t - begin, &mean, logits));
        loss += nats(logits + (t - begin - 1) * c.vocab_size, c.vocab_size, ids[t]);
    }
    printf("%lld tokens, %lld, loss %.8f\n", (long long)n - 1, (long long)c.vocab_size, loss / (double)(n - 1));
    free(ids);
    free(logits);
    moi_lm_free(lm);
}

int main(int argc, char **argv)
{
    moi_ctx *ctx;
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.backend = MOI_BACKEND_CPU;
    check(moi_ctx_create(&ctx, &config));
    if ((argc == 5 || argc == 6) && !strcmp(argv[1], "make")) make(ctx, argc - 2, argv + 2);
    else if (argc == 3 && !strcmp(argv[1], "read")) read_dump(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "same")) same(argv + 2);
    else if (argc > 6 && !strcmp(argv[1], "slow")) slow(ctx, argc - 2, argv + 2);
    else return 2;
    moi_ctx_free(ctx);
    return 0;
}
