/* SPDX-License-Identifier: Apache-2.0 */
#include "tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct { const char *name; moi_file_format file; moi_format format; } formats[] = {
    { "mxfp8", MOI_FILE_MXFP8, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 } },
    { "mxfp4", MOI_FILE_MXFP4, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 } },
    { "mxfp6", MOI_FILE_MXFP6, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M3 } },
    { "fp8-block", MOI_FILE_FP8_BLOCK, { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE } },
};
enum { FORMATS = sizeof formats / sizeof *formats };

moi_file_format tensor_file_format(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(name, formats[i].name)) return formats[i].file;
    return (moi_file_format)0;
}

moi_format tensor_format(moi_file_format format) { return formats[format - MOI_FILE_MXFP8].format; }

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

bool tensor_is_linear(const moi_tensor *t)
{
    if (t->rank < 2 || (t->dtype != MOI_F32 && t->dtype != MOI_F16 && t->dtype != MOI_BF16)) return false;
    return ends_in(t->name, "_proj.weight") || ends_in(t->name, "experts.gate_up_proj") || ends_in(t->name, "experts.down_proj");
}

const char *tensor_shown(char *text, size_t size, const char *name)
{
    size_t n = strlen(name), half = (size - 4) / 2;
    if (n < size) memcpy(text, name, n + 1);
    else snprintf(text, size, "%.*s...%s", (int)half, name, name + n - half);
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0)) *p = '?';
    return text;
}

const char *tensor_shape(char *text, size_t size, const moi_tensor *t)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < t->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}
