/* SPDX-License-Identifier: Apache-2.0
 * test_checkpoint.c: models and training runs in folders: nothing is lost, resuming changes no bit, malformed files are
 * refused, and a process that dies while it saves leaves a whole checkpoint behind. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/lm/trainer.h"
#include "num.h"
#include "support_files.h"
#include "support_lm.h"

enum { B = 2, S = 16, COUNT = B * (S + 1) };

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command)) fail_msg("failed: %s", command);
}

static moi_train_config schedule(void)
{
    moi_train_config c = MOI_TRAIN_CONFIG_INIT;
    c.batch = B, c.seq = S, c.steps = 9, c.warmup_steps = 2, c.lr = 1.2345678e-2f, c.seed = 0xFEDCBA9876543210u;
    return c;
}

static void steps(moi_trainer *t, int from, int to, double *losses)
{
    int32_t tokens[COUNT];
    for (int s = from; s < to; s++) {
        moi_train_stats stats = { .size = sizeof stats };
        moit_tokens(tokens, COUNT, 40, (uint64_t)s);
        moit_ok(moi_trainer_step(t, tokens, &stats));
        if (losses) losses[s] = stats.loss;
    }
}

static void same_numbers(const moi_lm *a, const moi_lm *b)
{
    assert_int_equal(a->params.floats, b->params.floats);
    assert_memory_equal(a->weights, b->weights, (size_t)a->params.floats * 4);
}

static void test_round_trip(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config(), got;
    c.mlp_only[1] = 1, c.tie_word_embeddings = false, c.rope_theta = 1234567.0f, c.rms_norm_eps = 3e-6f;
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *again;
    moit_ok(moi_lm_save(lm, moit_path("deep/er/model"), MOI_F32));
    moit_ok(moi_lm_load(&again, moit_ctx(0), moit_path("deep/er/model"), NULL));
    same_numbers(lm, again);
    moit_ok(moi_lm_get_config(again, &got));
    assert_memory_equal(&c.vocab_size, &got.vocab_size, offsetof(moi_lm_config, mlp_only) + sizeof c.mlp_only - offsetof(moi_lm_config, vocab_size));
    moi_lm_free(again);
    moit_ok(moi_lm_save(lm, moit_path("half"), MOI_BF16));
    moit_ok(moi_lm_load(&again, moit_ctx(0), moit_path("half"), NULL));
    for (int64_t i = 0; i < lm->params.floats; i++) assert_true(again->weights[i] == moii_bf16_decode(moii_bf16_encode(lm->weights[i])));
    moi_lm_free(again);
    moi_st *file; /* the hub's names, one tensor per expert */
    moi_tensor t = { .size = sizeof t };
    moit_ok(moi_st_open(&file, moit_path("half/model.safetensors")));
    moit_ok(moi_st_find(file, "model.layers.0.mlp.experts.3.down_proj.weight", &t));
    assert_true(t.dtype == MOI_BF16 && t.rank == 2 && t.shape[0] == 32 && t.shape[1] == 32);
    moit_ok(moi_st_find(file, "model.layers.0.mlp.gate.weight", &t));
    moit_ok(moi_st_find(file, "model.layers.1.mlp.up_proj.weight", &t));
    moit_ok(moi_st_find(file, "lm_head.weight", &t));
    moi_st_close(file);
    moit_refused(moi_lm_save(lm, moit_path("x"), MOI_F16), MOI_ERR_ARG, "f16");
    moit_refused(moi_lm_save(lm, "/proc/none/x", MOI_F32), MOI_ERR_IO, "/proc/none");
    moi_lm_free(lm);
}

