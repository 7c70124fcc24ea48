/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.h: the parts of a tokeniser.  Text becomes ids in this order: repair UTF-8 (tokenizer_utf8.c), cut out added tokens
 * (tokenizer_added.c), NFC (tokenizer_nfc.c), cut into words (tokenizer_split.c), merge each word's bytes (tokenizer_bpe.c). */
#ifndef MOII_TOKENIZER_H
#define MOII_TOKENIZER_H

#include <jansson.h>
#include <string.h>

#include "folder.h"
#include "moiety_lm.h"

enum {
    MOII_TOK_MAX_IDS = 1 << 22,       /* the largest vocabularies have 2^18 */
    MOII_TOK_MAX_ADDED_BYTES = 4096,  /* of one added token: what a search may read at one place of the text */
    MOII_TOK_MAX_JSON = 1 << 28
};

/* Bytes that grow. */
typedef struct moii_bytes { char *data; size_t count, room; } moii_bytes;
moi_status moii_bytes_reserve(moii_bytes *b, size_t more);
moi_status moii_bytes_add(moii_bytes *b, const void *data, size_t count);

enum { MOII_BYTE_CHARS = 324 }; /* the alphabet that spells bytes lies below U+0144 */

/* One id.  Both texts lie in moii_vocab.text: the spelling of the file, NUL-terminated, and what it decodes to. */
typedef struct moii_token {
    size_t spelling, raw;
    uint32_t spelling_bytes, raw_bytes;
    bool exists, model, added, special; /* in the vocabulary of the model, in the list of added tokens, or in both */
} moii_token;

typedef struct moii_vocab {
    moii_token *tokens; /* [ids] */
    int32_t ids, count; /* highest + 1; how many exist */
    moii_bytes text;
    int32_t *slots;     /* open hash of spellings; -1 is free */
    uint32_t mask;
    int32_t byte_id[256];
    int16_t byte_of[MOII_BYTE_CHARS]; /* character of the alphabet to byte; -1: not of the alphabet */
    int32_t longest;    /* raw bytes */
} moii_vocab;

/* A vocabulary for ids below `ids`, of at most `count` tokens. */
moi_status moii_vocab_create(moii_vocab *v, int32_t ids, int32_t count);
void moii_vocab_free(moii_vocab *v);
int32_t moii_vocab_find(const moii_vocab *v, const char *spelling, size_t bytes); /* -1: no such token */
/* The caller has checked id and that neither is taken. */
moi_status moii_vocab_add(moii_vocab *v, int32_t id, const char *spelling, size_t bytes, bool model);
/* From now on it is an added token too: it decodes to its spelling. */
void moii_vocab_mark_added(moii_vocab *v, int32_t id, bool special);
/* Fills byte_id; *missing is a byte without a token, or -1. */
void moii_vocab_bytes(moii_vocab *v, int *missing);
/* The UTF-8 of the character that spells a byte. */
size_t moii_byte_spelling(uint8_t byte, char out[2]);

/* (left, right) -> (rank, result), an open hash. */
typedef struct moii_merge { uint64_t pair; uint32_t rank; int32_t result; } moii_merge;
typedef struct moii_merges { moii_merge *slots; uint64_t mask; } moii_merges;
enum { MOII_NO_MERGE = -1 };
moi_status moii_merges_create(moii_merges *m, size_t count);
void moii_merges_add(moii_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t result); /* a later one replaces an earlier */
static inline const moii_merge *moii_merges_find(const moii_merges *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, h = pair * 0x9E3779B97F4A7C15u;
    for (uint64_t i = (h ^ h >> 29) & m->mask;; i = (i + 1) & m->mask) {
        if (m->slots[i].result == MOII_NO_MERGE) return NULL;
        if (m->slots[i].pair == pair) return &m->slots[i];
    }
}

