/* SPDX-License-Identifier: Apache-2.0
 * test_files.c: safetensors and JSON files: what is written comes back, hostile input is refused with a reason, and a
 * write that fails leaves what was there. */
#include "support.h"
#include "support_files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../src/lm/json_file.h"
#include "../src/lm/safetensors.h"

/* A file in memory: the length, the header, `data` bytes of 1, 2, 3...; exactly as long as it says, so that the address
 * sanitizer sees every read behind it. */
static unsigned char *file_of(const char *header, size_t length, int64_t data, int64_t *size)
{
    *size = 8 + (int64_t)length + data;
    unsigned char *b = malloc((size_t)*size);
    assert_non_null(b);
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(b + 8, header, length);
    for (int64_t i = 0; i < data; i++) b[8 + (int64_t)length + i] = (unsigned char)(i + 1);
    return b;
}

static moi_status open_header(moi_st **f, const char *header, int64_t data)
{
    int64_t size;
    unsigned char *b = file_of(header, strlen(header), data, &size);
    moit_write_file(moit_path("case"), b, size);
    moi_status from_memory = moii_st_open_memory(f, "case", b, size);
    moi_st_close(*f);
    free(b);
    moi_status from_file = moi_st_open(f, moit_path("case"));
    unlink(moit_path("case"));
    assert_int_equal(from_memory, from_file);
    return from_file;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const moi_dtype types[] = { MOI_F64, MOI_F32, MOI_F16, MOI_BF16, MOI_E4M3, MOI_E5M2, MOI_E8M0, MOI_E3M2, MOI_E2M3, MOI_E2M1,
                                       MOI_I64, MOI_I32, MOI_I16, MOI_I8, MOI_U64, MOI_U32, MOI_U16, MOI_U8, MOI_BOOL };
    enum { TYPES = sizeof types / sizeof *types };
    static const int64_t shape[8] = { 2, 4, 1, 3, 1, 1, 1, 1 };
    const char *path = moit_path("round");
    moi_st_writer *w;
    unsigned char data[24 * 8];
    char name[64];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
    moit_ok(moi_st_writer_create(&w, path));
    moit_ok(moi_st_writer_metadata(w, "who", "\xC3\xA4 \"quoted\" \n"));
    int64_t total = 0;
    for (int i = 0; i < TYPES; i++) {
        snprintf(name, sizeof name, "%s \xE2\x82\xAC \\ %d", moi_st_dtype_name(types[i]), i);
        moit_ok(moi_st_writer_declare(w, name, types[i], i % 5 + 4, shape));
        total += 24 * moi_dtype_bits(types[i]) / 8;
    }
    moit_ok(moi_st_writer_declare(w, "scalar", MOI_U8, 0, NULL));
    moit_ok(moi_st_writer_declare(w, "empty", MOI_F32, 2, (int64_t[]){ 0, 7 }));
    total += 1;
    unsigned char *all = malloc((size_t)total);
    for (int64_t i = 0; i < total; i++) all[i] = (unsigned char)(i * 53 >> 3);
    for (int64_t at = 0; at < total; at += 7) moit_ok(moi_st_writer_write(w, all + at, at + 7 < total ? 7 : total - at));
    moit_ok(moi_st_writer_commit(w));
    assert_int_equal(moit_entries(), 1);

    moi_st *f;
    moi_tensor t;
    moit_ok(moi_st_open(&f, path));
    assert_int_equal(moi_st_count(f), TYPES + 2);
    assert_string_equal(moi_st_metadata(f, "who"), "\xC3\xA4 \"quoted\" \n");
    assert_null(moi_st_metadata(f, "whom"));
    int64_t at = 0;
    for (int64_t i = 0; i < moi_st_count(f); i++) { /* read, forget, read again */
        moit_ok(moi_st_get(f, i, &t));
        assert_memory_equal(t.data, all + at, (size_t)t.bytes);
        moi_st_forget(f, &t);
        assert_memory_equal(t.data, all + at, (size_t)t.bytes);
        at += t.bytes;
    }
    for (int i = 0; i < TYPES; i++) {
        snprintf(name, sizeof name, "%s \xE2\x82\xAC \\ %d", moi_st_dtype_name(types[i]), i);
        moit_ok(moi_st_find(f, name, &t));
        assert_int_equal(t.dtype, types[i]);
        assert_int_equal(t.rank, i % 5 + 4);
        assert_int_equal(t.elements, 24);
        assert_memory_equal(t.shape, shape, (size_t)t.rank * 8);
    }
    moit_ok(moi_st_find(f, "scalar", &t));
    assert_int_equal(t.elements, 1);
    moit_refused(moi_st_find(f, "scalars", &t), MOI_ERR_ARG, "no tensor 'scalars' among 21");
    moit_refused(moi_st_get(f, 21, &t), MOI_ERR_ARG, "index must be 0..20, got 21");
    moi_st_close(f);
    moi_st_close(NULL);
    assert_null(moi_st_dtype_name(MOI_INT8));
    free(all);
    unlink(path);
}

