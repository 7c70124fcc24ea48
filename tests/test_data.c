/* SPDX-License-Identifier: Apache-2.0
 * test_data.c: training data: what windows hold, that validation stays apart, that steps can be repeated, what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moiety_lm.h"
#include "support.h"
#include "support_files.h"

/* A file whose byte i is (first + i) / 128 % 256 for odd i and i % 128 for even ones: a window tells where it came from. */
static void write_file(const char *name, int64_t first, int64_t bytes)
{
    FILE *f = fopen(moit_path(name), "wb");
    assert_non_null(f);
    for (int64_t i = first; i < first + bytes; i++) fputc((int)(i & 1 ? i / 128 % 256 : i % 128), f);
    fclose(f);
}

static int expect_byte(int64_t i) { return (int)(i & 1 ? i / 128 % 256 : i % 128); }

/* Where in a stream of fewer than 32768 bytes the row begins. */
static int64_t place_of(const int32_t *row, int64_t length)
{
    for (int64_t start = 0; start < 32768; start++) {
        int64_t i = 0;
        while (i < length && row[i] == expect_byte(start + i)) i++;
        if (i == length) return start;
    }
    fail_msg("a row is no window of the stream");
    return -1;
}

static void test_windows(void **state)
{
    (void)state;
    enum { BYTES = 30000, EVERY = 10, BATCH = 64, SEQ = 31 };
    mkdir(moit_path("many"), 0755);
    mkdir(moit_path("many/inner"), 0755);
    write_file("many/a", 0, 1);
    write_file("many/b", 1, 12345);
    write_file("many/empty", 0, 0);
    write_file("many/inner/c", 12346, BYTES - 12346);
    assert_int_equal(symlink(moit_path("many"), moit_path("many/loop")), 0);
    assert_int_equal(symlink("nowhere", moit_path("many/broken")), 0);
    assert_int_equal(mkfifo(moit_path("many/fifo"), 0600), 0);
    moi_data_options options = MOI_DATA_OPTIONS_INIT;
    options.validation_every = EVERY;
    moi_data *data;
    moit_ok(moi_data_open(&data, moit_path("many"), &options));
    assert_int_equal(moi_data_bytes(data, false), BYTES / EVERY * (EVERY - 1));
    assert_int_equal(moi_data_bytes(data, true), BYTES / EVERY);
    int32_t rows[BATCH * (SEQ + 1)], again[BATCH * (SEQ + 1)];
    char seen[BYTES] = { 0 };
    for (int step = 0; step < 40; step++) {
        moit_ok(moi_data_batch(data, 7, step, BATCH, SEQ, rows));
        moit_ok(moi_data_batch(data, 7, step, BATCH, SEQ, again));
        assert_memory_equal(rows, again, sizeof rows);
        for (int b = 0; b < BATCH; b++) {
            int64_t from = place_of(rows + b * (SEQ + 1), SEQ + 1);
            for (int64_t i = from; i < from + SEQ + 1; i++) seen[i] = 1;
        }
    }
    int64_t covered = 0;
    for (int i = 0; i < BYTES; i++) covered += seen[i];
    assert_true(covered > BYTES * 8 / 10);
    moit_ok(moi_data_batch(data, 8, 0, BATCH, SEQ, again));
    assert_memory_not_equal(rows, again, sizeof rows);
    for (int index = 0; index < 3; index++) { /* no validation byte was ever given out for training */
        moit_ok(moi_data_validation(data, index, BATCH, SEQ, rows));
        moit_ok(moi_data_validation(data, index, BATCH, SEQ, again));
        assert_memory_equal(rows, again, sizeof rows);
        for (int b = 0; b < BATCH; b++) {
            int64_t from = place_of(rows + b * (SEQ + 1), SEQ + 1);
            for (int64_t i = from; i < from + SEQ + 1; i++) assert_false(seen[i]);
        }
    }
    moi_data_close(data);
}

