/* SPDX-License-Identifier: Apache-2.0
 * fuzz_safetensors.c: any bytes as a safetensors file: an error with a message, or a file whose every claim holds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) __builtin_trap();
}

static void visit(const moi_st *f, const uint8_t *data, size_t size)
{
    static volatile unsigned int sink;
    char shown[MOII_ST_SHOWN];
    const uint8_t *next = data + f->data_start;
    for (int64_t i = 0; i < moi_st_count(f); i++) {
        moi_tensor t, found;
        require(moi_st_get(f, i, &t) == MOI_OK);
        require(t.data == next && t.bytes >= 0 && t.bytes <= (int64_t)(data + size - next) && t.rank <= MOI_ST_MAX_RANK);
        require(moi_st_find(f, t.name, &found) == MOI_OK && found.data == t.data && found.name == t.name);
        require(moi_st_dtype_name(t.dtype) != NULL);
        for (int64_t b = 0; b < t.bytes; b++) sink += next[b];
        for (const char *p = moii_st_show(shown, t.name); *p; p++) require((unsigned char)*p >= 0x20);
        next += t.bytes;
    }
    require(next == data + size);
    moi_st_metadata(f, "format");
    (void)sink;
}

static void try_open(const uint8_t *data, size_t size)
{
    moi_st *f;
    moi_status status = moii_st_open_memory(&f, "input", data, (int64_t)size);
    require((status == MOI_OK) == (f != NULL));
    if (f) visit(f, data, size);
    else require(status == MOI_ERR_FORMAT && *moi_last_error());
    moi_st_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_open(data, size);
    if (size < 8) return 0;
    /* changed lengths stop most inputs at once: take them again with a length that fits */
    size_t room = size - 8, keep = data[0] % 32, length = room > keep ? room - keep : room;
    uint8_t *fixed = malloc(size);
    require(fixed != NULL);
    memcpy(fixed, data, size);
    for (int i = 0; i < 8; i++) fixed[i] = (uint8_t)((uint64_t)length >> 8 * i);
    try_open(fixed, size);
    free(fixed);
    return 0;
}
