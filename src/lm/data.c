/* SPDX-License-Identifier: Apache-2.0
 * data.c: training and validation windows of a stream of bytes.
 *
 * The stream is cut into chunks; of each `every` chunks in a row the last is for validation, and those before it are one
 * run of training text.  A window never leaves its run or chunk, so no validation byte is ever trained on. */
#include "data.h"

#include <stdlib.h>

#include "ctx.h"
#include "random.h"
#include "status.h"

enum { CHUNK = 65536 };

struct moi_data {
    moii_sources sources;
    int64_t every, chunk;
    int64_t period;       /* every * chunk */
    int64_t trained;      /* bytes for training */
    int64_t validation;   /* bytes for validation */
};

/* Bytes of the first `at` bytes of the stream that are for training. */
static int64_t training_before(const moi_data *d, int64_t at)
{
    int64_t run = d->period - d->chunk, rest = at % d->period;
    return at / d->period * run + (rest < run ? rest : run);
}

moi_status moi_data_open(moi_data **out, const char *path, const moi_data_options *options)
{
    moi_data_options o = MOI_DATA_OPTIONS_INIT;
    MOII_REQUIRE(out && path, MOI_ERR_ARG, "moi_data_open: %s is NULL", out ? "path" : "out");
    *out = NULL;
    if (options) MOII_TRY(moii_take(&o, sizeof o, options, "moi_data_open: options"));
    MOII_REQUIRE(o.validation_every >= 2 && o.validation_every <= 1000000, MOI_ERR_ARG,
                 "moi_data_open: validation_every must be 2..1000000, got %lld", (long long)o.validation_every);
    moi_data *d = calloc(1, sizeof *d);
    MOII_REQUIRE(d, MOI_ERR_NOMEM, "moi_data_open: no memory");
    moi_status status = moii_sources_find(&d->sources, path, o.suffix);
    if (!status && d->sources.bytes == 0)
        status = moii_fail(MOI_ERR_FORMAT, "moi_data_open: %s: nothing to read%s%s", path, o.suffix ? " that ends in " : "", o.suffix ? o.suffix : "");
    if (!status && d->sources.bytes < 2 * o.validation_every)
        status = moii_fail(MOI_ERR_FORMAT, "moi_data_open: %s: %lld bytes are too few for training and validation; give at least %lld", path,
                           (long long)d->sources.bytes, (long long)(2 * o.validation_every));
    if (status) {
        moi_data_close(d);
        return status;
    }
    int64_t fair = d->sources.bytes / o.validation_every; /* small data: one round of chunks that covers all of it */
    d->every = o.validation_every;
    d->chunk = fair < CHUNK ? fair : CHUNK;
    d->period = d->every * d->chunk;
    d->trained = training_before(d, d->sources.bytes);
    d->validation = d->sources.bytes - d->trained;
    *out = d;
    return MOI_OK;
}

void moi_data_close(moi_data *data)
{
    if (!data) return;
    moii_sources_free(&data->sources);
    free(data);
}

int64_t moi_data_bytes(const moi_data *data, bool validation)
{
    return !data ? 0 : validation ? data->validation : data->trained;
}

static moi_status check_batch(const moi_data *d, const char *call, int64_t index, int64_t batch, int64_t seq, const int32_t *tokens, int64_t longest)
{
    MOII_REQUIRE(d, MOI_ERR_ARG, "%s: data is NULL", call);
    MOII_REQUIRE(index >= 0, MOI_ERR_ARG, "%s: the index must be >= 0, got %lld", call, (long long)index);
    MOII_REQUIRE(batch >= 0 && seq >= 1 && batch <= INT32_MAX && seq < INT32_MAX, MOI_ERR_SHAPE, "%s: batch must be >= 0 and seq >= 1, got %lld and %lld",
                 call, (long long)batch, (long long)seq);
    MOII_REQUIRE(tokens || batch == 0, MOI_ERR_ARG, "%s: tokens is NULL", call);
    MOII_REQUIRE(seq + 1 <= longest, MOI_ERR_SHAPE,
                 "%s: a row of seq + 1 = %lld tokens does not fit the longest piece of %lld bytes; give more text or a shorter seq", call,
                 (long long)(seq + 1), (long long)longest);
    return MOI_OK;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static moi_status read_row(const moi_data *d, int64_t at, int64_t count, unsigned char *bytes, int32_t *row)
{
    MOII_TRY(moii_sources_read(&d->sources, at, count, bytes));
    for (int64_t i = 0; i < count; i++) row[i] = bytes[i];
    return MOI_OK;
}

/* The place of training byte `pick`, moved back where the window would leave its run; the first run is always whole. */
static int64_t training_window(const moi_data *d, int64_t pick, int64_t window)
{
    int64_t run = d->period - d->chunk, index = pick / run, from = pick % run, left = d->trained - index * run;
    if (left < run) run = left;
    if (run < window) return 0;
    return index * d->period + (from <= run - window ? from : run - window);
}

moi_status moi_data_batch(moi_data *data, uint64_t seed, int64_t step, int64_t batch, int64_t seq, int32_t *tokens)
{
    MOII_TRY(check_batch(data, "moi_data_batch", step, batch, seq, tokens, data ? data->period - data->chunk : 0));
    unsigned char *bytes = malloc((size_t)(seq + 1));
    MOII_REQUIRE(bytes, MOI_ERR_NOMEM, "moi_data_batch: no memory for a row");
    moi_status status = MOI_OK;
    for (int64_t b = 0; b < batch && !status; b++) {
        int64_t pick = (int64_t)(moii_random(seed, (uint64_t)step, (uint64_t)b) % (uint64_t)data->trained);
        status = read_row(data, training_window(data, pick, seq + 1), seq + 1, bytes, tokens + b * (seq + 1));
    }
    free(bytes);
    return status;
}

/* Windows go through all chunks before they go on inside them, in golden steps, so that few of them already see text from
 * everywhere. */
static int64_t validation_window(const moi_data *d, uint64_t number, int64_t window)
{
    uint64_t chunks = (uint64_t)(d->sources.bytes / d->period), fit = (uint64_t)(d->chunk / window), stride = chunks * 5 / 8 + 1;
    while (stride < chunks && common_divisor(stride, chunks) != 1) stride++;
    uint64_t place = (number % chunks) * stride % chunks;
    return ((int64_t)place + 1) * d->period - d->chunk + (int64_t)(number / chunks % fit) * window;
}

moi_status moi_data_validation(moi_data *data, int64_t index, int64_t batch, int64_t seq, int32_t *tokens)
{
    MOII_TRY(check_batch(data, "moi_data_validation", index, batch, seq, tokens, data ? data->chunk : 0));
    unsigned char *bytes = malloc((size_t)(seq + 1));
    MOII_REQUIRE(bytes, MOI_ERR_NOMEM, "moi_data_validation: no memory for a row");
    moi_status status = MOI_OK;
    for (int64_t b = 0; b < batch && !status; b++)
        status = read_row(data, validation_window(data, (uint64_t)index * (uint64_t)batch + (uint64_t)b, seq + 1), seq + 1, bytes, tokens + b * (seq + 1));
    free(bytes);
    return status;
}
