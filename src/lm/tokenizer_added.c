/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_added.c: finding added tokens in a text: the leftmost, and there the longest. */
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

static moi_status node(moii_trie *t, uint8_t byte, int32_t *out)
{
    if (t->count == t->room) {
        int32_t room = t->room ? t->room * 2 : 64;
        moii_trie_node *nodes = realloc(t->nodes, (size_t)room * sizeof *nodes);
        MOII_REQUIRE(nodes, MOI_ERR_NOMEM, "tokenizer: no memory for added tokens");
        t->nodes = nodes;
        t->room = room;
    }
    *out = t->count++;
    t->nodes[*out] = (moii_trie_node){ -1, -1, -1, byte };
    return MOI_OK;
}

static int32_t child(const moii_trie *t, int32_t at, uint8_t byte)
{
    int32_t c = t->nodes[at].child;
    while (c >= 0 && t->nodes[c].byte != byte) c = t->nodes[c].next;
    return c;
}

moi_status moii_trie_add(moii_trie *t, const char *text, size_t bytes, int32_t id)
{
    int32_t at = 0, root;
    if (t->count == 0) MOII_TRY(node(t, 0, &root));
    t->first[(uint8_t)text[0]] = true;
    for (size_t i = 0; i < bytes; i++) {
        int32_t c = child(t, at, (uint8_t)text[i]);
        if (c < 0) {
            MOII_TRY(node(t, (uint8_t)text[i], &c));
            t->nodes[c].next = t->nodes[at].child;
            t->nodes[at].child = c;
        }
        at = c;
    }
    t->nodes[at].id = id;
    return MOI_OK;
}

int32_t moii_trie_find(const moii_trie *t, const char *text, size_t bytes, size_t from, size_t *at, size_t *length)
{
    for (size_t i = t->count ? from : bytes; i < bytes; i++) {
        if (!t->first[(uint8_t)text[i]]) continue;
        int32_t n = 0, id = -1;
        for (size_t j = i; j < bytes && (n = child(t, n, (uint8_t)text[j])) >= 0; j++) {
            if (t->nodes[n].id < 0) continue;
            id = t->nodes[n].id;
            *length = j + 1 - i;
        }
        if (id >= 0) {
            *at = i;
            return id;
        }
    }
    *at = bytes;
    return -1;
}
