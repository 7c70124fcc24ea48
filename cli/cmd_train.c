/* SPDX-License-Identifier: Apache-2.0
 * cmd_train.c: moiety train: options, what is new or resumed, the summary. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "args.h"
#include "cmd.h"
#include "train.h"

typedef struct settings {
    const char *recipe;
    int64_t threads, steps, batch, seq, warmup, seed;
    double lr, min_lr, decay, clip, init;
    int64_t layers, hidden, heads, kv_heads, head_dim, width, experts, top_k;
    bool resume;
} settings;

/* Options that a resumed run takes from its folder. */
static const char *const fixed[] = { "recipe", "steps", "batch", "seq", "warmup", "seed", "lr", "min-lr", "weight-decay", "clip", "layers", "hidden",
                                     "heads", "kv-heads", "head-dim", "width", "experts", "top-k", "init" };

static settings defaults(void)
{
    moi_lm_config m = MOI_LM_CONFIG_INIT;
    moi_train_config t = MOI_TRAIN_CONFIG_INIT;
    return (settings){ .recipe = "mx32", .steps = 300, .batch = t.batch, .seq = t.seq, .warmup = -1, .seed = 1, .lr = (double)t.lr, .min_lr = -1,
                       .decay = (double)t.weight_decay, .clip = (double)t.clip_norm,
                       .init = (double)m.initializer_range, .layers = m.num_hidden_layers, .hidden = m.hidden_size,
                       .heads = m.num_attention_heads, .kv_heads = m.num_key_value_heads, .head_dim = m.head_dim,
                       .width = m.moe_intermediate_size, .experts = m.num_experts, .top_k = m.num_experts_per_tok };
}

static bool exists(const char *folder, const char *file)
{
    char path[PATH_MAX];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return stat(path, &s) == 0;
}

static moi_status begin_anew(train_run *r, moi_ctx *ctx, const settings *s)
{
    moi_lm_config m = MOI_LM_CONFIG_INIT;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    moi_train_config t = MOI_TRAIN_CONFIG_INIT;
    m.initializer_range = (float)s->init;
    m.num_hidden_layers = s->layers;
    m.hidden_size = s->hidden;
    m.num_attention_heads = s->heads;
    m.num_key_value_heads = s->kv_heads;
    m.head_dim = s->head_dim;
    m.moe_intermediate_size = s->width;
    m.intermediate_size = s->width * s->top_k;
    m.num_experts = s->experts;
    m.num_experts_per_tok = s->top_k;
    o.recipe = cmd_recipe(s->recipe);
    t.batch = s->batch;
    t.seq = s->seq;
    t.steps = s->steps;
    t.warmup_steps = s->warmup >= 0 ? s->warmup : (s->steps + 9) / 10;
    t.lr = (float)s->lr;
    t.min_lr = (float)(s->min_lr >= 0 ? s->min_lr : s->lr / 10);
    t.weight_decay = (float)s->decay;
    t.clip_norm = (float)s->clip;
    t.seed = (uint64_t)s->seed;
    moi_status status = moi_lm_create(&r->lm, ctx, &m, &o, (uint64_t)s->seed);
    return status ? status : moi_trainer_create(&r->trainer, r->lm, &t);
}

/* The recipe that a resumed run goes on with: trainer.json has it. */
static void recipe_of_folder(const char *folder, settings *s)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/trainer.json", folder);
    json_t *all = json_load_file(path, 0, NULL);
    const char *name = json_string_value(json_object_get(all, "recipe"));
    if (name) s->recipe = moi_recipe_name(cmd_recipe(name));
    json_decref(all);
}

static void print_json(const train_run *r, const settings *s)
{
    double tokens = (double)(r->steps_now * r->config.batch * r->config.seq);
    json_t *all = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "recipe", s->recipe, "steps", (json_int_t)moi_trainer_steps_done(r->trainer),
                            "first_validation_loss", r->first_validation, "last_validation_loss", r->last_validation, "last_train_loss", r->last_train,
                            "tokens_per_second", r->train_seconds > 0 ? tokens / r->train_seconds : 0.0, "train_seconds", r->train_seconds,
                            "parameters", (json_int_t)moi_lm_parameters(r->lm, false));
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    printf("\n");
    json_decref(all);
}

static int train(train_run *r, moi_ctx *ctx, settings *s)
{
    moi_data_options data = MOI_DATA_OPTIONS_INIT;
    char csv[PATH_MAX];
    data.suffix = r->suffix;
    if (moi_data_open(&r->data, r->data_path, &data)) return cmd_failed("train");
    moi_status status = s->resume ? moi_trainer_load(&r->trainer, &r->lm, ctx, r->out, NULL) : begin_anew(r, ctx, s);
    if (status) return cmd_failed("train");
    if (s->resume) recipe_of_folder(r->out, s);
    if (moi_trainer_get_config(r->trainer, &r->config)) return cmd_failed("train");
    if (mkdir(r->out, 0777) && !exists(r->out, ".")) {
        fprintf(stderr, "moiety train: the folder %s cannot be made\n", r->out);
        return CMD_FAILED;
    }
    snprintf(csv, sizeof csv, "%s/losses.csv", r->out);
    if (!losses_open(&r->losses, r->csv ? r->csv : csv, s->resume ? moi_trainer_steps_done(r->trainer) : -1)) return CMD_FAILED;
    if (!r->quiet)
        fprintf(stderr, "%s; %lld parameters, %lld of them for each token; %.1f MB of text to learn, %.1f MB to check\n", moi_ctx_describe(ctx),
                (long long)moi_lm_parameters(r->lm, false), (long long)moi_lm_parameters(r->lm, true),
                (double)moi_data_bytes(r->data, false) / 1e6, (double)moi_data_bytes(r->data, true) / 1e6);
    int verdict = train_loop(r);
    if (!losses_close(&r->losses) && verdict == CMD_DONE) verdict = CMD_FAILED;
    if (verdict == CMD_DONE && r->json) print_json(r, s);
    else if (verdict == CMD_DONE)
        printf("%s: %lld steps, validation loss %.4f, was %.4f\n", r->out, (long long)r->config.steps, r->last_validation, r->first_validation);
    return verdict;
}

