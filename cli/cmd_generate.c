/* SPDX-License-Identifier: Apache-2.0
 * cmd_generate.c: moiety generate: a model continues texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "generate.h"
#include "stop.h"

/* Which prompt it is, and the text it continues. */
static void print_head(const generating *g, const prompt_list *list, int64_t i, bool chat)
{
    const char *text = list->at[i].text;
    if (g->json || g->print_ids) return;
    if (list->n > 1) printf("%s==> %lld of %lld <==\n", i ? "\n" : "", (long long)i + 1, (long long)list->n);
    if (text && !chat) fputs(text, stdout);
    fflush(stdout);
}

static int run_all(const generating *g, const prompt_list *list, const prompt_options *o)
{
    completion *all = calloc((size_t)list->n, sizeof *all);
    int verdict = CMD_DONE;
    int64_t n = 0;
    if (!all) return fprintf(stderr, "moiety generate: no memory\n"), CMD_FAILED;
    stop_install();
    for (; n < list->n && !verdict && !stop_asked(); n++) {
        all[n].prompt = &list->at[n];
        print_head(g, list, n, o->chat);
        if ((verdict = generate_one(g, &all[n]))) break;
        if (!g->json) putchar('\n');
    }
    if (!verdict && g->json && !generate_show_json(g, all, n, list->n > 1)) verdict = CMD_FAILED;
    fflush(stdout); /* the text first, then its speed */
    if (!verdict && n > 0) generate_show_speed(all, n);
    if (!verdict && (n < list->n || !strcmp(all[n - 1].ended, "interrupted"))) verdict = CMD_STOPPED;
    for (int64_t i = 0; i < list->n; i++) completion_free(&all[i]);
    free(all);
    return verdict;
}

typedef struct sampling_options {
    const args_spec *spec;
    double temperature, top_p;
    int64_t top_k, seed;
} sampling_options;

/* Where the command line says nothing, the folder does; where neither does, the defaults of the library. */
static void choose_sampling(generating *g, const sampling_options *s)
{
    const generation_config *f = &g->folder;
    const bool folder_t = !args_given(s->spec, "temperature") && f->temperature >= 0, folder_p = !args_given(s->spec, "top-p") && f->top_p >= 0;
    const bool folder_k = !args_given(s->spec, "top-k") && f->top_k >= 0;
    g->sampling.temperature = (float)(folder_t ? f->temperature : s->temperature);
    g->sampling.top_p = (float)(folder_p ? f->top_p : s->top_p);
    g->sampling.top_k = (int32_t)(folder_k ? f->top_k : s->top_k);
    g->sampling.state = (uint64_t)s->seed;
    g->tokens_given = args_given(s->spec, "tokens");
}

static int check_stops(const arg_list *stop)
{
    for (int i = 0; i < stop->n; i++) {
        const char *wrong = !*stop->at[i] ? "empty" : !characters_valid(stop->at[i], strlen(stop->at[i])) ? "text that is no UTF-8" : NULL;
        if (!wrong) continue;
        fprintf(stderr, "moiety generate: --stop must not be %s; see 'moiety generate --help'\n", wrong);
        return CMD_USAGE;
    }
    return CMD_DONE;
}

static int check(generating *g, const prompt_options *o)
{
    int verdict = prompts_check(o, "generate");
    return verdict ? verdict : check_stops(&g->stop);
}

/* A vocabulary without text: only ids come out, so nothing can be looked for in the text. */
static bool check_text(generating *g)
{
    if (g->text.kind != TEXT_NONE) return true;
    g->print_ids = true;
    return g->stop.n == 0 || text_needed(&g->text);
}

static int generate(generating *g, moi_ctx *ctx, const char *model, const prompt_options *o, const sampling_options *s)
{
    prompt_list list = { 0 };
    int verdict = CMD_FAILED;
    if (model_open(&g->model, "generate", ctx, model, g->recipe) && generation_config_read(&g->folder, "generate", model) &&
        text_open(&g->text, &g->model) && check_text(g) && prompts_read(&list, o, &g->text)) {
        choose_sampling(g, s);
        verdict = run_all(g, &list, o);
    }
    prompts_free(&list);
    generation_config_free(&g->folder);
    text_close(&g->text);
    model_close(&g->model);
    return verdict;
}

static const char about[] =
    "Continues a text, and prints it as it comes.  It ends at --tokens, at a stop string, or at an end token of the folder\n"
    "(eos_token_id of generation_config.json).  Settings of sampling that are not given are those of generation_config.json.\n"
    "Several prompts are run one after the other; each gives what it would give alone.\n";

int cmd_generate(int argc, char **argv)
{
    generating g = { .recipe = OPEN_RECIPE_DEFAULT, .tokens = 256, .sampling = MOI_SAMPLING_INIT };
    prompt_options o = { 0 };
    const char *model;
    sampling_options s = { .temperature = (double)g.sampling.temperature, .top_p = (double)g.sampling.top_p, .seed = 1 };
    int64_t threads = 0;
    arg table[] = {
        { "MODEL", ARG_TEXT, &model, .help = "model folder", .required = true },
        { "prompt", ARG_TEXT, &o.text, "TEXT", .help = "what the model continues" },
        { "prompts", ARG_TEXT, &o.file, "FILE", .help = "several prompts: each line that is not blank is one" },
        { "ids", ARG_TEXT, &o.ids, "LIST|@FILE", .help = "token ids instead of text, or a file of them, a prompt on each line" },
        { "chat", ARG_FLAG, &o.chat, .help = "a prompt is a user's message; the model answers it" },
        { "system", ARG_TEXT, &o.system, "TEXT", .help = "with --chat: the system message before it" },
        { "no-thinking", ARG_FLAG, &o.no_thinking, .help = "with --chat: the model answers without thinking first" },
        { "tokens", ARG_INT, &g.tokens, "N", "how many to write at most", .min = 1, .max = 1e9 },
        { "stop", ARG_LIST, &g.stop, "TEXT", .help = "ends there and does not print it; can be given several times" },
        { "ignore-eos", ARG_FLAG, &g.ignore_eos, .help = "goes on behind end tokens" },
        { "temperature", ARG_REAL, &s.temperature, "X", "0: always the likeliest", .min = 0, .max = 100 },
        { "top-k", ARG_INT, &s.top_k, "N", "only the N likeliest; 0: all", .min = 0, .max = 1e9 },
        { "top-p", ARG_REAL, &s.top_p, "X", "only the likeliest that together reach X", .min = 1e-6, .max = 1 },
        { "seed", ARG_INT, &s.seed, "N", "the same seed writes the same text", .min = 0, .max = 9e15 },
        { "print-ids", ARG_FLAG, &g.print_ids, .help = "print the ids made (with an end token), a line for each prompt, and no text" },
        { "recipe", ARG_CHOICE, &g.recipe, CMD_RECIPES, .help = OPEN_RECIPE_HELP },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &g.json, .help = "print text and speed as JSON; with --print-ids the ids too" },
    };
    args_spec spec = ARGS_SPEC("generate", about, table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if ((verdict = check(&g, &o))) return verdict;
    moi_ctx *ctx = cmd_ctx("generate", threads);
    if (!ctx) return CMD_FAILED;
    s.spec = &spec;
    verdict = generate(&g, ctx, model, &o, &s);
    moi_ctx_free(ctx);
    return verdict;
}
