/* SPDX-License-Identifier: Apache-2.0
 * dot_e2m1_avx2.h: E2M1 rows in exact integer arithmetic.
 *
 * Twice an E2M1 value is one of 0, 1, 2, 3, 4, 6, 8, 12 with a sign; plus 12 it is an unsigned byte, found by one table look-up.
 * A block of x becomes integers X of 22 bits and sign, with one power of two per block, cut into three signed bytes; products
 * of bytes are summed in 16 bits (at most 4 * 24 * 128), put together in 32 bits (at most 8 * 24 * 2^22), the 12s taken off,
 * and only then converted to FP32 and scaled: 24 instructions for 64 weights.  BF16 numbers within 2^14 of their block's
 * largest are such integers exactly; of the others the part that is left over goes into a short list and is added at the end
 * of each row.  Where the list is too short, or x leaves the range of this page, the floating-point kernel does the work. */
#ifndef MOII_DOT_E2M1_AVX2_H
#define MOII_DOT_E2M1_AVX2_H

#include <math.h>

#include "dot_avx2.h"

enum { E2M1_BITS = 21, E2M1_REST = 14, E2M1_HEAD = 128 };

typedef struct e2m1_head {
    bool integers;
    int32_t rest; /* entries of the list */
    int32_t index[E2M1_REST];
    float left[E2M1_REST];
} e2m1_head;
_Static_assert(sizeof(e2m1_head) <= E2M1_HEAD, "the list is too long");

/* 64 elements: even ones and odd ones of each limb, least first; 12 times the sums of X that meet in a lane; what X counts,
 * halved, for each lane */
typedef struct e2m1_pair {
    signed char limb[3][2][32];
    int32_t offset[8];
    float unit[8];
} e2m1_pair;

/* One block; false if x is out of range or the list is full. */
static bool e2m1_place_block(const float *x, int64_t count, int64_t first, e2m1_head *head, e2m1_pair *out, int half)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        float a = fabsf(x[i]);
        if (!(a <= 0x1p60f)) return false;
        most = a > most ? a : most;
    }
    if (most == 0.0f) return true;
    if (most < 0x1p-60f) return false;
    int exponent = ilogbf(most);
    float up = ldexpf(1.0f, E2M1_BITS - exponent), unit = ldexpf(1.0f, exponent - E2M1_BITS);
    for (int lane = 4 * half; lane < 4 * half + 4; lane++) out->unit[lane] = 0.5f * unit;
    for (int64_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)lrintf(x[i] * up), at = 16 * half + (int32_t)i / 2, rest = whole;
        float left = x[i] - (float)whole * unit;
        if (left != 0.0f) {
            if (head->rest == E2M1_REST) return false;
            head->index[head->rest] = (int32_t)(first + i);
            head->left[head->rest++] = left;
        }
        for (int l = 0; l < 3; l++) {
            signed char low = (signed char)((rest & 255) - (rest & 128) * 2);
            out->limb[l][i & 1][at] = low;
            rest = (rest - low) / 256;
        }
        out->offset[4 * half + i / 8] += 12 * whole;
    }
    return true;
}

static void e2m1_place(const moii_dot_kernel *kernel, const float *x, int64_t cols, void *placed)
{
    e2m1_head *head = (e2m1_head *)placed;
    e2m1_pair *pairs = (e2m1_pair *)(void *)((char *)placed + E2M1_HEAD);
    memset(placed, 0, (size_t)moii_dot_placed_bytes(kernel, cols));
    head->integers = cols <= INT32_MAX;
    for (int64_t at = 0; at < cols && head->integers; at += MOII_DOT_BLOCK) {
        int64_t count = cols - at < MOII_DOT_BLOCK ? cols - at : MOII_DOT_BLOCK;
        head->integers = e2m1_place_block(x + at, count, at, head, &pairs[at / MOII_DOT_PAIR], (int)(at / MOII_DOT_BLOCK % 2));
    }
    if (head->integers) return;
    moii_dot_kernel floats = *kernel;
    floats.head_bytes = 0;
    dot_place(&floats, x, cols, pairs);
}