#define T(name, dtype, shape, begin, end) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_valid_headers(void **state)
{
    (void)state;
    moi_st *f;
    moi_tensor t;
    moit_ok(open_header(&f, "{}", 0));
    assert_int_equal(moi_st_count(f), 0);
    moi_st_close(f);
    /* in any order, with white space, unknown members, empty tensors between others */
    moit_ok(open_header(&f, "{ " T("b", "F32", "[2]", "4", "12") " ,\n" T("e", "F32", "[0]", "4", "4") "," T("a", "U8", "[ 4 ]", "0", "4")
                            ",\"c\":{\"extra\":[{}],\"data_offsets\":[12,13],\"shape\":[2],\"dtype\":\"F4\"},\"__metadata__\":{}}  ", 13));
    static const char *const order[] = { "a", "e", "b", "c" };
    for (int i = 0; i < 4; i++) {
        moit_ok(moi_st_get(f, i, &t));
        assert_string_equal(t.name, order[i]);
    }
    assert_int_equal(((const unsigned char *)t.data)[0], 13);
    moi_st_close(f);
}

static const struct { const char *header; int64_t data; const char *message; } malformed[] = {
    { "", 0, "header byte 0: wanted '{', got the end" },
    { " {}", 0, "header byte 0: wanted '{', got 0x20" },
    { "[]", 0, "wanted '{', got 0x5b" },
    { "{", 0, "a name in quotes, got the end" },
    { "{}x", 0, "header byte 2: wanted spaces up to the data" },
    { "{}\n", 0, "spaces up to the data" },
    { "{} {}", 0, "spaces up to the data" },
    { "{1:2}", 0, "a name in quotes" },
    { "{\"a\"}", 0, "wanted ':'" },
    { "{\"a\":}", 0, "'a': not valid JSON" },
    { "{\"a\":{}", 0, "'a': \"dtype\" must be there" },
    { "{" T("a", "U8", "[1]", "0", "1"), 1, "',' or '}', got the end" },
    { "{" T("a", "U8", "[1]", "0", "1") ",}", 1, "a name in quotes" },
    { "{" T("a", "U8", "[1]", "0", "1") " " T("b", "U8", "[1]", "1", "2") "}", 2, "',' or '}'" },
    { "{\"a\":7}", 0, "'a': wanted an object" },
    { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "\"shape\" must be there" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "\"data_offsets\" must be there" },
    { "{\"a\":{\"dtype\":8,\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "\"dtype\" must be there and a string" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "duplicate object key" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "an array of two integers" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "an array of two integers" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":0,\"1\":1}}}", 1, "an array of two integers" },
    { "{" T("a", "F33", "[1]", "0", "4") "}", 4, "unknown dtype 'F33'" },
    { "{" T("a", "f32", "[1]", "0", "4") "}", 4, "unknown dtype 'f32'" },
    { "{" T("a", "F32", "4", "0", "4") "}", 4, "\"shape\" must be there and an array" },
    { "{" T("a", "F32", "[1.0]", "0", "4") "}", 4, "dimension 0 must be an integer" },
    { "{" T("a", "F32", "[1,-1]", "0", "4") "}", 4, "dimension 1 must be an integer >= 0" },
    { "{" T("a", "F32", "[true]", "0", "4") "}", 4, "dimension 0" },
    { "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "at most 8 dimensions, got 9" },
    { "{" T("a", "U8", "[4294967296,4294967296]", "0", "1") "}", 1, "its shape overflows" },
    { "{" T("a", "U8", "[9223372036854775807]", "0", "1") "}", 1, "its shape overflows" },
    { "{" T("a", "U8", "[9223372036854775808]", "0", "1") "}", 1, "not valid JSON" },
    { "{" T("a", "F64", "[288230376151711744]", "0", "1") "}", 1, "its shape overflows" },
    { "{" T("a", "F4", "[3]", "0", "2") "}", 2, "ends inside a byte" },
    { "{" T("a", "U8", "[2]", "-1", "1") "}", 1, "data_offsets must ascend within 0..1, got -1 and 1" },
    { "{" T("a", "U8", "[2]", "2", "0") "}", 2, "must ascend within 0..2, got 2 and 0" },
    { "{" T("a", "U8", "[9]", "0", "9") "}", 8, "must ascend within 0..8, got 0 and 9" },
    { "{" T("a", "U8", "[1]", "0", "18446744073709551615") "}", 1, "not valid JSON" },
    { "{" T("a", "F32", "[2]", "0", "7") "}", 7, "its shape wants 8 bytes, its data_offsets give 7" },
    { "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "3", "7") "}", 7,
      "tensor 'b': wanted its data at byte 4 behind the one before, got 3 (overlap)" },
    { "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "0", "4") "}", 4, "(overlap)" },
    { "{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[2]", "5", "7") "}", 7, "got 5 (hole)" },
    { "{" T("a", "U8", "[4]", "1", "5") "}", 5, "wanted its data at byte 0 behind the one before, got 1 (hole)" },
    { "{" T("a", "U8", "[4]", "0", "4") "}", 5, "wanted 4 bytes of data, which the tensors cover, got 5" },
    { "{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "1", "2") "}", 2, "tensor 'a' is there twice" },
    { "{" T("a", "U8", "[0]", "0", "0") "," T("b", "U8", "[0]", "0", "0") "," T("a", "U8", "[0]", "0", "0") "}", 0, "'a' is there twice" },
    { "{" T("\xFF", "U8", "[0]", "0", "0") "}", 0, "not valid JSON: unable to decode byte 0xff" },
    { "{" T("\xC0\xAF", "U8", "[0]", "0", "0") "}", 0, "not valid JSON" },
    { "{" T("\xED\xA0\x80", "U8", "[0]", "0", "0") "}", 0, "not valid JSON" },
    { "{" T("a\\u0000b", "U8", "[0]", "0", "0") "}", 0, "not valid JSON" },
    { "{" T("a\\ud800", "U8", "[0]", "0", "0") "}", 0, "not valid JSON" },
    { "{" T("\\u001b[2J", "U9", "[0]", "0", "0") "}", 0, "tensor '?[2J': unknown dtype" },
    { "{\"__metadata__\":[]}", 0, "\"__metadata__\": wanted an object of strings" },
    { "{\"__metadata__\":{\"k\":1}}", 0, "'k' must be a string" },
    { "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate object key" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "a second \"__metadata__\"" },
};

