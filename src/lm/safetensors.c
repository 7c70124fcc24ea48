/* SPDX-License-Identifier: Apache-2.0
 * safetensors.c: opening a file of tensors.
 *
 * A file is 8 bytes of header length, a JSON object, the data.  Nothing of it is trusted.  The object is taken apart entry by
 * entry, each parsed and freed on its own, so that no header makes the parser hold more than a small multiple of it. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"
#include "status.h"

enum { FORGET_AROUND = 1 << 21 };

typedef struct cursor { const char *p, *end, *begin; } cursor;

static moi_status fail_at(const moi_st *f, const cursor *c, const char *wanted)
{
    char got[8] = "the end";
    if (c->p < c->end) {
        unsigned char b = (unsigned char)*c->p;
        char shown[] = { '0', 'x', "0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15], '\0' };
        memcpy(got, shown, sizeof shown);
    }
    return moii_fail(MOI_ERR_FORMAT, "%s: header byte %lld: wanted %s, got %s", f->path, (long long)(c->p - c->begin), wanted, got);
}

/* The next byte that is no JSON white space, -1 at the end. */
static int peek(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) c->p++;
    return c->p < c->end ? (unsigned char)*c->p : -1;
}

/* Parses one JSON value of at most `limit` bytes and moves behind it. */
static moi_status take_value(const moi_st *f, cursor *c, int64_t limit, const char *what, json_t **value)
{
    json_error_t error;
    char shown[MOII_ST_SHOWN], reason[MOII_ST_SHOWN];
    bool cut = c->end - c->p > limit;
    *value = json_loadb(c->p, (size_t)(cut ? limit : c->end - c->p),
                        JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
    if (*value) {
        c->p += error.position;
        return MOI_OK;
    }
    long long at = (c->p - c->begin) + error.position;
    moii_st_show(shown, what);
    MOII_REQUIRE(json_error_code(&error) != json_error_out_of_memory, MOI_ERR_NOMEM, "%s: no memory for '%s'", f->path, shown);
    MOII_REQUIRE(!cut || at < c->p - c->begin + limit, MOI_ERR_FORMAT, "%s: header byte %lld: '%s': wanted at most %lld bytes of JSON",
                 f->path, (long long)(c->p - c->begin), shown, (long long)limit);
    MOII_FAIL(MOI_ERR_FORMAT, "%s: header byte %lld: '%s': not valid JSON: %s", f->path, at, shown, moii_st_show(reason, error.text));
}

static moi_status add(moi_st *f, const char *name, moi_tensor **out)
{
    if (f->count == f->capacity) {
        int64_t capacity = f->capacity ? 2 * f->capacity : 64;
        moi_tensor *grown = realloc(f->tensors, (size_t)capacity * sizeof *grown);
        MOII_REQUIRE(grown, MOI_ERR_NOMEM, "%s: no memory for %lld tensors", f->path, (long long)capacity);
        f->tensors = grown;
        f->capacity = capacity;
    }
    char *copy = strdup(name);
    MOII_REQUIRE(copy, MOI_ERR_NOMEM, "%s: no memory for names", f->path);
    *out = &f->tensors[f->count++];
    **out = (moi_tensor){ .size = sizeof **out, .name = copy };
    return MOI_OK;
}

/* "dtype" and "shape" of an entry. */
static moi_status read_shape(const moi_st *f, const json_t *entry, const char *shown, moi_tensor *t)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    char text[MOII_ST_SHOWN];
    MOII_REQUIRE(json_is_string(dtype), MOI_ERR_FORMAT, "%s: tensor '%s': \"dtype\" must be there and a string", f->path, shown);
    t->dtype = moii_st_dtype(json_string_value(dtype));
    MOII_REQUIRE(t->dtype, MOI_ERR_FORMAT, "%s: tensor '%s': unknown dtype '%s'", f->path, shown, moii_st_show(text, json_string_value(dtype)));
    MOII_REQUIRE(json_is_array(shape), MOI_ERR_FORMAT, "%s: tensor '%s': \"shape\" must be there and an array", f->path, shown);
    size_t rank = json_array_size(shape);
    MOII_REQUIRE(rank <= MOI_ST_MAX_RANK, MOI_ERR_FORMAT, "%s: tensor '%s': wanted at most %d dimensions, got %zu", f->path, shown,
                 (int)MOI_ST_MAX_RANK, rank);
    t->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(shape, i);
        MOII_REQUIRE(json_is_integer(d) && json_integer_value(d) >= 0, MOI_ERR_FORMAT,
                     "%s: tensor '%s': dimension %zu must be an integer >= 0", f->path, shown, i);
        t->shape[i] = json_integer_value(d);
    }
    t->bytes = moii_st_bytes(t->dtype, t->rank, t->shape, &t->elements);
    MOII_REQUIRE(t->bytes >= 0, MOI_ERR_FORMAT, "%s: tensor '%s': its shape overflows, or ends inside a byte", f->path, shown);
    return MOI_OK;
}