/* 64 weights in units, two lanes of four sums per block */
DOT_INLINE __m256i e2m1_sums(const unsigned char *w, const e2m1_pair *x)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1), byte = _mm256_set1_epi16(256);
    const __m256i *limb = (const __m256i *)(const void *)x->limb;
    __m256i v = dot_load(w), even = _mm256_shuffle_epi8(table, _mm256_and_si256(v, nibble));
    __m256i odd = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble));
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(even, limb[0]), _mm256_maddubs_epi16(odd, limb[1]));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(even, limb[2]), _mm256_maddubs_epi16(odd, limb[3]));
    __m256i c = _mm256_add_epi16(_mm256_maddubs_epi16(even, limb[4]), _mm256_maddubs_epi16(odd, limb[5]));
    a = _mm256_sub_epi32(_mm256_madd_epi16(a, one), _mm256_load_si256((const __m256i *)(const void *)x->offset));
    b = _mm256_madd_epi16(b, byte);
    c = _mm256_slli_epi32(_mm256_madd_epi16(c, one), 16);
    return _mm256_add_epi32(a, _mm256_add_epi32(b, c));
}

DOT_INLINE __m256 e2m1_take(__m256 sum, const unsigned char *w, const e2m1_pair *x, const float *scale)
{
    double two;
    memcpy(&two, scale, sizeof two);
    __m256 s = _mm256_permutevar_ps(_mm256_castpd_ps(_mm256_set1_pd(two)), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(e2m1_sums(w, x)), _mm256_mul_ps(s, _mm256_load_ps(x->unit)), sum);
}

static float dot_e2m1(const moii_dot *d)
{
    const e2m1_head *head = (const e2m1_head *)d->x;
    const e2m1_pair *x = (const e2m1_pair *)(const void *)((const char *)d->x + E2M1_HEAD);
    if (!head->integers) {
        moii_dot floats = *d;
        floats.x = x;
        return dot_e2m1_floats(&floats);
    }
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    int64_t pairs = d->cols / MOII_DOT_PAIR, p = 0;
    for (; p + 4 <= pairs; p += 4) {
        for (int i = 0; i < 128; i += 64) _mm_prefetch((const char *)d->w + p * 32 + MOII_DOT_AHEAD + i, _MM_HINT_T0);
        sum0 = e2m1_take(sum0, d->w + p * 32, x + p, d->scale + 2 * p);
        sum1 = e2m1_take(sum1, d->w + p * 32 + 32, x + p + 1, d->scale + 2 * p + 2);
        sum2 = e2m1_take(sum2, d->w + p * 32 + 64, x + p + 2, d->scale + 2 * p + 4);
        sum3 = e2m1_take(sum3, d->w + p * 32 + 96, x + p + 3, d->scale + 2 * p + 6);
    }
    for (; p < pairs; p++) sum0 = e2m1_take(sum0, d->w + p * 32, x + p, d->scale + 2 * p);
    if (d->cols % MOII_DOT_PAIR) {
        unsigned char tail[32] = { 0 };
        float scale[2] = { d->scale[2 * pairs], 0.0f };
        if (d->cols % MOII_DOT_PAIR > MOII_DOT_BLOCK) scale[1] = d->scale[2 * pairs + 1];
        memcpy(tail, d->w + pairs * 32, (size_t)(d->row_bytes - pairs * 32));
        sum0 = e2m1_take(sum0, tail, x + pairs, scale);
    }
    float sum = dot_lanes(_mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3)));
    for (int32_t i = 0; i < head->rest; i++)
        sum += moi_decode(MOI_E2M1, d->w, head->index[i]) * head->left[i] * d->scale[head->index[i] / MOII_DOT_BLOCK];
    return sum;
}

#define DOT_E2M1 { dot_e2m1, e2m1_place, 1.0f, DOT_NIBBLES_ORDER, E2M1_HEAD, sizeof(e2m1_pair) }
_Static_assert(sizeof(e2m1_pair) >= 4 * MOII_DOT_PAIR && sizeof(e2m1_pair) % 32 == 0, "FP32 elements fit in the place of integers");

#endif