static int check(const args_spec *spec, const train_run *r, const settings *s)
{
    for (size_t i = 0; s->resume && i < sizeof fixed / sizeof *fixed; i++)
        if (args_given(spec, fixed[i])) {
            fprintf(stderr, "moiety train: --%s cannot change with --resume: %s says it\n", fixed[i], r->out);
            return CMD_USAGE;
        }
    if (!s->resume && exists(r->out, "trainer.json")) {
        fprintf(stderr, "moiety train: %s holds a run already; --resume goes on with it\n", r->out);
        return CMD_FAILED;
    }
    return ARGS_GO;
}

int cmd_train(int argc, char **argv)
{
    settings s = defaults();
    train_run r = { .eval_every = 100, .eval_batches = 8, .save_every = 100 };
    arg table[] = {
        { "data", ARG_TEXT, &r.data_path, "PATH", .help = "a text file, or a folder of them; one byte is one token", .required = true },
        { "out", ARG_TEXT, &r.out, "DIR", .help = "where the checkpoint and losses.csv go", .required = true },
        { "suffix", ARG_TEXT, &r.suffix, "END", .help = "only files whose names end so, such as .h" },
        { "resume", ARG_FLAG, &s.resume, .help = "go on with the run in DIR, with its model and settings" },
        { "recipe", ARG_CHOICE, &s.recipe, CMD_RECIPES, .help = "how matrices are multiplied: mx32 is MXFP8" },
        { "steps", ARG_INT, &s.steps, "N", "training steps", .min = 1, .max = 1e12 },
        { "batch", ARG_INT, &s.batch, "N", "sequences a step", .min = 1, .max = 1e6 },
        { "seq", ARG_INT, &s.seq, "N", "tokens of a sequence", .min = 1, .max = 1e6 },
        { "lr", ARG_REAL, &s.lr, "X", "highest learning rate", .min = 0, .max = 10 },
        { "min-lr", ARG_REAL, &s.min_lr, "X", "learning rate at the end; -1: a tenth of lr", .min = -1, .max = 10 },
        { "warmup", ARG_INT, &s.warmup, "N", "steps of rising learning rate; -1: a tenth of all", .min = -1, .max = 1e12 },
        { "weight-decay", ARG_REAL, &s.decay, "X", "of AdamW", .min = 0, .max = 10 },
        { "clip", ARG_REAL, &s.clip, "X", "largest norm of the gradient", .min = 1e-9, .max = 1e9 },
        { "layers", ARG_INT, &s.layers, "N", "decoder layers", .min = 1, .max = MOI_LM_MAX_LAYERS },
        { "hidden", ARG_INT, &s.hidden, "N", "width of the residual stream", .min = 1, .max = 1e6 },
        { "heads", ARG_INT, &s.heads, "N", "attention heads", .min = 1, .max = 1e4 },
        { "kv-heads", ARG_INT, &s.kv_heads, "N", "key and value heads; divides heads", .min = 1, .max = 1e4 },
        { "head-dim", ARG_INT, &s.head_dim, "N", "width of a head, even", .min = 2, .max = 1e4 },
        { "width", ARG_INT, &s.width, "N", "inner width of an expert", .min = 1, .max = 1e6 },
        { "experts", ARG_INT, &s.experts, "N", "experts of each layer", .min = 1, .max = 1e5 },
        { "top-k", ARG_INT, &s.top_k, "N", "experts each token visits", .min = 1, .max = 1e5 },
        { "init", ARG_REAL, &s.init, "X", "standard deviation of the first weights", .min = 0, .max = 10 },
        { "seed", ARG_INT, &s.seed, "N", "of weights and batches", .min = 0, .max = 9e15 },
        { "eval-every", ARG_INT, &r.eval_every, "N", "steps between validations; 0: only the first and the last", .min = 0, .max = 1e12 },
        { "eval-batches", ARG_INT, &r.eval_batches, "N", "batches of a validation", .min = 1, .max = 1e6 },
        { "save-every", ARG_INT, &r.save_every, "N", "steps between checkpoints; 0: only the last", .min = 0, .max = 1e12 },
        { "csv", ARG_TEXT, &r.csv, "FILE", .help = "losses; otherwise DIR/losses.csv" },
        { "threads", ARG_INT, &s.threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &r.json, .help = "print a summary as JSON at the end" },
        { "quiet", ARG_FLAG, &r.quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("train", "Trains a Mixture-of-Experts language model on text.  Ctrl-C saves and stops; a kill loses the steps\n"
                                        "since the last checkpoint.  DIR is a model folder that generate and perplexity read.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO || (verdict = check(&spec, &r, &s)) != ARGS_GO) return verdict;
    moi_ctx *ctx = cmd_ctx("train", s.threads);
    if (!ctx) return CMD_FAILED;
    verdict = train(&r, ctx, &s);
    losses_close(&r.losses);
    moi_trainer_free(r.trainer);
    moi_lm_free(r.lm);
    moi_data_close(r.data);
    moi_ctx_free(ctx);
    return verdict;
}