static void test_malformed(void **state)
{
    (void)state;
    moi_st *f;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        moit_refused(open_header(&f, malformed[i].header, malformed[i].data), MOI_ERR_FORMAT, malformed[i].message);
        assert_null(f);
    }
    moit_refused(moi_st_open(&f, moit_path("none")), MOI_ERR_IO, "none: No such file");
    moit_refused(moi_st_open(&f, "/tmp"), MOI_ERR_IO, "no regular file");
    moit_refused(moi_st_open(&f, "/dev/zero"), MOI_ERR_IO, "no regular file");
    moit_refused(moi_st_open(&f, NULL), MOI_ERR_ARG, "path is NULL");
    moit_write_file(moit_path("empty"), "", 0);
    moit_refused(moi_st_open(&f, moit_path("empty")), MOI_ERR_FORMAT, "at least 8 bytes, got 0");
    unlink(moit_path("empty"));
}

static const char sample[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("a.weight", "BF16", "[2,3]", "0", "12") ","
                             T("b", "F32", "[]", "12", "16") "," T("c", "U8", "[0,5]", "16", "16") "}   ";

/* What a file that opened says of itself holds. */
static void check_sound(const moi_st *f, const unsigned char *bytes, int64_t size)
{
    moi_tensor t;
    int64_t sum = 0;
    for (int64_t i = 0; i < moi_st_count(f); i++) {
        moit_ok(moi_st_get(f, i, &t));
        const unsigned char *at = t.data;
        assert_true(at >= bytes + 8 && at + t.bytes <= bytes + size && t.rank <= MOI_ST_MAX_RANK && t.elements >= 0);
        sum += t.bytes;
        moit_ok(moi_st_find(f, t.name, &t));
        assert_ptr_equal(t.data, at);
    }
    assert_int_equal(f->data_start + sum, size);
}

static void test_damaged(void **state)
{
    (void)state;
    moi_st *f;
    int64_t size, accepted = 0, refused = 0;
    unsigned char *whole = file_of(sample, strlen(sample), 16, &size);
    for (int64_t cut = 0; cut < size; cut++) { /* truncated: never accepted, never read behind the end */
        unsigned char *part = malloc((size_t)cut + 1);
        memcpy(part, whole, (size_t)cut);
        unsigned char *exact = realloc(part, (size_t)(cut ? cut : 1));
        assert_int_equal(moii_st_open_memory(&f, "cut", exact, cut), MOI_ERR_FORMAT);
        assert_null(f);
        free(exact);
    }
    for (int64_t bit = 0; bit < 8 * (size - 16); bit++) { /* every bit of length and header: refused, or still consistent */
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
        moi_status status = moii_st_open_memory(&f, "flip", whole, size);
        if (status) {
            assert_int_equal(status, MOI_ERR_FORMAT);
            assert_true(strlen(moi_last_error()) > 10);
            refused++;
        } else {
            check_sound(f, whole, size);
            accepted++;
        }
        moi_st_close(f);
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(accepted > 0 && refused > 4 * accepted); /* letters of names may change; nearly all else is noticed */
    free(whole);
}

static void test_lengths(void **state)
{
    (void)state;
    moi_st *f;
    unsigned char head[16] = { 0 };
    static const uint64_t lengths[] = { 9, 100, 100000000, 100000001, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int j = 0; j < 8; j++) head[j] = (unsigned char)(lengths[i] >> 8 * j);
        moit_refused(moii_st_open_memory(&f, "length", head, sizeof head), MOI_ERR_FORMAT,
                     lengths[i] > 100000000 ? "at most 100000000 bytes" : "the file has 8 behind its length");
    }
    /* a sparse file that is all header */
    const char *path = moit_path("sparse");
    for (int j = 0; j < 8; j++) head[j] = (unsigned char)(UINT64_C(100000000) >> 8 * j);
    moit_write_file(path, head, 8);
    assert_int_equal(truncate(path, 100000008), 0);
    moit_refused(moi_st_open(&f, path), MOI_ERR_FORMAT, "wanted '{', got 0x00");
    unlink(path);
}

/* Headers that are large in every way end soon, and hold little memory. */
static void test_large_headers(void **state)
{
    (void)state;
    enum { COUNT = 100000, SIZE = COUNT * 64 };
    char *h = malloc(SIZE);
    moi_st *f;
    moi_tensor t;
    size_t n = 0;
    for (int i = 0; i < COUNT; i++)
        n += (size_t)snprintf(h + n, SIZE - n, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? ',' : '{', i);
    strcpy(h + n, "}");
    moit_ok(open_header(&f, h, 0));
    assert_int_equal(moi_st_count(f), COUNT);
    moit_ok(moi_st_find(f, "t77777", &t));
    moi_st_close(f);
    for (int open = 0; open < 2; open++) { /* nesting, at the top and inside an entry */
        n = (size_t)sprintf(h, open ? "{\"a\":{\"shape\":" : "{\"a\":");
        memset(h + n, open ? '[' : '{', SIZE - n - 1);
        if (!open) for (size_t i = n; i + 4 < SIZE; i += 5) memcpy(h + i, "{\"a\":", 5);
        h[SIZE - 1] = '\0';
        moit_refused(open_header(&f, h, 0), MOI_ERR_FORMAT, "not valid JSON: maximum parsing depth reached");
    }
    n = (size_t)sprintf(h, "{\"a\":{\"shape\":[");
    for (; n + 3 < SIZE; n += 2) memcpy(h + n, "0,", 2);
    strcpy(h + n, "0");
    moit_refused(open_header(&f, h, 0), MOI_ERR_FORMAT, "'a': wanted at most 65536 bytes of JSON");
    n = (size_t)sprintf(h, "{\"");
    memset(h + n, 'x', SIZE - n - 1);
    h[SIZE - 1] = '\0';
    moit_refused(open_header(&f, h, 0), MOI_ERR_FORMAT, "'a name': wanted at most 65536 bytes");
    free(h);
}

static void test_writer_refusals(void **state)
{
    (void)state;
    const char *path = moit_path("w");
    moi_st_writer *w;
    const int64_t one[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, negative = -1, huge[2] = { INT64_MAX / 2, 4 };
    moit_ok(moi_st_writer_create(&w, path));
    moit_ok(moi_st_writer_declare(w, "a", MOI_F32, 1, one));
    moit_refused(moi_st_writer_declare(w, "a", MOI_F32, 1, one), MOI_ERR_ARG, "'a'");
    moit_refused(moi_st_writer_declare(w, "__metadata__", MOI_F32, 1, one), MOI_ERR_ARG, "reserved");
    moit_refused(moi_st_writer_declare(w, "\xFF", MOI_F32, 1, one), MOI_ERR_ARG, "UTF-8");
    moit_refused(moi_st_writer_declare(w, "b", MOI_INT8, 1, one), MOI_ERR_ARG, "no type for int8");
    moit_refused(moi_st_writer_declare(w, "b", MOI_F32, 9, one), MOI_ERR_ARG, "rank must be 0..8, got 9");
    moit_refused(moi_st_writer_declare(w, "b", MOI_F32, 1, &negative), MOI_ERR_SHAPE, "negative");
    moit_refused(moi_st_writer_declare(w, "b", MOI_F32, 2, huge), MOI_ERR_SHAPE, "overflows");
    moit_refused(moi_st_writer_declare(w, "b", MOI_E2M1, 1, one), MOI_ERR_SHAPE, "inside a byte");
    moit_refused(moi_st_writer_metadata(w, "k", "\xFF"), MOI_ERR_ARG, "UTF-8");
    moit_refused(moi_st_writer_write(w, one, 5), MOI_ERR_SHAPE, "4 bytes are declared, got 5");
    moit_ok(moi_st_writer_write(w, one, 3));
    moit_refused(moi_st_writer_declare(w, "c", MOI_U8, 1, one), MOI_ERR_ARG, "too late");
    moit_refused(moi_st_writer_write(w, one, 2), MOI_ERR_SHAPE, "got 5");
    moit_refused(moi_st_writer_commit(w), MOI_ERR_SHAPE, "4 bytes are declared, got 3");
    assert_int_equal(moit_entries(), 0);
    moit_ok(moi_st_writer_create(&w, path));
    moi_st_writer_cancel(w);
    moi_st_writer_cancel(NULL);
    assert_int_equal(moit_entries(), 0);
    moit_ok(moi_st_writer_create(&w, path)); /* no tensors at all is a file too */
    moit_ok(moi_st_writer_commit(w));
    moi_st *f;
    moit_ok(moi_st_open(&f, path));
    assert_int_equal(moi_st_count(f), 0);
    moi_st_close(f);
    unlink(path);
}

static moi_status write_floats(const char *path, int64_t count)
{
    moi_st_writer *w;
    float *x = calloc((size_t)count, 4);
    moi_status status = moi_st_writer_create(&w, path);
    if (!status) {
        status = moi_st_writer_declare(w, "x", MOI_F32, 1, &count);
        if (!status) status = moi_st_writer_write(w, x, 4 * count);
        if (!status) status = moi_st_writer_commit(w);
        else moi_st_writer_cancel(w);
    }
    free(x);
    return status;
}

static void check_content(const char *path, const char *text)
{
    int64_t n;
    unsigned char *b = moit_read_file(path, &n);
    assert_non_null(b);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(b, text, (size_t)n);
    free(b);
}

static void test_places(void **state)
{
    (void)state;
    const char *path = moit_path("file"), *link = moit_path("link"), *folder = moit_path("folder"), *inside = moit_path("folder/x");
    struct stat s;
    moit_refused(write_floats(moit_path("none/x"), 4), MOI_ERR_IO, "none/x: No such file");
    moit_refused(write_floats("/proc/x", 4), MOI_ERR_IO, "cannot write /proc/x");
    moit_refused(write_floats("", 4), MOI_ERR_ARG, "its path is empty");
    moit_refused(write_floats("/dev/null", 4), MOI_ERR_IO, "no regular file"); /* root must not replace a device */
    assert_int_equal(mkdir(folder, 0555), 0);
    moit_refused(write_floats(folder, 4), MOI_ERR_IO, "no regular file");
    int root = geteuid() == 0;
    if (root) assert_int_equal(seteuid(65534), 0);
    moi_status status = write_floats(inside, 4);
    if (root) assert_int_equal(seteuid(0), 0);
    moit_refused(status, MOI_ERR_IO, "Permission denied");
    assert_int_equal(rmdir(folder), 0);
    moit_write_file(path, "old", 3); /* a link stays a link */
    assert_int_equal(symlink("file", link), 0);
    moit_ok(write_floats(link, 4));
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(stat(path, &s), 0);
    assert_true(s.st_size > 16);
    assert_int_equal(moit_entries(), 2);
    unlink(path), unlink(link);
}

/* A disk that is full, played by a file-size limit, and, where we may mount one, by a small one: the old file stays. */
static void test_full_disk(void **state)
{
    (void)state;
    const char *path = moit_path("file");
    struct rlimit old, small;
    moit_write_file(path, "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    for (rlim_t limit = 0; limit <= 4096; limit += 2048) { /* in the header; in the data */
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        moi_status status = write_floats(path, 4096);
        json_t *object = json_pack("{s:s}", "k", "v");
        moi_status json_status = limit ? MOI_ERR_IO : moii_json_save(object, path);
        json_decref(object);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        moit_refused(status, MOI_ERR_IO, "File too large");
        assert_int_equal(json_status, MOI_ERR_IO);
        check_content(path, "old");
        assert_int_equal(moit_entries(), 1);
    }
    unlink(path);
    const char *disk = moit_path("disk");
    assert_int_equal(mkdir(disk, 0700), 0);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=16k") == 0) {
        const char *inside = moit_path("disk/file");
        moit_write_file(inside, "old", 3);
        moit_refused(write_floats(inside, 4096), MOI_ERR_IO, "No space left");
        check_content(inside, "old");
        unlink(inside);
        assert_int_equal(umount(disk), 0); /* fails if a temporary file were still open */
    }
    rmdir(disk);
}

static void test_json(void **state)
{
    (void)state;
    const char *path = moit_path("j.json");
    json_t *o;
    int64_t i = 7;
    double d = 7;
    bool b = true;
    const char *s = "seven";
    static const struct { const char *text, *message; } bad[] = {
        { "", "not valid JSON" }, { "[1]", "wanted a JSON object" }, { "{\"a\":1,\"a\":2}", "duplicate object key" },
        { "{\"a\":1} x", "end of file expected" }, { "{\"a\":\"\xFF\"}", "line 1, column" }, { "{\"a\":12345678901234567890}", "too big" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        moit_write_file(path, bad[k].text, (int64_t)strlen(bad[k].text));
        moit_refused(moii_json_load(&o, path, 1000), MOI_ERR_FORMAT, bad[k].message);
        assert_null(o);
    }
    moit_refused(moii_json_load(&o, path, 10), MOI_ERR_FORMAT, "wanted at most 10 bytes of JSON, got 26");
    moit_refused(moii_json_load(&o, moit_path("none"), 10), MOI_ERR_IO, "none: No such file");
    moit_refused(moii_json_load(&o, "/tmp", 10), MOI_ERR_IO, "no regular file");
    o = json_pack("{s:i, s:f, s:b, s:s, s:n}", "i", 3, "d", 0.1, "b", 0, "s", "three", "n");
    moit_ok(moii_json_save(o, path));
    json_decref(o);
    moit_ok(moii_json_load(&o, path, 1000));
    moit_ok(moii_json_int(o, path, "i", MOII_JSON_REQUIRED, 0, 3, &i));
    moit_ok(moii_json_real(o, path, "d", MOII_JSON_REQUIRED, 0, 3, &d));
    moit_ok(moii_json_bool(o, path, "b", MOII_JSON_REQUIRED, &b));
    moit_ok(moii_json_string(o, path, "s", MOII_JSON_REQUIRED, &s));
    assert_true(i == 3 && d == 0.1 && !b && !strcmp(s, "three"));
    moit_ok(moii_json_int(o, path, "n", MOII_JSON_OPTIONAL, 0, 3, &i));
    moit_ok(moii_json_real(o, path, "none", MOII_JSON_OPTIONAL, 0, 3, &d));
    assert_true(i == 3 && d == 0.1);
    moit_refused(moii_json_int(o, "j", "n", MOII_JSON_REQUIRED, 0, 3, &i), MOI_ERR_FORMAT, "j: \"n\" is missing; wanted an integer");
    moit_refused(moii_json_int(o, "j", "i", MOII_JSON_OPTIONAL, 4, 9, &i), MOI_ERR_FORMAT, "j: \"i\": wanted 4..9, got 3");
    moit_refused(moii_json_int(o, "j", "d", MOII_JSON_OPTIONAL, 4, 9, &i), MOI_ERR_FORMAT, "wanted an integer, got a real number");
    moit_refused(moii_json_real(o, "j", "s", MOII_JSON_OPTIONAL, 4, 9, &d), MOI_ERR_FORMAT, "wanted a number, got a string");
    moit_refused(moii_json_real(o, "j", "i", MOII_JSON_OPTIONAL, 4, 9, &d), MOI_ERR_FORMAT, "wanted 4..9, got 3");
    moit_refused(moii_json_bool(o, "j", "i", MOII_JSON_OPTIONAL, &b), MOI_ERR_FORMAT, "wanted true or false, got an integer");
    moit_refused(moii_json_string(o, "j", "b", MOII_JSON_OPTIONAL, &s), MOI_ERR_FORMAT, "wanted a string, got false");
    json_decref(o);
    unlink(path);
}

int main(void)
{
    moit_path(""); /* the folder, before tests count what is in it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_valid_headers), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_lengths), cmocka_unit_test(test_large_headers),
        cmocka_unit_test(test_writer_refusals), cmocka_unit_test(test_places), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
