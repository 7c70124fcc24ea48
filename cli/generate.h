/* SPDX-License-Identifier: Apache-2.0
 * generate.h: moiety generate in its parts: continuing one prompt, and showing what came of it. */
#ifndef GENERATE_H
#define GENERATE_H

#include "endings.h"
#include "generation_config.h"
#include "prompts.h"

typedef struct generating {
    const char *recipe;
    int64_t tokens;    /* at most so many */
    bool tokens_given; /* else fewer, where the model has no more positions */
    moi_sampling sampling;
    bool json, print_ids, ignore_eos;
    arg_list stop;
    opened model;
    folder_text text;
    generation_config folder;
} generating;

/* One prompt and what the model made of it. */
typedef struct completion {
    const prompt *prompt;
    int64_t room;                  /* tokens that can be made */
    id_list made;
    buffer text;                   /* UTF-8, without the string that ended it */
    double first_seconds, seconds; /* to the first token; for all of them */
    const char *ended;             /* "length", "eos", "stop", "interrupted" */
} completion;

/* Continues a prompt, printing as it goes unless the result is wanted as JSON.  CMD_DONE, or CMD_FAILED after a message. */
int generate_one(const generating *g, completion *c);
void completion_free(completion *c);
/* The results as JSON: one object for one prompt, with a list of results for several. */
bool generate_show_json(const generating *g, const completion *all, int64_t n, bool list);
/* One line on stderr: how many tokens, how fast. */
void generate_show_speed(const completion *all, int64_t n);

#endif
