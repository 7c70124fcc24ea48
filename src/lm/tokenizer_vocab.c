/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_vocab.c: tokens by id and by spelling, and the alphabet that spells bytes. */
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

moi_status moii_bytes_reserve(moii_bytes *b, size_t more)
{
    if (b->room - b->count >= more) return MOI_OK;
    size_t room = b->room * 2 > b->count + more ? b->room * 2 : b->count + more + 64;
    char *data = realloc(b->data, room);
    MOII_REQUIRE(data, MOI_ERR_NOMEM, "tokenizer: no memory for %zu bytes of text", room);
    b->data = data;
    b->room = room;
    return MOI_OK;
}

moi_status moii_bytes_add(moii_bytes *b, const void *data, size_t count)
{
    MOII_TRY(moii_bytes_reserve(b, count));
    if (count) memcpy(b->data + b->count, data, count);
    b->count += count;
    return MOI_OK;
}

/* Bytes that are printable in Latin-1 spell themselves; the others, in order, are U+0100 and up. */
static bool spells_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 255 && byte != 173);
}

static uint32_t byte_char(uint8_t byte)
{
    if (spells_itself(byte)) return byte;
    uint32_t before = 0;
    for (uint32_t b = 0; b < byte; b++) before += !spells_itself(b);
    return 256 + before;
}

size_t moii_byte_spelling(uint8_t byte, char out[2])
{
    uint32_t c = byte_char(byte);
    if (c < 128) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

static uint32_t hash(const char *text, size_t bytes)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (uint8_t)text[i]) * 0x100000001B3u;
    return (uint32_t)(h ^ h >> 32);
}

moi_status moii_vocab_create(moii_vocab *v, int32_t ids, int32_t count)
{
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)count) slots *= 2;
    v->tokens = calloc((size_t)ids + 1, sizeof *v->tokens);
    v->slots = malloc(slots * sizeof *v->slots);
    MOII_REQUIRE(v->tokens && v->slots, MOI_ERR_NOMEM, "tokenizer: no memory for %d tokens", ids);
    for (uint32_t i = 0; i < slots; i++) v->slots[i] = -1;
    for (int c = 0; c < MOII_BYTE_CHARS; c++) v->byte_of[c] = -1;
    for (int b = 0; b < 256; b++) v->byte_of[byte_char((uint8_t)b)] = (int16_t)b;
    v->mask = slots - 1;
    v->ids = ids;
    return MOI_OK;
}

void moii_vocab_free(moii_vocab *v)
{
    free(v->tokens);
    free(v->slots);
    free(v->text.data);
}

/* The slot of a spelling, or the free one where it belongs. */
static uint32_t slot_of(const moii_vocab *v, const char *spelling, size_t bytes)
{
    for (uint32_t i = hash(spelling, bytes) & v->mask;; i = (i + 1) & v->mask) {
        if (v->slots[i] < 0) return i;
        const moii_token *t = &v->tokens[v->slots[i]];
        if (t->spelling_bytes == bytes && !memcmp(v->text.data + t->spelling, spelling, bytes)) return i;
    }
}

int32_t moii_vocab_find(const moii_vocab *v, const char *spelling, size_t bytes)
{
    return v->slots ? v->slots[slot_of(v, spelling, bytes)] : -1;
}

/* What the token decodes to: its bytes, or its spelling as it is if that has a character that is not of the alphabet. */
static size_t decode(const moii_vocab *v, const char *spelling, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t c = (uint8_t)spelling[i];
        if (c >= 0xC0 && c < 0xE0 && i + 1 < bytes) c = (c & 31) << 6 | ((uint8_t)spelling[++i] & 63);
        else if (c >= 0x80) c = UINT32_MAX;
        int b = c < MOII_BYTE_CHARS ? v->byte_of[c] : -1;
        if (b < 0) {
            memcpy(out, spelling, bytes);
            return bytes;
        }
        out[n++] = (char)b;
    }
    return n;
}

moi_status moii_vocab_add(moii_vocab *v, int32_t id, const char *spelling, size_t bytes, bool model)
{
    moii_token *t = &v->tokens[id];
    MOII_TRY(moii_bytes_reserve(&v->text, 2 * bytes + 1));
    char *to = v->text.data + v->text.count;
    memcpy(to, spelling, bytes);
    to[bytes] = 0;
    *t = (moii_token){ .spelling = v->text.count, .spelling_bytes = (uint32_t)bytes, .exists = true, .model = model };
    t->raw = t->spelling;
    t->raw_bytes = t->spelling_bytes;
    v->text.count += bytes + 1;
    if (model) {
        t->raw = v->text.count;
        t->raw_bytes = (uint32_t)decode(v, v->text.data + t->spelling, bytes, v->text.data + t->raw);
        v->text.count += t->raw_bytes;
    }
    if ((int32_t)t->raw_bytes > v->longest) v->longest = (int32_t)t->raw_bytes;
    v->slots[slot_of(v, spelling, bytes)] = id;
    v->count++;
    return MOI_OK;
}

void moii_vocab_bytes(moii_vocab *v, int *missing)
{
    *missing = -1;
    for (int b = 0; b < 256; b++) {
        char spelling[2];
        size_t n = moii_byte_spelling((uint8_t)b, spelling);
        v->byte_id[b] = moii_vocab_find(v, spelling, n);
        if (v->byte_id[b] < 0 && *missing < 0) *missing = b;
    }
}

void moii_vocab_mark_added(moii_vocab *v, int32_t id, bool special)
{
    moii_token *t = &v->tokens[id];
    t->added = true;
    t->special = special;
    t->raw = t->spelling;
    t->raw_bytes = t->spelling_bytes;
    if ((int32_t)t->raw_bytes > v->longest) v->longest = (int32_t)t->raw_bytes;
}