static void test_resume(void **state) /* 6 steps are 3 steps, a save, a load, and 3 steps: bit for bit */
{
    (void)state;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        moi_lm_config c = moit_lm_config();
        moi_train_config how = schedule(), got;
        moi_lm *one = moit_lm(&c, (moi_recipe)recipe), *two = moit_lm(&c, (moi_recipe)recipe);
        moi_trainer *first, *second;
        double a[6], b[6];
        moit_ok(moi_trainer_create(&first, one, &how));
        moit_ok(moi_trainer_create(&second, two, &how));
        steps(first, 0, 6, a);
        steps(second, 0, 3, b);
        moit_ok(moi_trainer_save(second, moit_path("run")));
        moi_trainer_free(second);
        moi_lm_free(two);
        moit_ok(moi_trainer_load(&second, &two, moit_ctx(0), moit_path("run"), NULL)); /* the recipe comes from trainer.json */
        assert_int_equal(two->options.recipe, recipe);
        assert_int_equal(moi_trainer_steps_done(second), 3);
        moit_ok(moi_trainer_get_config(second, &got));
        assert_memory_equal(&how.batch, &got.batch, offsetof(moi_train_config, clip_norm) + sizeof how.clip_norm - offsetof(moi_train_config, batch));
        assert_true(how.seed == got.seed);
        steps(second, 3, 6, b);
        assert_memory_equal(a, b, sizeof a);
        same_numbers(one, two);
        assert_memory_equal(first->m, second->m, (size_t)one->params.floats * 4);
        assert_memory_equal(first->v, second->v, (size_t)one->params.floats * 4);
        moi_trainer_free(first), moi_trainer_free(second);
        moi_lm_free(one), moi_lm_free(two);
    }
}

/* ---- malformed checkpoints ---- */

static void refuse(const char *edit, moi_status status, const char *text)
{
    moi_lm *lm = NULL;
    shell("cd '%s' && rm -rf bad && cp -r good bad && cd bad && %s", moit_path("."), edit);
    moit_refused(moi_lm_load(&lm, moit_ctx(0), moit_path("bad"), NULL), status, text);
    assert_null(lm);
}

/* A copy of the model file with one tensor left out, renamed, or of another shape or type. */
static void rewrite_tensor(const char *name, const char *to, moi_dtype dtype, int64_t rows)
{
    moi_st *file;
    moi_st_writer *w;
    moi_tensor t = { .size = sizeof t };
    shell("cd '%s' && rm -rf bad && cp -r good bad", moit_path("."));
    moit_ok(moi_st_open(&file, moit_path("good/model.safetensors")));
    moit_ok(moi_st_writer_create(&w, moit_path("bad/model.safetensors")));
    static const char zeros[1 << 20];
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < moi_st_count(file); i++) {
            moit_ok(moi_st_get(file, i, &t));
            int hit = !strcmp(t.name, name);
            if (hit && !to) continue;
            if (hit && rows) t.elements = t.elements / t.shape[0] * rows, t.shape[0] = rows;
            moi_dtype type = hit && dtype ? dtype : t.dtype;
            if (pass == 0) moit_ok(moi_st_writer_declare(w, hit ? to : t.name, type, t.rank, t.shape));
            else moit_ok(moi_st_writer_write(w, hit ? zeros : t.data, moi_row_bytes(type, t.elements)));
        }
    moit_ok(moi_st_writer_commit(w));
    moi_st_close(file);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char router[] = "model.layers.0.mlp.gate.weight";
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *other = NULL;
    moit_ok(moi_lm_save(lm, moit_path("good"), MOI_F32));
    refuse("rm config.json", MOI_ERR_IO, "config.json");
    refuse("rm model.safetensors", MOI_ERR_IO, "model.safetensors");
    refuse("echo '{' > config.json", MOI_ERR_FORMAT, "JSON");
    refuse("echo '[1]' > config.json", MOI_ERR_FORMAT, "object");
    refuse("printf '{\"model_type\": \"\\377\"}' > config.json", MOI_ERR_FORMAT, "config.json");
    refuse("sed -i 's/\"qwen3_moe\"/\"llama\"/' config.json", MOI_ERR_FORMAT, "qwen3_moe");
    refuse("sed -i 's/\"hidden_size\": 32/\"hidden_size\": -1/' config.json", MOI_ERR_FORMAT, "hidden_size");
    refuse("sed -i 's/\"hidden_size\": 32/\"hidden_size\": \"32\"/' config.json", MOI_ERR_FORMAT, "hidden_size");
    refuse("sed -i '/\"hidden_size\"/d' config.json", MOI_ERR_FORMAT, "hidden_size");
    refuse("sed -i 's/\"hidden_size\": 32/\"hidden_size\": 64/' config.json", MOI_ERR_FORMAT, "model.embed_tokens.weight must be [40, 64]");
    refuse("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/' config.json", MOI_ERR_FORMAT, "tensors");
    refuse("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' config.json", MOI_ERR_FORMAT, "layers.2.input_layernorm.weight is missing");
    refuse("sed -i 's/\"num_key_value_heads\": 2/\"num_key_value_heads\": 3/' config.json", MOI_ERR_FORMAT, "multiple");
    refuse("sed -i 's/\"rms_norm_eps\": 1e-06/\"rms_norm_eps\": 1e300/; s/\"rms_norm_eps\": [0-9.e-]*,/\"rms_norm_eps\": 1e300,/' config.json",
           MOI_ERR_FORMAT, "rms_norm_eps");
    refuse("sed -i 's/\"attention_bias\": false/\"attention_bias\": true/' config.json", MOI_ERR_FORMAT, "attention_bias");
    refuse("sed -i 's/\"hidden_act\": \"silu\"/\"hidden_act\": \"gelu\"/' config.json", MOI_ERR_FORMAT, "silu");
    refuse("sed -i 's/\"mlp_only_layers\": \\[\\]/\"mlp_only_layers\": [-1]/' config.json", MOI_ERR_FORMAT, "mlp_only_layers");
    refuse("truncate -s -1 model.safetensors", MOI_ERR_FORMAT, "model.safetensors");
    refuse("truncate -s 4 model.safetensors", MOI_ERR_FORMAT, "model.safetensors");
    refuse(": > model.safetensors", MOI_ERR_FORMAT, "model.safetensors");
    rewrite_tensor(router, NULL, 0, 0);
    moit_refused(moi_lm_load(&other, moit_ctx(0), moit_path("bad"), NULL), MOI_ERR_FORMAT, "mlp.gate.weight is missing");
    rewrite_tensor(router, "model.layers.0.mlp.gate.bias", 0, 0);
    moit_refused(moi_lm_load(&other, moit_ctx(0), moit_path("bad"), NULL), MOI_ERR_FORMAT, "mlp.gate.weight is missing");
    rewrite_tensor(router, router, 0, 5);
    moit_refused(moi_lm_load(&other, moit_ctx(0), moit_path("bad"), NULL), MOI_ERR_FORMAT, "must be [4, 32]");
    rewrite_tensor(router, router, MOI_E4M3, 0);
    moit_refused(moi_lm_load(&other, moit_ctx(0), moit_path("bad"), NULL), MOI_ERR_FORMAT, "F8_E4M3");
    rewrite_tensor(router, router, MOI_F16, 0);
    moit_ok(moi_lm_load(&other, moit_ctx(0), moit_path("bad"), NULL));
    moi_lm_free(other);
    moi_lm_free(lm);
}

