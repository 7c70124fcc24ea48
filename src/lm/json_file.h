/* SPDX-License-Identifier: Apache-2.0
 * json_file.h: JSON objects in files, read with suspicion and written atomically. */
#ifndef MOII_JSON_FILE_H
#define MOII_JSON_FILE_H

#include <jansson.h>

#include "moiety.h"

/* Reads an object from a file of at most max_bytes; keys must be unique.  Errors: IO, FORMAT (line and reason), NOMEM.
 * The caller gives it back with json_decref. */
moi_status moii_json_load(json_t **out, const char *path, int64_t max_bytes);
/* The text of such a file, ended by a zero, to be freed. */
moi_status moii_text_load(char **out, const char *path, int64_t max_bytes);
/* The same from memory; `where` begins messages. */
moi_status moii_json_parse(json_t **out, const char *where, const void *text, int64_t bytes);
/* Writes an object, indented, in the order its keys were set.  Errors: IO, NOMEM. */
moi_status moii_json_save(const json_t *object, const char *path);

/* Values by key.  A missing key, or null, leaves *out as it is if it is optional.  Errors: FORMAT naming where, key, wanted, got. */
enum { MOII_JSON_OPTIONAL = 0, MOII_JSON_REQUIRED = 1 };
moi_status moii_json_int(const json_t *object, const char *where, const char *key, int need, int64_t min, int64_t max, int64_t *out);
moi_status moii_json_real(const json_t *object, const char *where, const char *key, int need, double min, double max, double *out);
moi_status moii_json_bool(const json_t *object, const char *where, const char *key, int need, bool *out);
/* *out points into the object. */
moi_status moii_json_string(const json_t *object, const char *where, const char *key, int need, const char **out);

#endif
