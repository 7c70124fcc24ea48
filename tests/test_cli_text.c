/* SPDX-License-Identifier: Apache-2.0
 * test_cli_text.c: the pieces of the programs that text goes through: whole characters, stop strings held back, lists of ids,
 * and likelihoods from logits. */
#include "support.h"

#include <math.h>
#include <stdio.h>

#include "../cli/buffer.c"
#include "../cli/characters.c"
#include "../cli/endings.c"
#include "../cli/likelihood.c"

/* ---- characters -------------------------------------------------------------------------------------------------- */

#define BAD "\xEF\xBF\xBD"

/* What the bytes give when they come in pieces of n; each piece gives whole characters. */
static void clean(const char *in, size_t bytes, size_t n, buffer *out)
{
    characters c = { 0 };
    for (size_t at = 0; at < bytes; at += n) {
        assert_true(characters_add(&c, in + at, bytes - at < n ? bytes - at : n, out));
        assert_true(characters_valid(out->at ? out->at : "", out->n));
    }
    assert_true(characters_end(&c, out));
}

static void test_characters(void **state)
{
    (void)state;
    static const struct { const char *in, *out; } cases[] = {
        { "", "" }, { "abc", "abc" },
        { "\xE6\x97\xA5\xE6\x9C\xAC", "\xE6\x97\xA5\xE6\x9C\xAC" },             /* two characters of three bytes */
        { "\xF0\x9F\x98\x80!", "\xF0\x9F\x98\x80!" },                           /* four bytes */
        { "\x80", BAD }, { "a\xFF" "b", "a" BAD "b" },                           /* bytes that begin nothing */
        { "\xC3", BAD }, { "\xE6\x97", BAD }, { "\xF0\x9F\x98", BAD },           /* cut short by the end: one */
        { "\xE6\x97" "a", BAD "a" }, { "\xF0\x9F\x98\xE6\x97\xA5", BAD "\xE6\x97\xA5" }, /* cut short by another */
        { "\xC0\xAF", BAD BAD }, { "\xE0\x80\x80", BAD BAD BAD },                /* overlong */
        { "\xED\xA0\x80", BAD BAD BAD }, { "\xF4\x90\x80\x80", BAD BAD BAD BAD }, /* a surrogate; above U+10FFFF */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = 1; n <= 5; n++) {
            buffer out = { 0 };
            clean(cases[i].in, strlen(cases[i].in), n, &out);
            assert_string_equal(out.at ? out.at : "", cases[i].out);
            buffer_free(&out);
        }
    buffer zero = { 0 };
    clean("a\0b", 3, 1, &zero); /* NUL is a character like others */
    assert_int_equal(zero.n, 3);
    buffer_free(&zero);
}

/* ---- stop strings ------------------------------------------------------------------------------------------------ */

/* By definition: the text before the ending whose last byte comes first, and of those the longest; the whole length if none. */
static size_t before_ending(const arg_list *e, const char *text, size_t n, bool *found)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (int i = 0; i < e->n; i++) {
            size_t length = strlen(e->at[i]);
            if (length <= end && !strncmp(text + end - length, e->at[i], length) && length > longest) longest = length;
        }
        if (longest) return *found = true, end - longest;
    }
    *found = false;
    return n;
}

static void run_endings(const arg_list *e, const char *text, moit_rng *rng)
{
    buffer held = { 0 }, out = { 0 };
    const size_t n = strlen(text);
    bool wanted, found = false;
    const size_t before = before_ending(e, text, n, &wanted);
    for (size_t at = 0; at < n && !found;) {
        size_t piece = (size_t)moit_below(rng, 4) + 1; /* a token */
        if (piece > n - at) piece = n - at;
        assert_true(endings_add(e, &held, text + at, piece, &out, &found));
        at += piece;
        assert_true(out.n <= before); /* nothing of an ending came out */
        bool begins = held.n == 0;
        for (int i = 0; i < e->n; i++) begins |= held.n > 0 && !strncmp(e->at[i], held.at, held.n);
        assert_true(begins); /* and nothing waits that cannot become one */
        assert_true(found || out.n + held.n == at);
    }
    assert_true(found == wanted);
    if (!found) assert_true(endings_flush(&held, &out));
    assert_int_equal(out.n, before);
    assert_true(before == 0 || !memcmp(out.at, text, before));
    buffer_free(&held);
    buffer_free(&out);
}