static moi_status read_entry(moi_st *f, const char *name, const json_t *entry)
{
    char shown[MOII_ST_SHOWN];
    moi_tensor *t = NULL;
    MOII_TRY(add(f, name, &t));
    moii_st_show(shown, name);
    MOII_REQUIRE(json_is_object(entry), MOI_ERR_FORMAT, "%s: tensor '%s': wanted an object with dtype, shape and data_offsets", f->path, shown);
    MOII_TRY(read_shape(f, entry, shown, t));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    MOII_REQUIRE(json_array_size(offsets) == 2 && json_is_integer(first) && json_is_integer(second), MOI_ERR_FORMAT,
                 "%s: tensor '%s': \"data_offsets\" must be there, an array of two integers", f->path, shown);
    int64_t begin = json_integer_value(first), end = json_integer_value(second), room = f->size - f->data_start;
    MOII_REQUIRE(begin >= 0 && begin <= end && end <= room, MOI_ERR_FORMAT,
                 "%s: tensor '%s': data_offsets must ascend within 0..%lld, got %lld and %lld", f->path, shown, (long long)room,
                 (long long)begin, (long long)end);
    MOII_REQUIRE(end - begin == t->bytes, MOI_ERR_FORMAT, "%s: tensor '%s': its shape wants %lld bytes, its data_offsets give %lld",
                 f->path, shown, (long long)t->bytes, (long long)(end - begin));
    t->data = f->bytes + f->data_start + begin;
    return MOI_OK;
}

static moi_status read_metadata(moi_st *f, json_t *value)
{
    const char *key;
    json_t *text;
    char shown[MOII_ST_SHOWN];
    MOII_REQUIRE(!f->metadata, MOI_ERR_FORMAT, "%s: a second \"__metadata__\"", f->path);
    MOII_REQUIRE(json_is_object(value), MOI_ERR_FORMAT, "%s: \"__metadata__\": wanted an object of strings", f->path);
    json_object_foreach(value, key, text)
        MOII_REQUIRE(json_is_string(text), MOI_ERR_FORMAT, "%s: \"__metadata__\": '%s' must be a string", f->path, moii_st_show(shown, key));
    f->metadata = json_incref(value);
    return MOI_OK;
}

/* "NAME": VALUE */
static moi_status read_pair(moi_st *f, cursor *c)
{
    json_t *key, *value;
    if (peek(c) != '"') return fail_at(f, c, "a name in quotes");
    MOII_TRY(take_value(f, c, MOII_ST_ENTRY_MAX, "a name", &key));
    const char *name = json_string_value(key);
    bool metadata = !strcmp(name, "__metadata__");
    moi_status status;
    if (peek(c) != ':') {
        status = fail_at(f, c, "':'");
    } else {
        c->p++;
        status = take_value(f, c, metadata ? MOII_ST_METADATA_MAX : MOII_ST_ENTRY_MAX, name, &value);
        if (!status) {
            status = metadata ? read_metadata(f, value) : read_entry(f, name, value);
            json_decref(value);
        }
    }
    json_decref(key);
    return status;
}

static moi_status read_entries(moi_st *f, int64_t length)
{
    const char *text = (const char *)f->bytes + 8;
    cursor c = { text, text + length, text };
    if (length == 0 || *c.p != '{') return fail_at(f, &c, "'{'");
    c.p++;
    if (peek(&c) != '}') {
        for (;;) {
            MOII_TRY(read_pair(f, &c));
            int next = peek(&c);
            if (next == '}') break;
            if (next != ',') return fail_at(f, &c, "',' or '}'");
            c.p++;
        }
    }
    for (c.p++; c.p < c.end; c.p++)
        if (*c.p != ' ') return fail_at(f, &c, "spaces up to the data");
    return MOI_OK;
}

