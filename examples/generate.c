/* SPDX-License-Identifier: Apache-2.0
 * generate.c: opens a model folder, tokenises a prompt, and prints what the model makes of it while it makes it.
 * Build: cc examples/generate.c $(pkg-config --cflags --libs moiety)      Run: ./generate FOLDER PROMPT [TOKENS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moiety_lm.h"

static void check(moi_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", moi_status_name(status), moi_last_error());
    exit(1);
}

static void *memory(int64_t bytes)
{
    void *p = malloc((size_t)bytes);
    if (p) return p;
    fprintf(stderr, "no memory\n");
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FOLDER PROMPT [TOKENS]\n", argv[0]);
        return 2;
    }
    const int64_t most = argc > 3 ? atoll(argv[3]) : 100;

    /* the model: weights stay in their files, in their format; activations in BF16 */
    moi_ctx *ctx;
    moi_lm *lm;
    moi_lm_config config = MOI_LM_CONFIG_INIT;
    moi_ctx_config on = MOI_CTX_CONFIG_INIT;
    on.backend = MOI_BACKEND_CPU; /* the back end that runs models */
    check(moi_ctx_create(&ctx, &on));
    check(moi_lm_open(&lm, ctx, argv[1], NULL));
    check(moi_lm_get_config(lm, &config));

    /* the prompt: first how many ids, then the ids */
    moi_tokenizer *tokenizer;
    const int64_t bytes = (int64_t)strlen(argv[2]);
    int64_t count;
    check(moi_tokenizer_open(&tokenizer, argv[1]));
    check(moi_tokenizer_encode(tokenizer, argv[2], bytes, 0, NULL, 0, &count));
    int32_t *ids = memory((count + 1) * (int64_t)sizeof *ids);
    check(moi_tokenizer_encode(tokenizer, argv[2], bytes, 0, ids, count, &count));

    /* token by token: the likeliest, its text, and what the model says behind it */
    moi_session *session;
    moi_detokenizer *detokenizer;
    moi_sampling greedy = MOI_SAMPLING_INIT;
    greedy.temperature = 0;
    float *logits = memory(config.vocab_size * (int64_t)sizeof *logits);
    check(moi_session_create(&session, lm, count + most));
    check(moi_detokenizer_create(&detokenizer, tokenizer, MOI_TOKENIZE_VISIBLE));
    check(moi_session_feed(session, ids, count, logits));
    fputs(argv[2], stdout);
    for (int64_t i = 0; i < most; i++) {
        int32_t token;
        const char *text;
        int64_t length;
        check(moi_sample(logits, config.vocab_size, &greedy, &token));
        if (moi_tokenizer_is_eos(tokenizer, token)) break;
        check(moi_detokenizer_feed(detokenizer, token, &text, &length)); /* whole characters only */
        fwrite(text, 1, (size_t)length, stdout);
        fflush(stdout);
        if (i + 1 < most) check(moi_session_feed(session, &token, 1, logits));
    }
    putchar('\n');

    moi_detokenizer_free(detokenizer);
    moi_session_free(session);
    moi_tokenizer_close(tokenizer);
    moi_lm_free(lm);
    moi_ctx_free(ctx);
    free(logits);
    free(ids);
    return 0;
}