static void test_endings(void **state)
{
    (void)state;
    moit_rng rng = moit_seed("endings", 0);
    for (int round = 0; round < 20000; round++) {
        char stops[3][6], text[24];
        arg_list e = { .n = (int)moit_below(&rng, 4) };
        for (int i = 0; i < e.n; i++) {
            const int64_t length = moit_below(&rng, 5) + 1;
            for (int64_t j = 0; j < length; j++) stops[i][j] = (char)('a' + moit_below(&rng, 2));
            stops[i][length] = 0;
            e.at[i] = stops[i];
        }
        const int64_t length = moit_below(&rng, 23);
        for (int64_t j = 0; j < length; j++) text[j] = (char)('a' + moit_below(&rng, 2 + round % 2));
        text[length] = 0;
        run_endings(&e, text, &rng);
    }
    arg_list e = { .at = { "###", "\n\nUser:" }, .n = 2 };
    run_endings(&e, "one ## two\n\nUse more\n\n\nUser: no", &rng);
    run_endings(&e, "##", &rng);
    run_endings(&e, "####", &rng);
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static void test_ids(void **state)
{
    (void)state;
    id_list ids = { 0 };
    static const char good[] = " 1,2\t3 ,, 007\r\n151935,";
    assert_true(id_list_parse(&ids, "test", "here", good, sizeof good - 1, 151936));
    static const int32_t wanted[] = { 1, 2, 3, 7, 151935 };
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.at, wanted, sizeof wanted);
    static const char *const bad[] = { "", " ,\n", "1 x", "-1", "1.5", "0x1", "300", "4294967297", "99999999999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(id_list_parse(&ids, "test", "here", bad[i], strlen(bad[i]), 300));
    id_list_free(&ids);
}

/* ---- likelihoods ------------------------------------------------------------------------------------------------- */

static void test_likelihood(void **state)
{
    (void)state;
    const float a[] = { 0, logf(3.0f), -INFINITY, 1000, 1000, 0 }, b[] = { 0, 0, 0, 1000, 1000, -1000 };
    const int32_t targets[] = { 0, 1 };
    likelihood of_a[2], of_b[2];
    double kl[2];
    likelihood_rows(2, a, targets, 2, 3, of_a);
    likelihood_rows(1, b, targets, 2, 3, of_b);
    assert_true(fabs(of_a[0].nats - log(4)) < 1e-7); /* logf(3) is rounded to float: 2^-24 relative */
    assert_true(fabs(of_a[1].nats - log(2)) < 1e-12 && fabs(of_b[0].nats - log(3)) < 1e-12);
    assert_int_equal(of_a[0].best, 1);
    assert_int_equal(of_a[1].best, 0); /* the lowest of equals */
    likelihood_kl(2, a, b, of_a, of_b, 2, 3, kl);
    assert_true(fabs(kl[0] - (0.25 * log(0.75) + 0.75 * log(2.25))) < 1e-7);
    assert_true(fabs(kl[1]) < 1e-12);
    likelihood_kl(1, a, a, of_a, of_a, 2, 3, kl);
    assert_true(kl[0] == 0 && kl[1] == 0);
    likelihood_kl(1, b, a, of_b, of_a, 2, 3, kl);
    assert_true(isinf(kl[0])); /* a gives probability 0 to a token of b */
    const float broken[] = { 1, NAN, 2 };
    likelihood_rows(1, broken, targets, 1, 3, of_a);
    assert_true(isnan(of_a[0].nats));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_characters), cmocka_unit_test(test_endings), cmocka_unit_test(test_ids),
                                        cmocka_unit_test(test_likelihood) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