static void test_malformed_run(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_train_config how = schedule();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *got;
    moi_trainer *t, *again;
    moit_ok(moi_trainer_create(&t, lm, &how));
    steps(t, 0, 1, NULL);
    moit_ok(moi_trainer_save(t, moit_path("gone")));
    static const struct { const char *edit; moi_status status; const char *text; } cases[] = {
        { "rm trainer.json", MOI_ERR_IO, "trainer.json" },
        { "rm optimizer.safetensors", MOI_ERR_IO, "optimizer.safetensors" },
        { "sed -i 's/\"step\": 1/\"step\": 2/' trainer.json", MOI_ERR_FORMAT, "different saves" },
        { "sed -i 's/\"step\": 1/\"step\": -1/' trainer.json", MOI_ERR_FORMAT, "step" },
        { "sed -i 's/\"seq\": 16/\"seq\": 100000/' trainer.json", MOI_ERR_FORMAT, "seq" },
        { "sed -i 's/\"f32\"/\"f31\"/' trainer.json", MOI_ERR_FORMAT, "f31" },
        { "sed -i '/\"beta1\"/d' trainer.json", MOI_ERR_FORMAT, "beta1" },
        { "cp model.safetensors optimizer.safetensors", MOI_ERR_FORMAT, "exp_avg" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shell("cd '%s' && rm -rf bad && cp -r gone bad && cd bad && %s", moit_path("."), cases[i].edit);
        moit_refused(moi_trainer_load(&again, &got, moit_ctx(0), moit_path("bad"), NULL), cases[i].status, cases[i].text);
        assert_true(!again && !got);
    }
    moit_ok(moi_lm_save(lm, moit_path("gone"), MOI_F32)); /* a model alone over a run: the run is refused, the model is fine */
    moit_refused(moi_trainer_load(&again, &got, moit_ctx(0), moit_path("gone"), NULL), MOI_ERR_FORMAT, "different saves");
    moi_trainer_free(t);
    moi_lm_free(lm);
}

/* ---- dying while saving ---- */

/* Saves forever, each time after one more "step": every weight and moment is the number of the step. */
static int save_forever(const char *folder)
{
    moi_ctx *ctx;
    moi_lm *lm;
    moi_trainer *t;
    moi_lm_config c = moit_lm_config();
    moi_train_config how = schedule();
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.backend = MOI_BACKEND_CPU;
    if (moi_ctx_create(&ctx, &config) || moi_lm_create(&lm, ctx, &c, NULL, 1) || moi_trainer_create(&t, lm, &how)) return 1;
    for (t->done = 1;; t->done++) {
        for (int64_t i = 0; i < lm->params.floats; i++) lm->weights[i] = t->m[i] = t->v[i] = (float)t->done;
        if (moi_trainer_save(t, folder)) return 1;
    }
}

static void test_killed(void **state)
{
    (void)state;
    int64_t latest = 0;
    for (int round = 0; round < 25; round++) {
        const char *folder = moit_path("killed");
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "test_checkpoint", "--save-forever", folder, (char *)NULL);
            _exit(127);
        }
        for (int wait = 0; wait < 20000 && access(moit_path("killed/trainer.json"), F_OK) && access(moit_path("killed/.commit"), F_OK); wait++)
            usleep(1000);
        usleep((useconds_t)((round * 7919) % 30000 + round * 1000));
        int how, dead = waitpid(child, &how, WNOHANG);
        assert_int_equal(dead, 0); /* it must not have ended by itself */
        kill(child, SIGKILL);
        waitpid(child, &how, 0);
        moi_trainer *t;
        moi_lm *lm, *model;
        moit_ok(moi_lm_load(&model, moit_ctx(0), moit_path("killed"), NULL));
        moit_ok(moi_trainer_load(&t, &lm, moit_ctx(0), moit_path("killed"), NULL));
        for (int64_t i = 0; i < lm->params.count; i++) {
            const int64_t o = lm->params.items[i].offset, last = o + moii_param_elements(&lm->params.items[i]) - 1;
            assert_true(lm->weights[o] == (float)t->done && lm->weights[last] == (float)t->done);
            assert_true(t->m[o] == (float)t->done && t->v[last] == (float)t->done && model->weights[o] == (float)t->done);
        }
        latest = t->done > latest ? t->done : latest;
        moi_trainer_free(t);
        moi_lm_free(lm), moi_lm_free(model);
    }
    print_message("killed 25 times; furthest save: step %d\n", (int)latest);
    assert_true(latest > 0);
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32); /* the next save clears away what the dead left */
    moit_ok(moi_lm_save(lm, moit_path("killed"), MOI_F32));
    shell("test -z \"$(ls -A '%s' | grep -E 'next|part|commit')\"", moit_path("killed"));
    moi_lm_free(lm);
}

