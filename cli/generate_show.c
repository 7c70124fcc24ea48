/* SPDX-License-Identifier: Apache-2.0
 * generate_show.c: what generate made, as JSON, and how fast. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "generate.h"

static double per_second(int64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0.0; }

static json_t *id_array(const id_list *ids)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < ids->n; i++) json_array_append_new(array, json_integer(ids->at[i]));
    return array;
}

/* JSON strings are UTF-8: what is none in a prompt becomes U+FFFD. */
static bool set_text(json_t *object, const char *key, const char *bytes, size_t n)
{
    characters whole = { 0 };
    buffer clean = { 0 };
    bool good = characters_add(&whole, bytes, n, &clean) && characters_end(&whole, &clean);
    good = good && !json_object_set_new(object, key, json_stringn(clean.at ? clean.at : "", clean.n));
    buffer_free(&clean);
    return good;
}

static json_t *as_json(const generating *g, const completion *c)
{
    json_t *one = json_object();
    bool good = true;
    if (c->prompt->text) good = set_text(one, "prompt", c->prompt->text, strlen(c->prompt->text));
    if (g->text.kind != TEXT_NONE) good = good && set_text(one, "text", c->text.at ? c->text.at : "", c->text.n);
    if (g->print_ids) good = good && !json_object_set_new(one, "prompt_ids", id_array(&c->prompt->ids)) &&
                             !json_object_set_new(one, "ids", id_array(&c->made));
    const double decode = per_second(c->made.n - 1, c->seconds - c->first_seconds), prefill = per_second(c->prompt->ids.n, c->first_seconds);
    json_t *rest = json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "ended", c->ended, "prompt_tokens", (json_int_t)c->prompt->ids.n, "tokens",
                             (json_int_t)c->made.n, "seconds_to_first_token", c->first_seconds, "tokens_per_second",
                             per_second(c->made.n, c->seconds), "prefill_tokens_per_second", prefill, "decode_tokens_per_second", decode);
    good = good && rest && !json_object_update(one, rest);
    json_decref(rest);
    if (good) return one;
    json_decref(one);
    return NULL;
}

bool generate_show_json(const generating *g, const completion *all, int64_t n, bool list)
{
    json_t *top = json_object(), *results = json_array();
    bool good = !json_object_set_new(top, "recipe", json_string(g->recipe));
    for (int64_t i = 0; i < n && good; i++) {
        json_t *one = as_json(g, &all[i]);
        good = one && (list ? !json_array_append(results, one) : !json_object_update(top, one));
        json_decref(one);
    }
    if (list) good = good && !json_object_set(top, "results", results);
    if (good) good = !json_dumpf(top, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(results);
    json_decref(top);
    if (!good) fprintf(stderr, "moiety generate: no memory\n");
    return good;
}

void generate_show_speed(const completion *all, int64_t n)
{
    completion sum = { 0 };
    int64_t prompt_tokens = 0, made = 0;
    for (int64_t i = 0; i < n; i++) {
        prompt_tokens += all[i].prompt->ids.n;
        made += all[i].made.n;
        sum.first_seconds += all[i].first_seconds;
        sum.seconds += all[i].seconds;
    }
    const double decode = sum.seconds - sum.first_seconds;
    fprintf(stderr, "%lld tokens, first after %.3f s; prompt %lld tokens, %.0f tokens/s; then %.1f tokens/s\n", (long long)made,
            sum.first_seconds / (double)n, (long long)prompt_tokens, per_second(prompt_tokens, sum.first_seconds), per_second(made - n, decode));
}
