/* SPDX-License-Identifier: Apache-2.0 */
#include "json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_atomic.h"
#include "status.h"

moi_status moii_json_parse(json_t **out, const char *where, const void *text, int64_t bytes)
{
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    MOII_REQUIRE(root, MOI_ERR_FORMAT, "%s: not valid JSON: line %d, column %d: %s", where, error.line, error.column, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        MOII_FAIL(MOI_ERR_FORMAT, "%s: wanted a JSON object at the top, got something else", where);
    }
    *out = root;
    return MOI_OK;
}

/* Reads exactly `bytes` of an open file. */
static moi_status read_all(int fd, const char *path, char *text, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = read(fd, text + done, (size_t)(bytes - done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return moii_fail_errno(MOI_ERR_IO, "cannot read %s", path);
        MOII_REQUIRE(n > 0, MOI_ERR_IO, "cannot read %s: it became shorter while it was read", path);
        done += n;
    }
    return MOI_OK;
}

static moi_status text_fd(char **out, int64_t *bytes, int fd, const char *path, int64_t max_bytes)
{
    struct stat s;
    if (fstat(fd, &s) != 0) return moii_fail_errno(MOI_ERR_IO, "cannot read %s", path);
    MOII_REQUIRE(S_ISREG(s.st_mode), MOI_ERR_IO, "cannot read %s: it is no regular file", path);
    MOII_REQUIRE(s.st_size <= max_bytes, MOI_ERR_FORMAT, "%s: wanted at most %lld bytes of JSON, got %lld", path, (long long)max_bytes,
                 (long long)s.st_size);
    MOII_REQUIRE(*out = malloc((size_t)s.st_size + 1), MOI_ERR_NOMEM, "cannot read %s: no memory", path);
    *bytes = s.st_size;
    (*out)[*bytes] = '\0';
    return read_all(fd, path, *out, *bytes);
}

static moi_status load_text(char **out, int64_t *bytes, const char *path, int64_t max_bytes)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not make us wait */
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", path);
    moi_status status = text_fd(out, bytes, fd, path, max_bytes);
    close(fd);
    if (!status) return MOI_OK;
    free(*out);
    *out = NULL;
    return status;
}

moi_status moii_text_load(char **out, const char *path, int64_t max_bytes)
{
    int64_t bytes;
    return load_text(out, &bytes, path, max_bytes);
}

moi_status moii_json_load(json_t **out, const char *path, int64_t max_bytes)
{
    char *text;
    int64_t bytes;
    *out = NULL;
    MOII_TRY(load_text(&text, &bytes, path, max_bytes));
    moi_status status = moii_json_parse(out, path, text, bytes);
    free(text);
    return status;
}

moi_status moii_json_save(const json_t *object, const char *path)
{
    moii_atomic file;
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    MOII_REQUIRE(text, MOI_ERR_NOMEM, "cannot write %s: no memory", path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in the place of the terminating zero */
    moi_status status = moii_atomic_open(&file, path);
    if (!status) {
        status = moii_atomic_write_at(&file, text, (int64_t)length + 1, 0);
        if (status) moii_atomic_cancel(&file);
        else status = moii_atomic_commit(&file);
    }
    free(text);
    return status;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = { "an object", "an array", "a string", "an integer", "a real number", "true", "false", "null" };
    return names[json_typeof(v)];
}

/* *value is NULL where the key is missing and may be. */
static moi_status get(const json_t *object, const char *where, const char *key, int need, const char *wanted, const json_t **value)
{
    *value = json_object_get(object, key);
    if (*value && json_is_null(*value)) *value = NULL;
    MOII_REQUIRE(*value || need == MOII_JSON_OPTIONAL, MOI_ERR_FORMAT, "%s: \"%s\" is missing; wanted %s", where, key, wanted);
    return MOI_OK;
}

moi_status moii_json_int(const json_t *object, const char *where, const char *key, int need, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v;
    MOII_TRY(get(object, where, key, need, "an integer", &v));
    if (!v) return MOI_OK;
    MOII_REQUIRE(json_is_integer(v), MOI_ERR_FORMAT, "%s: \"%s\": wanted an integer, got %s", where, key, type_name(v));
    int64_t i = json_integer_value(v);
    MOII_REQUIRE(i >= min && i <= max, MOI_ERR_FORMAT, "%s: \"%s\": wanted %lld..%lld, got %lld", where, key, (long long)min,
                 (long long)max, (long long)i);
    *out = i;
    return MOI_OK;
}

moi_status moii_json_real(const json_t *object, const char *where, const char *key, int need, double min, double max, double *out)
{
    const json_t *v;
    MOII_TRY(get(object, where, key, need, "a number", &v));
    if (!v) return MOI_OK;
    MOII_REQUIRE(json_is_number(v), MOI_ERR_FORMAT, "%s: \"%s\": wanted a number, got %s", where, key, type_name(v));
    double d = json_number_value(v);
    MOII_REQUIRE(d >= min && d <= max, MOI_ERR_FORMAT, "%s: \"%s\": wanted %g..%g, got %g", where, key, min, max, d);
    *out = d;
    return MOI_OK;
}

moi_status moii_json_bool(const json_t *object, const char *where, const char *key, int need, bool *out)
{
    const json_t *v;
    MOII_TRY(get(object, where, key, need, "true or false", &v));
    if (!v) return MOI_OK;
    MOII_REQUIRE(json_is_boolean(v), MOI_ERR_FORMAT, "%s: \"%s\": wanted true or false, got %s", where, key, type_name(v));
    *out = json_is_true(v);
    return MOI_OK;
}

moi_status moii_json_string(const json_t *object, const char *where, const char *key, int need, const char **out)
{
    const json_t *v;
    MOII_TRY(get(object, where, key, need, "a string", &v));
    if (!v) return MOI_OK;
    MOII_REQUIRE(json_is_string(v), MOI_ERR_FORMAT, "%s: \"%s\": wanted a string, got %s", where, key, type_name(v));
    *out = json_string_value(v);
    return MOI_OK;
}
