/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_split.c: where words end: the regular expression of tokenizer.json, run by PCRE2.
 *
 * The reference runs it with Oniguruma.  The two agree on the syntax such patterns use and on what \p{L}, \p{N} and \s mean, but
 * for two things, so that these three are rewritten: PCRE2 counts U+180E as white space and Oniguruma does not, and PCRE2 may
 * know an older Unicode (Debian 12: 14, against 16). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

/* Steps a match may take: far more than the patterns of real folders need (a few for each byte of a run of spaces), and an end
 * for hostile ones. */
static uint32_t steps_for(size_t bytes)
{
    uint64_t steps = 50u * 1000 * 1000 + 8 * (uint64_t)bytes;
    return steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
}

/* Classes without their brackets.  The ranges are what Unicode 15 and 16 added, of no use where PCRE2 knows them. */
#define SPACES "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define LETTERS "\\p{L}" \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}" \
    "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}" \
    "\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}" \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}" \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}" \
    "\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NUMBERS "\\p{N}" \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}" \
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

typedef struct rewrite { const char *from, *inside, *outside; } rewrite;
static const rewrite rewrites[] = {
    { "\\s", SPACES, "[" SPACES "]" },
    { "\\S", NULL, "[^" SPACES "]" },
    { "\\p{L}", LETTERS, "[" LETTERS "]" },
    { "\\p{N}", NUMBERS, "[" NUMBERS "]" },
    { "\\P{L}", NULL, "[^" LETTERS "]" },
    { "\\P{N}", NULL, "[^" NUMBERS "]" },
};

static moi_status add_text(moii_bytes *to, const char *text)
{
    return moii_bytes_add(to, text, strlen(text));
}

/* Copies an escape, rewritten if it is one of the above; *i stands at its backslash, and then behind what was read. */
static moi_status escape(moii_bytes *to, const char *where, const char *pattern, size_t bytes, size_t *i, bool class)
{
    for (size_t k = 0; k < sizeof rewrites / sizeof *rewrites; k++) {
        const rewrite *r = &rewrites[k];
        size_t n = strlen(r->from);
        if (bytes - *i < n || memcmp(pattern + *i, r->from, n)) continue;
        MOII_REQUIRE(!class || r->inside, MOI_ERR_FORMAT, "%s: this library does not read patterns with %s inside a class", where, r->from);
        *i += n;
        return add_text(to, class ? r->inside : r->outside);
    }
    size_t n = bytes - *i < 2 ? bytes - *i : 2;
    *i += n;
    return moii_bytes_add(to, pattern + *i - n, n);
}

static moi_status translate(moii_bytes *to, const char *where, const char *pattern, size_t bytes)
{
    bool class = false;
    for (size_t i = 0; i < bytes;) {
        if (pattern[i] == '\\') {
            MOII_TRY(escape(to, where, pattern, bytes, &i, class));
            continue;
        }
        /* Oniguruma nests classes and intersects them, PCRE2 does not */
        bool nested = class && (pattern[i] == '[' || (pattern[i] == '&' && i + 1 < bytes && pattern[i + 1] == '&'));
        MOII_REQUIRE(!nested, MOI_ERR_FORMAT, "%s: this library does not read patterns with %c inside a class", where, pattern[i]);
        if (pattern[i] == '[') class = true;
        if (pattern[i] == ']') class = false;
        MOII_TRY(moii_bytes_add(to, pattern + i++, 1));
    }
    return MOI_OK;
}

static moi_status compile(moii_splitter *s, const char *where, const char *pattern, size_t bytes)
{
    int error;
    PCRE2_SIZE at;
    uint32_t empty = 0;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, bytes, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    if (!code) {
        char text[160] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        MOII_FAIL(MOI_ERR_FORMAT, "%s: wanted a regular expression that PCRE2 takes, got one with an error: %s", where, text);
    }
    s->code = code;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    MOII_REQUIRE(!empty, MOI_ERR_FORMAT, "%s: wanted a pattern that matches at least one character, got one that may match none", where);
    s->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    return MOI_OK;
}

moi_status moii_splitter_create(moii_splitter *s, const char *where, const char *pattern, size_t bytes)
{
    moii_bytes own = { 0 };
    MOII_REQUIRE(bytes <= 65536, MOI_ERR_FORMAT, "%s: wanted a pattern of at most 65536 bytes, got %zu", where, bytes);
    moi_status status = translate(&own, where, pattern, bytes);
    if (!status) status = compile(s, where, own.data ? own.data : "", own.count);
    free(own.data);
    return status;
}

void moii_splitter_free(moii_splitter *s)
{
    pcre2_code_free(s->code);
}

typedef struct scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
} scratch;

void *moii_splitter_scratch(const moii_splitter *s)
{
    scratch *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->data = pcre2_match_data_create(1, NULL);
    x->context = pcre2_match_context_create(NULL);
    x->stack = s->jit ? pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, NULL) : NULL;
    if (!x->data || !x->context || (s->jit && !x->stack)) {
        moii_splitter_scratch_free(x);
        return NULL;
    }
    if (s->jit) pcre2_jit_stack_assign(x->context, NULL, x->stack);
    return x;
}

void moii_splitter_scratch_free(void *p)
{
    scratch *x = p;
    if (!x) return;
    pcre2_match_data_free(x->data);
    pcre2_match_context_free(x->context);
    pcre2_jit_stack_free(x->stack);
    free(x);
}

moi_status moii_splitter_next(const moii_splitter *s, void *p, const char *text, size_t bytes, size_t from, size_t *begin, size_t *end)
{
    scratch *x = p;
    pcre2_set_match_limit(x->context, steps_for(bytes - from));
    int n = s->jit ? pcre2_jit_match(s->code, (PCRE2_SPTR)text, bytes, from, 0, x->data, x->context)
                   : pcre2_match(s->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, x->data, x->context);
    *begin = *end = bytes;
    if (n == PCRE2_ERROR_NOMATCH) return MOI_OK;
    if (n < 0) {
        char why[160] = "";
        pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof why);
        MOII_FAIL(n == PCRE2_ERROR_NOMEMORY ? MOI_ERR_NOMEM : MOI_ERR_FORMAT, "tokenizer encode: the pattern of tokenizer.json fails on byte %zu: %s",
                  from, why);
    }
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(x->data);
    MOII_REQUIRE(found[1] > found[0] && found[0] >= from, MOI_ERR_FORMAT, "tokenizer encode: the pattern of tokenizer.json matches nothing at byte %zu", from);
    *begin = found[0];
    *end = found[1];
    return MOI_OK;
}