/* Added tokens as a trie: children of a node are a list. */
typedef struct moii_trie_node { int32_t child, next, id; uint8_t byte; } moii_trie_node;
typedef struct moii_trie {
    moii_trie_node *nodes;
    int32_t count, room;
    bool first[256]; /* bytes that begin a token */
} moii_trie;
moi_status moii_trie_add(moii_trie *t, const char *text, size_t bytes, int32_t id);
/* The first place at or after `from` where a token begins, the longest there; its id, or -1 with *at = bytes. */
int32_t moii_trie_find(const moii_trie *t, const char *text, size_t bytes, size_t from, size_t *at, size_t *length);

/* Where words end; NULL code: everything is one word. */
typedef struct moii_splitter { void *code; bool jit; } moii_splitter;
moi_status moii_splitter_create(moii_splitter *s, const char *where, const char *pattern, size_t bytes);
void moii_splitter_free(moii_splitter *s);
/* Match data; NULL: no memory (or no code). */
void *moii_splitter_scratch(const moii_splitter *s);
void moii_splitter_scratch_free(void *scratch);
/* The next match at or after `from` of valid UTF-8; *begin = *end = bytes where there is none. */
moi_status moii_splitter_next(const moii_splitter *s, void *scratch, const char *text, size_t bytes, size_t from, size_t *begin, size_t *end);

/* Valid UTF-8 of `text`: text itself, or a copy in `copy` where something had to be replaced. */
moi_status moii_utf8_repair(moii_bytes *copy, const char **text, size_t *bytes);
/* How many of these bytes, at the end, only begin a character: 0..3. */
size_t moii_utf8_unfinished(const char *text, size_t bytes);
/* NFC of valid UTF-8: text itself, or a copy. */
typedef struct moii_nfc { moii_bytes copy; int32_t *code; size_t room; } moii_nfc;
moi_status moii_nfc_apply(moii_nfc *n, const char **text, size_t *bytes);
void moii_nfc_free(moii_nfc *n);

/* What a chat template is found to be by its text. */
typedef struct moii_chat_facts { bool exists, chatml, thoughts, switchable, opens_think, tools, own_system; } moii_chat_facts;
void moii_chat_look(moii_chat_facts *f, const char *text);

struct moi_tokenizer {
    bool bytes; /* nothing below matters except eos */
    bool nfc, ignore_merges;
    moii_vocab vocab;
    moii_merges merges;
    moii_trie plain, normalized; /* looked for before and after NFC */
    moii_splitter splitter;
    int32_t *eos;
    int64_t eos_count;
    int32_t eos_named; /* "eos_token" of tokenizer_config.json, or -1 */
    moii_chat_facts chat;
    char folder[MOII_PATH_MAX];
};

/* Where ids go. */
typedef struct moii_ids { int32_t *ids; int64_t room, count; } moii_ids;
static inline void moii_ids_add(moii_ids *out, int32_t id)
{
    if (out->count < out->room) out->ids[out->count] = id;
    out->count++;
}

typedef struct moii_symbol { int32_t id, prev, next; uint32_t bytes; } moii_symbol;
typedef struct moii_candidate { uint32_t rank; int32_t at, result; } moii_candidate;
typedef struct moii_bpe {
    moii_symbol *symbols;
    moii_candidate *heap;
    size_t room, heap_count, heap_room;
    moii_bytes spelling;
} moii_bpe;
moi_status moii_bpe_word(moii_bpe *b, const moi_tokenizer *t, const char *word, size_t bytes, moii_ids *out);
void moii_bpe_free(moii_bpe *b);

/* tokenizer.json, into an empty tokeniser. */
moi_status moii_tokenizer_read(moi_tokenizer *t, const json_t *root, const char *path);
moi_status moii_tokenizer_read_model(moi_tokenizer *t, const json_t *root, const char *path);
moi_status moii_tokenizer_read_added(moi_tokenizer *t, const json_t *root, const char *path);
/* The files beside it. */
moi_status moii_tokenizer_read_eos(moi_tokenizer *t);
moi_status moii_tokenizer_read_config(moi_tokenizer *t);

#endif
