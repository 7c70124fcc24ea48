/* SPDX-License-Identifier: Apache-2.0
 * safetensors_dtype.c: how the format spells types, and what a tensor measures. */
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "safetensors.h"

static const struct { const char *name; moi_dtype dtype; } names[] = {
    { "F64", MOI_F64 },         { "F32", MOI_F32 },         { "F16", MOI_F16 },         { "BF16", MOI_BF16 },
    { "F8_E4M3", MOI_E4M3 },    { "F8_E5M2", MOI_E5M2 },    { "F8_E8M0", MOI_E8M0 },    { "F6_E3M2", MOI_E3M2 },
    { "F6_E2M3", MOI_E2M3 },    { "F4", MOI_E2M1 },         { "I64", MOI_I64 },         { "I32", MOI_I32 },
    { "I16", MOI_I16 },         { "I8", MOI_I8 },           { "U64", MOI_U64 },         { "U32", MOI_U32 },
    { "U16", MOI_U16 },         { "U8", MOI_U8 },           { "BOOL", MOI_BOOL },
};
enum { NAMES = sizeof names / sizeof *names };

const char *moi_st_dtype_name(moi_dtype dtype)
{
    for (int i = 0; i < NAMES; i++)
        if (names[i].dtype == dtype) return names[i].name;
    return NULL;
}

moi_dtype moii_st_dtype(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(names[i].name, name)) return names[i].dtype;
    return (moi_dtype)0;
}

int64_t moii_st_bytes(moi_dtype dtype, int32_t rank, const int64_t *shape, int64_t *elements)
{
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++) n = moii_mul(n, shape[i]);
    *elements = n;
    int64_t bits = moii_mul(n, moi_dtype_bits(dtype));
    return bits < 0 || bits % 8 ? -1 : bits / 8;
}

const char *moii_st_show(char text[MOII_ST_SHOWN], const char *name)
{
    size_t n = strlen(name);
    if (n < MOII_ST_SHOWN) memcpy(text, name, n + 1);
    else snprintf(text, MOII_ST_SHOWN, "%.40s...%s", name, name + n - 40);
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0)) *p = '?';
    return text;
}
