/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype.h"

#include <string.h>

static const moii_dtype_info table[] = {
    [0] = { "?", 0, 0, { 0, 0, 0 }, false, 0 },
    [MOI_F32] = { "f32", 32, 3.40282346638528859812e38, { 0, 0, 0 }, false, 0 },
    [MOI_F16] = { "f16", 16, 65504.0, { 0, 0, 0 }, false, 0 },
    [MOI_BF16] = { "bf16", 16, 3.38953138925153547590e38, { 0, 0, 0 }, false, 0 },
    [MOI_E4M3] = { "e4m3", 8, 448.0, { 8, 0x600000u, 3 }, true, 0x7F },
    [MOI_E5M2] = { "e5m2", 8, 57344.0, { 15, 0x600000u, 2 }, true, 0x7F },
    [MOI_E3M2] = { "e3m2", 6, 28.0, { 4, 0x600000u, 2 }, true, 0 },
    [MOI_E2M3] = { "e2m3", 6, 7.5, { 2, 0x700000u, 3 }, true, 0 },
    [MOI_E2M1] = { "e2m1", 4, 6.0, { 2, 0x400000u, 1 }, true, 0 },
    [MOI_INT8] = { "int8", 8, 1.984375, { 0, 0x7E0000u, 6 }, true, 0 },
    [MOI_E8M0] = { "e8m0", 8, 1.70141183460469231732e38, { 0, 0, 0 }, false, 0 },
    [MOI_F64] = { "f64", 64, 1.79769313486231570815e308, { 0, 0, 0 }, false, 0 },
    [MOI_I64] = { "i64", 64, 0, { 0, 0, 0 }, false, 0 },
    [MOI_I32] = { "i32", 32, 0, { 0, 0, 0 }, false, 0 },
    [MOI_I16] = { "i16", 16, 0, { 0, 0, 0 }, false, 0 },
    [MOI_I8] = { "i8", 8, 0, { 0, 0, 0 }, false, 0 },
    [MOI_U8] = { "u8", 8, 0, { 0, 0, 0 }, false, 0 },
    [MOI_BOOL] = { "bool", 8, 0, { 0, 0, 0 }, false, 0 },
    [MOI_U16] = { "u16", 16, 0, { 0, 0, 0 }, false, 0 },
    [MOI_U32] = { "u32", 32, 0, { 0, 0, 0 }, false, 0 },
    [MOI_U64] = { "u64", 64, 0, { 0, 0, 0 }, false, 0 },
};

const moii_dtype_info *moii_dtype(moi_dtype dtype)
{
    unsigned int i = (unsigned int)dtype;
    return &table[i < sizeof table / sizeof *table ? i : 0];
}

const char *moi_dtype_name(moi_dtype dtype) { return moii_dtype(dtype)->name; }
int moi_dtype_bits(moi_dtype dtype) { return moii_dtype(dtype)->bits; }
double moi_dtype_max(moi_dtype dtype) { return moii_dtype(dtype)->max; }

float moii_code_decode(moi_dtype dtype, unsigned int code)
{
    switch (dtype) {
    case MOI_F32: return moii_float_of(code);
    case MOI_F16: return moii_f16_decode(code);
    case MOI_BF16: return moii_bf16_decode(code);
    case MOI_E4M3: return moii_e4m3_decode(code);
    case MOI_E5M2: return moii_e5m2_decode(code);
    case MOI_E3M2: return moii_e3m2_decode(code);
    case MOI_E2M3: return moii_e2m3_decode(code);
    case MOI_E2M1: return moii_e2m1_decode(code);
    case MOI_INT8: return moii_int8_decode(code);
    case MOI_E8M0: return moii_e8m0_decode(code);
    default: return moii_float_of(0x7FC00000u);
    }
}

unsigned int moii_code_encode(moi_dtype dtype, float value)
{
    switch (dtype) {
    case MOI_F32: return moii_bits_of(value);
    case MOI_F16: return moii_f16_encode(value);
    case MOI_BF16: return moii_bf16_encode(value);
    case MOI_E4M3: return moii_e4m3_encode(value);
    case MOI_E5M2: return moii_e5m2_encode(value);
    case MOI_E3M2: return moii_e3m2_encode(value);
    case MOI_E2M3: return moii_e2m3_encode(value);
    case MOI_E2M1: return moii_e2m1_encode(value);
    case MOI_INT8: return moii_int8_encode(value);
    default: return 0;
    }
}

unsigned int moii_code_load(int bits, const void *row, int64_t index)
{
    const unsigned char *p = row;
    switch (bits) {
    case 8: return p[index];
    case 16: { uint16_t v; memcpy(&v, p + 2 * index, 2); return v; }
    case 32: { uint32_t v; memcpy(&v, p + 4 * index, 4); return v; }
    case 4: return ((unsigned int)p[index >> 1] >> (4 * (index & 1))) & 0xFu;
    case 6: {
        int64_t bit = 6 * index;
        unsigned int shift = (unsigned int)(bit & 7), v = p[bit >> 3];
        if (shift > 2) v |= (unsigned int)p[(bit >> 3) + 1] << 8;
        return (v >> shift) & 0x3Fu;
    }
    default: return 0;
    }
}

void moii_code_store(int bits, void *row, int64_t index, unsigned int code)
{
    unsigned char *p = row;
    switch (bits) {
    case 8: p[index] = (unsigned char)code; return;
    case 16: { uint16_t v = (uint16_t)code; memcpy(p + 2 * index, &v, 2); return; }
    case 32: { uint32_t v = code; memcpy(p + 4 * index, &v, 4); return; }
    case 4: {
        unsigned int shift = 4 * (unsigned int)(index & 1), old = p[index >> 1];
        p[index >> 1] = (unsigned char)((old & ~(0xFu << shift)) | (code & 0xFu) << shift);
        return;
    }
    case 6: {
        int64_t bit = 6 * index;
        unsigned int shift = (unsigned int)(bit & 7), mask = 0x3Fu << shift, v = (code & 0x3Fu) << shift;
        p[bit >> 3] = (unsigned char)((p[bit >> 3] & ~mask) | v);
        if (shift > 2) p[(bit >> 3) + 1] = (unsigned char)((p[(bit >> 3) + 1] & ~(mask >> 8)) | v >> 8);
        return;
    }
    default: return;
    }
}

static bool has_code(moi_dtype dtype) /* integers and F64 have no float code here */
{
    return dtype >= MOI_F32 && dtype <= MOI_E8M0;
}

float moi_decode(moi_dtype dtype, const void *row, int64_t index)
{
    if (!has_code(dtype)) return moii_float_of(0x7FC00000u);
    return moii_code_decode(dtype, moii_code_load(moii_dtype(dtype)->bits, row, index));
}

void moi_encode(moi_dtype dtype, void *row, int64_t index, float value)
{
    if (has_code(dtype)) moii_code_store(moii_dtype(dtype)->bits, row, index, moii_code_encode(dtype, value));
}