/* Every moment between the marker and the last rename, made by hand. */
static void test_half_committed(void **state)
{
    (void)state;
    static const char *const names[] = { "config.json", "model.safetensors", "optimizer.safetensors", "trainer.json" };
    moi_lm_config c = moit_lm_config();
    moi_train_config how = schedule();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *got;
    moi_trainer *t, *again;
    moit_ok(moi_trainer_create(&t, lm, &how));
    steps(t, 0, 1, NULL);
    moit_ok(moi_trainer_save(t, moit_path("old")));
    steps(t, 1, 2, NULL);
    moit_ok(moi_trainer_save(t, moit_path("new")));
    for (int renamed = -1; renamed <= 4; renamed++) { /* -1: the marker is not there yet */
        shell("cd '%s' && rm -rf mid && cp -r old mid", moit_path("."));
        for (int i = 0; i < 4; i++) shell("cd '%s' && cp new/%s mid/%s%s", moit_path("."), names[i], names[i], i < renamed ? "" : ".next");
        if (renamed >= 0) shell("touch '%s'", moit_path("mid/.commit"));
        for (int repeat = 0; repeat < 2; repeat++) {
            moit_ok(moi_trainer_load(&again, &got, moit_ctx(0), moit_path("mid"), NULL));
            assert_int_equal(again->done, renamed < 0 ? 1 : 2);
            if (repeat == 0) moit_ok(moi_trainer_save(again, moit_path("mid")));
            moi_trainer_free(again), moi_lm_free(got);
        }
        shell("test $(ls -A '%s' | wc -l) = 4", moit_path("mid"));
    }
    moi_trainer_free(t);
    moi_lm_free(lm);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--save-forever")) return save_forever(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_resume), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_run), cmocka_unit_test(test_half_committed), cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, moit_remove_folder);
}