/* By place; where that is equal, empty tensors first, so that they do not look like an overlap. */
static int by_place(const void *a_, const void *b_)
{
    const moi_tensor *a = a_, *b = b_;
    const char *pa = a->data, *pb = b->data;
    if (pa != pb) return pa < pb ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static moi_status check_cover(moi_st *f)
{
    char shown[MOII_ST_SHOWN];
    if (f->count) qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_place);
    const unsigned char *data = f->bytes + f->data_start, *next = data;
    for (int64_t i = 0; i < f->count; i++) {
        const moi_tensor *t = &f->tensors[i];
        const unsigned char *at = t->data;
        MOII_REQUIRE(at == next, MOI_ERR_FORMAT, "%s: tensor '%s': wanted its data at byte %lld behind the one before, got %lld (%s)",
                     f->path, moii_st_show(shown, t->name), (long long)(next - data), (long long)(at - data), at < next ? "overlap" : "hole");
        next += t->bytes;
    }
    int64_t used = next - data, room = f->size - f->data_start;
    MOII_REQUIRE(used == room, MOI_ERR_FORMAT, "%s: wanted %lld bytes of data, which the tensors cover, got %lld", f->path,
                 (long long)used, (long long)room);
    return MOI_OK;
}

typedef struct name_ref { const char *name; int64_t index; } name_ref;
static int by_name(const void *a, const void *b) { return strcmp(((const name_ref *)a)->name, ((const name_ref *)b)->name); }

static moi_status index_names(moi_st *f)
{
    char shown[MOII_ST_SHOWN];
    size_t n = (size_t)f->count;
    name_ref *refs = malloc((n + 1) * sizeof *refs);
    f->by_name = malloc((n + 1) * sizeof *f->by_name);
    moi_status status = refs && f->by_name ? MOI_OK : moii_fail(MOI_ERR_NOMEM, "%s: no memory for names", f->path);
    if (!status) {
        for (size_t i = 0; i < n; i++) refs[i] = (name_ref){ f->tensors[i].name, (int64_t)i };
        qsort(refs, n, sizeof *refs, by_name);
        for (size_t i = 0; i < n; i++) {
            f->by_name[i] = refs[i].index;
            if (i > 0 && !strcmp(refs[i].name, refs[i - 1].name))
                status = moii_fail(MOI_ERR_FORMAT, "%s: tensor '%s' is there twice", f->path, moii_st_show(shown, refs[i].name));
        }
    }
    free(refs);
    return status;
}

static moi_status parse(moi_st *f)
{
    uint64_t length = 0;
    MOII_REQUIRE(f->size >= 8, MOI_ERR_FORMAT, "%s: wanted a safetensors file of at least 8 bytes, got %lld", f->path, (long long)f->size);
    for (int i = 7; i >= 0; i--) length = length << 8 | f->bytes[i];
    MOII_REQUIRE(length <= MOII_ST_HEADER_MAX, MOI_ERR_FORMAT, "%s: wanted a header of at most %d bytes, got %llu (not a safetensors file?)",
                 f->path, (int)MOII_ST_HEADER_MAX, (unsigned long long)length);
    MOII_REQUIRE((int64_t)length <= f->size - 8, MOI_ERR_FORMAT, "%s: the header wants %llu bytes, the file has %lld behind its length (truncated?)",
                 f->path, (unsigned long long)length, (long long)f->size - 8);
    f->data_start = 8 + (int64_t)length;
    MOII_TRY(read_entries(f, (int64_t)length));
    MOII_TRY(check_cover(f));
    return index_names(f);
}

moi_status moii_st_open_memory(moi_st **out, const char *name, const void *bytes, int64_t size)
{
    *out = NULL;
    moi_st *f = calloc(1, sizeof *f);
    char *path = strdup(name);
    if (!f || !path) {
        free(f);
        free(path);
        MOII_FAIL(MOI_ERR_NOMEM, "%s: no memory", name);
    }
    *f = (moi_st){ .path = path, .fd = -1, .bytes = bytes, .size = size };
    moi_status status = parse(f);
    if (status) moi_st_close(f);
    else *out = f;
    return status;
}

