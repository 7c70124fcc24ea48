/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_utf8.c: text made valid UTF-8, and brought into NFC. */
#include <stdlib.h>
#include <utf8proc.h>

#include "status.h"
#include "tokenizer.h"

/* The length of the character at p, or minus the length of the maximal part that begins one and is cut off or wrong.  Which second
 * bytes a first one allows is table 3-7 of the Unicode standard. */
static int step(const uint8_t *p, size_t left)
{
    uint8_t c = p[0], low = 0x80, high = 0xBF;
    int n = c < 0x80 ? 1 : c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (n == 0) return -1;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (int i = 1; i < n; i++, low = 0x80, high = 0xBF)
        if ((size_t)i >= left || p[i] < low || p[i] > high) return -i;
    return n;
}

moi_status moii_utf8_repair(moii_bytes *copy, const char **text, size_t *bytes)
{
    const uint8_t *p = (const uint8_t *)*text;
    size_t good = 0, i = 0;
    copy->count = 0;
    while (i < *bytes) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        int n = step(p + i, *bytes - i);
        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        MOII_TRY(moii_bytes_add(copy, p + good, i - good));
        MOII_TRY(moii_bytes_add(copy, "\xEF\xBF\xBD", 3));
        good = i += (size_t)-n;
    }
    if (good == 0) return MOI_OK;
    MOII_TRY(moii_bytes_add(copy, p + good, i - good));
    *text = copy->data;
    *bytes = copy->count;
    return MOI_OK;
}

size_t moii_utf8_unfinished(const char *text, size_t bytes)
{
    for (size_t n = 1; n <= 3 && n <= bytes; n++) {
        uint8_t c = (uint8_t)text[bytes - n];
        if (c < 0x80) return 0;
        if (c < 0xC0) continue;
        if (c < 0xC2 || c > 0xF4) return 0; /* it begins nothing */
        size_t whole = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        /* is the end all that is wrong? */
        return n < whole && step((const uint8_t *)text + bytes - n, n) == -(int)n ? n : 0;
    }
    return 0;
}

/* Characters that NFC never changes, reorders, or joins to the one before, in the ranges that most text is made of. */
static bool inert(uint32_t c)
{
    if (c < 0x300) return true;
    static const struct { uint32_t first, last; } ranges[] = {
        { 0x3400, 0x9FFF }, { 0x3041, 0x3096 }, { 0x30A1, 0x30FA }, { 0xAC00, 0xD7A3 }, { 0x3001, 0x3029 }, { 0xFF01, 0xFFEE },
        { 0x2010, 0x2027 }, { 0x0400, 0x0482 }, { 0x2190, 0x2328 }, { 0x2500, 0x2ADB }, { 0x1F300, 0x1FAFF }, { 0x20000, 0x2A6DF },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
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
        if (inert(get(p, &i))) {
            before = here;
            continue;
        }
        size_t end = i;
        while (i < *bytes && !inert(get(p, &i))) end = i;
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
