/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.c: opening a folder's tokeniser, and questions about it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "json_file.h"
#include "status.h"
#include "tokenizer.h"

/* A folder without tokenizer.json: only where the vocabulary can be nothing but the 256 bytes. */
static moi_status open_bytes(moi_tokenizer *t)
{
    moii_path path;
    json_t *root;
    int64_t vocab = 0;
    MOII_TRY(moii_folder_path(&path, t->folder, "config.json"));
    if (access(path.text, F_OK) != 0) MOII_FAIL(MOI_ERR_IO, "%s: no tokenizer.json (and no config.json)", t->folder);
    MOII_TRY(moii_json_load(&root, path.text, 1 << 20));
    moi_status status = moii_json_int(root, path.text, "vocab_size", MOII_JSON_REQUIRED, 1, INT32_MAX, &vocab);
    json_decref(root);
    MOII_TRY(status);
    MOII_REQUIRE(vocab == 256, MOI_ERR_IO, "%s: no tokenizer.json, which a vocabulary of %lld tokens needs (one of 256 is the bytes)", t->folder,
                 (long long)vocab);
    t->bytes = true;
    return MOI_OK;
}

static moi_status open_folder(moi_tokenizer *t)
{
    moii_path path;
    json_t *root;
    MOII_TRY(moii_folder_path(&path, t->folder, "tokenizer.json"));
    if (access(path.text, F_OK) != 0 && errno == ENOENT) MOII_TRY(open_bytes(t));
    else {
        MOII_TRY(moii_json_load(&root, path.text, MOII_TOK_MAX_JSON));
        moi_status status = moii_tokenizer_read(t, root, path.text);
        json_decref(root);
        MOII_TRY(status);
    }
    MOII_TRY(moii_tokenizer_read_config(t));
    return moii_tokenizer_read_eos(t);
}

moi_status moi_tokenizer_open(moi_tokenizer **out, const char *folder)
{
    MOII_REQUIRE(out, MOI_ERR_ARG, "tokenizer open: out must not be NULL");
    *out = NULL;
    MOII_REQUIRE(folder, MOI_ERR_ARG, "tokenizer open: folder must not be NULL");
    moi_tokenizer *t = calloc(1, sizeof *t);
    MOII_REQUIRE(t, MOI_ERR_NOMEM, "tokenizer open: no memory");
    moi_status status = MOI_OK;
    if (strlen(folder) >= sizeof t->folder) status = moii_fail(MOI_ERR_ARG, "tokenizer open: the folder's path is too long");
    else memcpy(t->folder, folder, strlen(folder));
    if (!status) status = open_folder(t);
    if (status) {
        moi_tokenizer_close(t);
        return status;
    }
    *out = t;
    return MOI_OK;
}

void moi_tokenizer_close(moi_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    moii_vocab_free(&tokenizer->vocab);
    free(tokenizer->merges.slots);
    free(tokenizer->plain.nodes);
    free(tokenizer->normalized.nodes);
    moii_splitter_free(&tokenizer->splitter);
    free(tokenizer->eos);
    free(tokenizer);
}

int64_t moi_tokenizer_vocab_size(const moi_tokenizer *tokenizer)
{
    return !tokenizer ? 0 : tokenizer->bytes ? 256 : tokenizer->vocab.ids;
}

bool moi_tokenizer_is_bytes(const moi_tokenizer *tokenizer)
{
    return tokenizer && tokenizer->bytes;
}

int32_t moi_tokenizer_id(const moi_tokenizer *tokenizer, const char *token)
{
    return tokenizer && token && !tokenizer->bytes ? moii_vocab_find(&tokenizer->vocab, token, strlen(token)) : -1;
}

const char *moi_tokenizer_token(const moi_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || id >= moi_tokenizer_vocab_size(tokenizer)) return NULL;
    if (tokenizer->bytes) return "";
    const moii_token *t = &tokenizer->vocab.tokens[id];
    return t->exists ? tokenizer->vocab.text.data + t->spelling : NULL;
}

bool moi_tokenizer_is_eos(const moi_tokenizer *tokenizer, int32_t id)
{
    for (int64_t i = 0; tokenizer && i < tokenizer->eos_count; i++)
        if (tokenizer->eos[i] == id) return true;
    return false;
}

moi_status moi_tokenizer_eos(const moi_tokenizer *tokenizer, int32_t *ids, int64_t room, int64_t *count)
{
    MOII_REQUIRE(tokenizer && count, MOI_ERR_ARG, "tokenizer eos: tokenizer and count must not be NULL");
    MOII_REQUIRE(room >= 0 && (ids || room == 0), MOI_ERR_ARG, "tokenizer eos: ids must be given and room >= 0, got %lld", (long long)room);
    for (int64_t i = 0; i < tokenizer->eos_count && i < room; i++) ids[i] = tokenizer->eos[i];
    *count = tokenizer->eos_count;
    return MOI_OK;
}
