/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_nfc.c: text in normalisation form C, as the reference has it: by the tables of Unicode 9.  What came later is left
 * alone, so that ids do not depend on the age of utf8proc. */
#include <stdlib.h>
#include <utf8proc.h>

#include "status.h"
#include "tokenizer.h"

typedef struct range { uint32_t first, last; } range;

/* Characters that NFC never changes, reorders, or joins to the one before, in the ranges that most text is made of. */
static bool inert(uint32_t c)
{
    if (c < 0x300) return true;
    static const range ranges[] = {
        { 0x3400, 0x9FFF }, { 0x3041, 0x3096 }, { 0x30A1, 0x30FA }, { 0xAC00, 0xD7A3 }, { 0x3001, 0x3029 }, { 0xFF01, 0xFFEE },
        { 0x2010, 0x2027 }, { 0x0400, 0x0482 }, { 0x2190, 0x2328 }, { 0x2500, 0x2ADB }, { 0x1F300, 0x1FAFF }, { 0x20000, 0x2A6DF },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

/* Characters younger than Unicode 9 that would move or join others, and U+11A7, which utf8proc 2.8 takes for a final consonant:
 * the reference passes them through, as letters that nothing joins. */
static bool young(uint32_t c)
{
    static const range ranges[] = {
        { 0x5C8, 0x5C9 }, { 0x7FD, 0x7FD }, { 0x897, 0x89F }, { 0x8CA, 0x8D3 }, { 0x9FE, 0x9FE }, { 0xC3C, 0xC3C },
        { 0xD3B, 0xD3C }, { 0xEBA, 0xEBA }, { 0x11A7, 0x11A7 }, { 0x1715, 0x1715 }, { 0x1ABF, 0x1AF0 }, { 0x1DF6, 0x1DFA }, { 0xA82C, 0xA82C },
        { 0x105C9, 0x105C9 }, { 0x105D2, 0x105D2 }, { 0x105DA, 0x105DA }, { 0x105E4, 0x105E4 }, { 0x10D24, 0x10D27 },
        { 0x10D69, 0x10D6D }, { 0x10EAB, 0x10EAC }, { 0x10ECB, 0x10ECF }, { 0x10EF0, 0x10EFB }, { 0x10EFD, 0x10EFF },
        { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 }, { 0x11070, 0x11070 }, { 0x1133B, 0x1133B }, { 0x11382, 0x11385 },
        { 0x1138B, 0x1138B }, { 0x1138E, 0x1138E }, { 0x11390, 0x11391 }, { 0x113C2, 0x113C2 }, { 0x113C5, 0x113C5 },
        { 0x113C7, 0x113C8 }, { 0x113CE, 0x113D0 }, { 0x1145E, 0x1145E }, { 0x11839, 0x1183A }, { 0x11935, 0x11935 },
        { 0x11938, 0x11938 }, { 0x1193D, 0x1193E }, { 0x11943, 0x11943 }, { 0x119E0, 0x119E0 }, { 0x11A34, 0x11A34 },
        { 0x11A47, 0x11A47 }, { 0x11A99, 0x11A99 }, { 0x11D42, 0x11D42 }, { 0x11D44, 0x11D45 }, { 0x11D97, 0x11D97 },
        { 0x11F41, 0x11F42 }, { 0x1611E, 0x1611E }, { 0x16121, 0x16129 }, { 0x1612F, 0x1612F }, { 0x16D63, 0x16D63 },
        { 0x16D67, 0x16D6A }, { 0x16FF0, 0x16FF1 }, { 0x1D127, 0x1D128 }, { 0x1D250, 0x1D252 }, { 0x1D25B, 0x1D25C },
        { 0x1D25F, 0x1D25F }, { 0x1D280, 0x1D281 }, { 0x1E08F, 0x1E08F }, { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE },
        { 0x1E2EC, 0x1E2EF }, { 0x1E4EC, 0x1E4EF }, { 0x1E5EE, 0x1E5EF }, { 0x1E6E3, 0x1E6E3 }, { 0x1E6E6, 0x1E6E6 },
        { 0x1E6EE, 0x1E6EF }, { 0x1E6F5, 0x1E6F5 },
    };
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ranges[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < sizeof ranges / sizeof *ranges && c >= ranges[low].first;
}

static uint32_t get(const uint8_t *p, size_t *i)
{
    uint32_t c = p[(*i)++];
    if (c < 0x80) return c;
    int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    c &= 0x3Fu >> more;
    while (more--) c = c << 6 | (p[(*i)++] & 63u);
    return c;
}

static int class_of(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Sorts marks by their classes, keeping the order of equals: by counting, as a run may be of any length. */
static void reorder_run(int32_t *code, size_t count, int32_t *spare)
{
    size_t places[256] = { 0 }, sum = 0;
    for (size_t i = 0; i < count; i++) places[class_of(code[i])]++;
    for (int k = 0; k < 256; k++) {
        size_t here = places[k];
        places[k] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++) spare[places[class_of(code[i])]++] = code[i];
    memcpy(code, spare, count * sizeof *code);
}

static void reorder(int32_t *code, size_t count, int32_t *spare)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        bool sorted = true;
        for (int last = 0, k; i + n < count && (k = class_of(code[i + n])) != 0; n++, last = k) sorted &= k >= last;
        if (!sorted) reorder_run(code + i, n, spare);
        i += n;
    }
}

/* NFC of a piece, behind what n->copy has. */
static moi_status compose(moii_nfc *n, const uint8_t *p, size_t bytes)
{
    enum { WIDEST = 18 }; /* of one character's decomposition */
    if (n->room < 2 * (2 * bytes + WIDEST)) {
        free(n->code);
        n->room = 0;
        n->code = malloc(2 * (2 * bytes + WIDEST) * sizeof *n->code);
        MOII_REQUIRE(n->code, MOI_ERR_NOMEM, "tokenizer: no memory to normalise %zu bytes", bytes);
        n->room = 2 * (2 * bytes + WIDEST);
    }
    size_t half = n->room / 2, count = 0;
    for (size_t i = 0; i < bytes;) {
        int last = 0;
        utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)get(p, &i), n->code + count, (utf8proc_ssize_t)(half - count),
                                                       UTF8PROC_STABLE | UTF8PROC_COMPOSE, &last);
        MOII_REQUIRE(got > 0 && (size_t)got <= half - count, MOI_ERR_INTERNAL, "tokenizer: cannot normalise a character: %s", utf8proc_errmsg(got));
        count += (size_t)got;
    }
    reorder(n->code, count, n->code + half);
    utf8proc_ssize_t got = utf8proc_normalize_utf32(n->code, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    MOII_REQUIRE(got >= 0, MOI_ERR_INTERNAL, "tokenizer: cannot normalise: %s", utf8proc_errmsg(got));
    MOII_TRY(moii_bytes_reserve(&n->copy, 4 * (size_t)got));
    for (utf8proc_ssize_t i = 0; i < got; i++)
        n->copy.count += (size_t)utf8proc_encode_char(n->code[i], (utf8proc_uint8_t *)n->copy.data + n->copy.count);
    return MOI_OK;
}

/* Only pieces around characters that are not inert are normalised, each with the inert character before it, which the first of
 * them may join. */
moi_status moii_nfc_apply(moii_nfc *n, const char **text, size_t *bytes)
{
    const uint8_t *p = (const uint8_t *)*text;
    size_t copied = 0, before = 0;
    n->copy.count = 0;
    for (size_t i = 0; i < *bytes;) {
        size_t here = i;
        uint32_t c = get(p, &i);
        if (inert(c) || young(c)) {
            before = inert(c) ? here : i;
            continue;
        }
        size_t end = i;
        while (i < *bytes && (c = get(p, &i), !inert(c) && !young(c))) end = i;
        MOII_TRY(moii_bytes_add(&n->copy, p + copied, before - copied));
        MOII_TRY(compose(n, p + before, end - before));
        copied = before = i = end;
    }
    if (copied == 0) return MOI_OK;
    MOII_TRY(moii_bytes_add(&n->copy, p + copied, *bytes - copied));
    *text = n->copy.data;
    *bytes = n->copy.count;
    return MOI_OK;
}

void moii_nfc_free(moii_nfc *n)
{
    free(n->copy.data);
    free(n->code);
}
