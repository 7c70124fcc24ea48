/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tokenizer.c: JSON of a tokeniser, then a NUL, then a text: an error with a message, or ids that exist and are the text.
 * What a tokenizer.json must have (the 256 bytes, a pre-tokenizer, a decoder) is filled in, so that short inputs get far. */
#include <stdint.h>
#include <stdlib.h>

#include "json_file.h"
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) __builtin_trap();
}

static void fill_in(json_t *root)
{
    json_t *model = json_object_get(root, "model");
    if (!model) json_object_set_new(root, "model", model = json_object());
    if (json_is_object(model) && !json_object_get(model, "vocab")) json_object_set_new(model, "vocab", json_object());
    if (json_is_object(model) && !json_object_get(model, "merges")) json_object_set_new(model, "merges", json_array());
    json_t *vocab = json_object_get(model, "vocab");
    for (int b = 0; json_is_object(vocab) && b < 256; b++) {
        char spelling[3] = "";
        spelling[moii_byte_spelling((uint8_t)b, spelling)] = 0;
        if (!json_object_get(vocab, spelling)) json_object_set_new(vocab, spelling, json_integer(b));
    }
    if (!json_object_get(root, "pre_tokenizer"))
        json_object_set_new(root, "pre_tokenizer", json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1));
    if (!json_object_get(root, "decoder")) json_object_set_new(root, "decoder", json_pack("{s:s}", "type", "ByteLevel"));
}

static void both_ways(const moi_tokenizer *t, const char *text, size_t bytes)
{
    int32_t ids[3 * 4096];
    char back[4 * 4096];
    int64_t count, made;
    if (bytes > 64 && t->splitter.code) bytes = 64; /* a pattern may be slow on every byte */
    if (bytes > 4096) bytes = 4096;
    moi_status status = moi_tokenizer_encode(t, text, (int64_t)bytes, 0, ids, 3 * 4096, &count);
    if (status) {
        require(status == MOI_ERR_FORMAT && *moi_last_error());
        return;
    }
    require(count <= 3 * (int64_t)bytes);
    for (int64_t i = 0; i < count; i++) require(moi_tokenizer_token(t, ids[i]) != NULL);
    moii_bytes copy = { 0 };
    const char *want = text;
    require(moi_tokenizer_decode(t, ids, count, 0, back, sizeof back, &made) == MOI_OK);
    require(moii_utf8_repair(&copy, &want, &bytes) == MOI_OK);
    if (!t->nfc) require((size_t)made == bytes && !memcmp(back, want, bytes));
    free(copy.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t json = end ? (size_t)(end - data) : size;
    json_t *root;
    if (moii_json_parse(&root, "input", data, (int64_t)json)) return 0;
    fill_in(root);
    moi_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return 0;
    moi_status status = moii_tokenizer_read(t, root, "input");
    if (status) require(status == MOI_ERR_FORMAT && *moi_last_error());
    else both_ways(t, end ? (const char *)end + 1 : "", end ? size - json - 1 : 0);
    moi_tokenizer_close(t);
    json_decref(root);
    return 0;
}
