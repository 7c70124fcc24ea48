/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_utf8.c: text made valid UTF-8. */
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