moi_status moi_st_open(moi_st **out, const char *path)
{
    struct stat s;
    void *map = MAP_FAILED;
    MOII_REQUIRE(out && path, MOI_ERR_ARG, "moi_st_open: %s is NULL", out ? "path" : "out");
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not make us wait */
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", path);
    moi_status status = MOI_OK;
    if (fstat(fd, &s) != 0) status = moii_fail_errno(MOI_ERR_IO, "cannot open %s", path);
    else if (!S_ISREG(s.st_mode)) status = moii_fail(MOI_ERR_IO, "cannot open %s: it is no regular file", path);
    else if (s.st_size == 0) status = moii_fail(MOI_ERR_FORMAT, "%s: wanted a safetensors file of at least 8 bytes, got 0", path);
    else if ((uint64_t)s.st_size > SIZE_MAX || (map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status = moii_fail_errno(MOI_ERR_IO, "cannot map %s", path);
    if (!status) {
        status = moii_st_open_memory(out, path, map, s.st_size);
        if (status) munmap(map, (size_t)s.st_size);
    }
    if (status) close(fd);
    else (*out)->fd = fd;
    return status;
}

void moi_st_close(moi_st *f)
{
    if (!f) return;
    for (int64_t i = 0; i < f->count; i++) free((void *)(uintptr_t)f->tensors[i].name);
    free(f->tensors);
    free(f->by_name);
    json_decref(f->metadata);
    if (f->fd >= 0) {
        munmap((void *)(uintptr_t)f->bytes, (size_t)f->size);
        close(f->fd);
    }
    free(f->path);
    free(f);
}

int64_t moi_st_count(const moi_st *f) { return f ? f->count : 0; }

moi_status moi_st_get(const moi_st *f, int64_t index, moi_tensor *out)
{
    MOII_REQUIRE(f && out, MOI_ERR_ARG, "moi_st_get: %s is NULL", f ? "out" : "file");
    MOII_REQUIRE(index >= 0 && index < f->count, MOI_ERR_ARG, "moi_st_get: %s: index must be 0..%lld, got %lld", f->path,
                 (long long)f->count - 1, (long long)index);
    *out = f->tensors[index];
    return MOI_OK;
}

moi_status moi_st_find(const moi_st *f, const char *name, moi_tensor *out)
{
    char shown[MOII_ST_SHOWN];
    MOII_REQUIRE(f && name && out, MOI_ERR_ARG, "moi_st_find: %s is NULL", !f ? "file" : name ? "out" : "name");
    int64_t low = 0, high = f->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, f->tensors[f->by_name[middle]].name);
        if (order == 0) {
            *out = f->tensors[f->by_name[middle]];
            return MOI_OK;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    MOII_FAIL(MOI_ERR_ARG, "%s: no tensor '%s' among %lld", f->path, moii_st_show(shown, name), (long long)f->count);
}

const char *moi_st_metadata(const moi_st *f, const char *key)
{
    return f && key ? json_string_value(json_object_get(f->metadata, key)) : NULL;
}

void moi_st_forget(const moi_st *f, const moi_tensor *t)
{
    if (!f || f->fd < 0 || !t) return;
    int64_t page = sysconf(_SC_PAGESIZE), begin = (const unsigned char *)t->data - f->bytes, end = begin + t->bytes;
    if (page <= 0 || begin < 0 || end < begin || end > f->size) return;
    /* the kernel maps whole neighbourhoods on a fault, up to a huge page; neighbours still in use are mapped again when touched */
    begin = moii_max(begin - FORGET_AROUND, 0);
    end = moii_min(end + FORGET_AROUND, f->size);
    begin -= begin % page;
    madvise((void *)(uintptr_t)(f->bytes + begin), (size_t)(end - begin), MADV_DONTNEED);
}

moi_status moii_st_read(const moi_st *f, const moi_tensor *t, int64_t offset, void *to, int64_t bytes)
{
    int64_t at = (const unsigned char *)t->data - f->bytes + offset;
    char *p = to;
    if (f->fd < 0) {
        memcpy(to, f->bytes + at, (size_t)bytes);
        return MOI_OK;
    }
    while (bytes > 0) {
        ssize_t n = pread(f->fd, p, (size_t)moii_min(bytes, 1 << 26), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return moii_fail_errno(MOI_ERR_IO, "cannot read %s at byte %lld", f->path, (long long)at);
        MOII_REQUIRE(n > 0, MOI_ERR_IO, "cannot read %s: it became shorter while it was read", f->path);
        p += n;
        at += n;
        bytes -= n;
    }
    return MOI_OK;
}