static void test_chunks(void **state) /* many chunks: validation rows come from all of them */
{
    (void)state;
    enum { CHUNK = 65536, CHUNKS = 34 };
    FILE *f = fopen(moit_path("chunks"), "wb");
    for (int c = 0; c < CHUNKS; c++)
        for (int i = 0; i < CHUNK; i++) fputc(c, f);
    fputc(99, f);
    fclose(f);
    moi_data_options options = MOI_DATA_OPTIONS_INIT;
    options.validation_every = 2;
    moi_data *data;
    moit_ok(moi_data_open(&data, moit_path("chunks"), &options));
    assert_int_equal(moi_data_bytes(data, true), CHUNK * CHUNKS / 2);
    assert_int_equal(moi_data_bytes(data, false), CHUNK * CHUNKS / 2 + 1);
    int32_t rows[CHUNKS / 2 * 9];
    int seen[CHUNKS] = { 0 };
    moit_ok(moi_data_validation(data, 3, CHUNKS / 2, 8, rows));
    for (int b = 0; b < CHUNKS / 2; b++) seen[rows[b * 9]]++;
    for (int c = 0; c < CHUNKS; c++) assert_int_equal(seen[c], c % 2);
    for (int step = 0; step < 50; step++) {
        moit_ok(moi_data_batch(data, 1, step, 17, 8, rows));
        for (int b = 0; b < 17; b++) assert_true(rows[b * 9] % 2 == 0 && rows[b * 9] == rows[b * 9 + 8]);
    }
    moi_data_close(data);
}

static void test_suffix(void **state)
{
    (void)state;
    mkdir(moit_path("mixed"), 0755);
    write_file("mixed/a.h", 0, 500);
    write_file("mixed/b.c", 0, 700);
    write_file("mixed/h", 0, 700);
    moi_data_options options = MOI_DATA_OPTIONS_INIT;
    options.suffix = ".h";
    moi_data *data;
    moit_ok(moi_data_open(&data, moit_path("mixed"), &options));
    assert_int_equal(moi_data_bytes(data, false) + moi_data_bytes(data, true), 500);
    moi_data_close(data);
    options.suffix = ".xyz";
    moit_refused(moi_data_open(&data, moit_path("mixed"), &options), MOI_ERR_FORMAT, ".xyz");
    assert_null(data);
    moi_data_close(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    moi_data *data;
    int32_t rows[4 * 4096];
    write_file("empty", 0, 0);
    write_file("tiny", 0, 39);
    write_file("small", 0, 1000);
    moit_refused(moi_data_open(&data, moit_path("missing"), NULL), MOI_ERR_IO, "missing");
    moit_refused(moi_data_open(&data, moit_path("empty"), NULL), MOI_ERR_FORMAT, "nothing to read");
    moit_refused(moi_data_open(&data, moit_path("tiny"), NULL), MOI_ERR_FORMAT, "at least 40");
    moit_refused(moi_data_open(&data, "/dev/null", NULL), MOI_ERR_IO, "neither");
    moit_refused(moi_data_open(&data, NULL, NULL), MOI_ERR_ARG, "path");
    moi_data_options options = MOI_DATA_OPTIONS_INIT;
    options.validation_every = 1;
    moit_refused(moi_data_open(&data, moit_path("small"), &options), MOI_ERR_ARG, "validation_every");
    moit_ok(moi_data_open(&data, moit_path("small"), NULL));
    moit_refused(moi_data_batch(data, 1, 0, 2, 950, rows), MOI_ERR_SHAPE, "951");
    moit_refused(moi_data_validation(data, 0, 2, 50, rows), MOI_ERR_SHAPE, "50");
    moit_refused(moi_data_batch(data, 1, -1, 2, 8, rows), MOI_ERR_ARG, "-1");
    moit_refused(moi_data_batch(data, 1, 0, 2, 8, NULL), MOI_ERR_ARG, "tokens");
    moit_refused(moi_data_batch(NULL, 1, 0, 2, 8, rows), MOI_ERR_ARG, "data");
    moit_ok(moi_data_batch(data, 1, 0, 0, 8, NULL));
    moit_ok(moi_data_batch(data, 1, 0, 4, 949, rows));
    moit_ok(moi_data_validation(data, 0, 2, 49, rows));
    assert_int_equal(truncate(moit_path("small"), 10), 0);
    moit_refused(moi_data_batch(data, 1, 0, 4, 949, rows), MOI_ERR_IO, "shorter");
    moi_data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows), cmocka_unit_test(test_chunks), cmocka_unit_test(test_suffix), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, moit_remove_folder);
}
