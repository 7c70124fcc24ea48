/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_bpe.c: byte-pair encoding of one word: again and again the pair of the lowest rank, the leftmost of equals, becomes
 * one.  Short words look at all pairs each time; long ones keep them in a heap, so that time grows as n log n. */
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

enum { SHORT = 48 };

moi_status moii_merges_create(moii_merges *m, size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    m->slots = malloc(slots * sizeof *m->slots);
    MOII_REQUIRE(m->slots, MOI_ERR_NOMEM, "tokenizer: no memory for %zu merges", count);
    for (size_t i = 0; i < slots; i++) m->slots[i] = (moii_merge){ .result = MOII_NO_MERGE };
    m->mask = slots - 1;
    return MOI_OK;
}

void moii_merges_add(moii_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t result)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, h = pair * 0x9E3779B97F4A7C15u, i = (h ^ h >> 29) & m->mask;
    while (m->slots[i].result != MOII_NO_MERGE && m->slots[i].pair != pair) i = (i + 1) & m->mask;
    m->slots[i] = (moii_merge){ pair, rank, result };
}

static void short_word(const moi_tokenizer *t, const char *word, size_t bytes, moii_ids *out)
{
    int32_t id[SHORT + 1], result[SHORT];
    uint32_t rank[SHORT];
    size_t n = bytes;
    for (size_t i = 0; i < n; i++) id[i] = t->vocab.byte_id[(uint8_t)word[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const moii_merge *m = moii_merges_find(&t->merges, id[i], id[i + 1]);
        rank[i] = m ? m->rank : UINT32_MAX;
        result[i] = m ? m->result : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        id[best] = result[best];
        for (size_t i = best + 1; i + 1 < n; i++) {
            id[i] = id[i + 1];
            if (i + 2 < n) rank[i] = rank[i + 1], result[i] = result[i + 1];
        }
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const moii_merge *m = moii_merges_find(&t->merges, id[i], id[i + 1]);
            rank[i] = m ? m->rank : UINT32_MAX;
            result[i] = m ? m->result : 0;
        }
    }
    for (size_t i = 0; i < n; i++) moii_ids_add(out, id[i]);
}

static bool before(const moii_candidate *a, const moii_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static moi_status push(moii_bpe *b, moii_candidate c)
{
    if (b->heap_count == b->heap_room) {
        size_t room = b->heap_room ? b->heap_room * 2 : 256;
        moii_candidate *heap = realloc(b->heap, room * sizeof *heap);
        MOII_REQUIRE(heap, MOI_ERR_NOMEM, "tokenizer: no memory for a word's %zu pairs", room);
        b->heap = heap;
        b->heap_room = room;
    }
    size_t i = b->heap_count++;
    for (; i > 0 && before(&c, &b->heap[(i - 1) / 2]); i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = c;
    return MOI_OK;
}

static moii_candidate pop(moii_bpe *b)
{
    moii_candidate top = b->heap[0], last = b->heap[--b->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= b->heap_count) break;
        if (child + 1 < b->heap_count && before(&b->heap[child + 1], &b->heap[child])) child++;
        if (!before(&b->heap[child], &last)) break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

/* Puts the pair that begins at a symbol into the heap, if it can merge. */
static moi_status consider(moii_bpe *b, const moi_tokenizer *t, int32_t at)
{
    if (at < 0 || b->symbols[at].next < 0) return MOI_OK;
    const moii_merge *m = moii_merges_find(&t->merges, b->symbols[at].id, b->symbols[b->symbols[at].next].id);
    return m ? push(b, (moii_candidate){ m->rank, at, m->result }) : MOI_OK;
}

static moi_status long_word(moii_bpe *b, const moi_tokenizer *t, const char *word, size_t bytes, moii_ids *out)
{
    MOII_REQUIRE(bytes <= INT32_MAX, MOI_ERR_ARG, "tokenizer encode: a word may have at most %d bytes, got %zu", INT32_MAX, bytes);
    if (bytes > b->room) {
        free(b->symbols);
        b->room = 0;
        b->symbols = malloc(bytes * sizeof *b->symbols);
        MOII_REQUIRE(b->symbols, MOI_ERR_NOMEM, "tokenizer: no memory for a word of %zu bytes", bytes);
        b->room = bytes;
    }
    int32_t n = (int32_t)bytes;
    b->heap_count = 0;
    for (int32_t i = 0; i < n; i++) b->symbols[i] = (moii_symbol){ t->vocab.byte_id[(uint8_t)word[i]], i - 1, i + 1 < n ? i + 1 : -1, 1 };
    for (int32_t i = 0; i < n; i++) MOII_TRY(consider(b, t, i));
    while (b->heap_count) {
        moii_candidate c = pop(b);
        moii_symbol *left = &b->symbols[c.at];
        if (left->bytes == 0 || left->next < 0) continue; /* it is part of another by now */
        moii_symbol *right = &b->symbols[left->next];
        const moii_merge *m = moii_merges_find(&t->merges, left->id, right->id);
        if (!m || m->result != c.result) continue; /* one of the two has grown */
        left->id = c.result;
        left->bytes += right->bytes;
        right->bytes = 0;
        left->next = right->next;
        if (left->next >= 0) b->symbols[left->next].prev = c.at;
        MOII_TRY(consider(b, t, left->prev));
        MOII_TRY(consider(b, t, c.at));
    }
    for (int32_t i = 0; i >= 0; i = b->symbols[i].next) moii_ids_add(out, b->symbols[i].id);
    return MOI_OK;
}

/* Whether the word as a whole is a token, for "ignore_merges". */
static moi_status whole(moii_bpe *b, const moi_tokenizer *t, const char *word, size_t bytes, int32_t *id)
{
    b->spelling.count = 0;
    MOII_TRY(moii_bytes_reserve(&b->spelling, 2 * bytes));
    for (size_t i = 0; i < bytes; i++) b->spelling.count += moii_byte_spelling((uint8_t)word[i], b->spelling.data + b->spelling.count);
    *id = moii_vocab_find(&t->vocab, b->spelling.data, b->spelling.count);
    return MOI_OK;
}

moi_status moii_bpe_word(moii_bpe *b, const moi_tokenizer *t, const char *word, size_t bytes, moii_ids *out)
{
    if (bytes == 0) return MOI_OK;
    if (t->ignore_merges) {
        int32_t id;
        MOII_TRY(whole(b, t, word, bytes, &id));
        if (id >= 0 && t->vocab.tokens[id].model) {
            moii_ids_add(out, id);
            return MOI_OK;
        }
    }
    if (bytes > SHORT) return long_word(b, t, word, bytes, out);
    short_word(t, word, bytes, out);
    return MOI_OK;
}

void moii_bpe_free(moii_bpe *b)
{
    free(b->symbols);
    free(b->heap);
    free(b->spelling.data);
}
