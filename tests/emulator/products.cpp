/* SPDX-License-Identifier: Apache-2.0
 *
 * products.cpp: the tensor cores' products.  Sums are exact up to the last rounding to FP32, which the device's are not: tests allow for both. */
#include "parts.hpp"

#include <stdio.h>

#include "floats.hpp"

namespace emu {

/* All codes of a format. */
struct table {
    std::vector<float> of;
    table(double (*decode)(ptx::u32), int codes) { for (int i = 0; i < codes; i++) of.push_back((float)decode((ptx::u32)i)); }
};
static const float *values_of(const char *type)
{
    static const table f16(ptx::of_f16, 65536), bf16(ptx::of_bf16, 65536), e4m3(ptx::of_e4m3, 256), e5m2(ptx::of_e5m2, 256);
    return (!strncmp(type, "f16", 3) ? f16 : !strncmp(type, "bf16", 4) ? bf16 : !strncmp(type, "e4m3", 4) ? e4m3 : e5m2).of.data();
}

/* ---- mma.m16n8k16: with g = lane / 4, c = lane % 4 ---- */

struct fragments { const uint32_t *given; float *d; const float *values; };

static void multiply_lanes(thread *const lane[32])
{
    double a[16][16], b[16][8];
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) device.fail("a product wants the whole warp");
        const fragments *f = (const fragments *)lane[i]->given;
        const int g = i / 4, c = i % 4;
        for (int r = 0; r < 4; r++) /* rows g and g + 8, then values 8 further */
            for (int e = 0; e < 2; e++) a[g + 8 * (r % 2)][2 * c + e + 8 * (r / 2)] = f->values[f->given[r] >> 16 * e & 0xFFFF];
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < 2; e++) b[2 * c + e + 8 * r][g] = f->values[f->given[4 + r] >> 16 * e & 0xFFFF];
    }
    for (int i = 0; i < 32; i++) {
        const fragments *f = (const fragments *)lane[i]->given;
        for (int r = 0; r < 4; r++) {
            double sum = f->d[r];
            for (int k = 0; k < 16; k++) sum += a[i / 4 + 8 * (r / 2)][k] * b[k][i % 4 * 2 + r % 2];
            f->d[r] = (float)sum;
        }
    }
}

static void mma(bool bf16, const uint32_t given[6], float d[4])
{
    const fragments f = { given, d, values_of(bf16 ? "bf16" : "f16") };
    device.together(multiply_lanes, 0xFFFFFFFFu, &f, 0);
}

/* ---- wgmma: D[64][n] += A[64][k] B[n][k]^T, a warp's rows at once ---- */

/* A matrix in shared memory as its descriptor says: the bytes of row i's value k. */
struct matrix {
    unsigned int at, next, group; /* address; MN-major: between runs of 64 rows, not swizzled: between 16 bytes of k and the next; between groups of 8 rows,
                                     or of 8 values of k */
    int swizzle, element, turned;
    const float *values;
    unsigned int end;
    const unsigned char *memory;
};

static matrix matrix_of(uint64_t descriptor, int element, int turned, const float *values)
{
    static const int swizzle[4] = { 0, 128, 64, 32 };
    matrix x = { (unsigned int)(descriptor & 0x3FFF) << 4, (unsigned int)(descriptor >> 16 & 0x3FFF) << 4, (unsigned int)(descriptor >> 32 & 0x3FFF) << 4,
                 swizzle[descriptor >> 62], element, turned, values,
                 SHARED_FIRST + (unsigned int)device.self->in->dynamic_bytes, (const unsigned char *)device.self->in->memory };
    if (turned && x.swizzle != 128) device.fail("the emulator's wgmma knows turned matrices in lines of 128 bytes alone");
    return x;
}

static unsigned int place(const matrix &x, int i, int k)
{
    unsigned int at = x.at;
    if (x.turned) at += (unsigned int)(i / 64) * x.next + (unsigned int)(k / 8) * x.group + (unsigned int)(k % 8 * 128 + i % 64 * 2);
    else if (x.swizzle) at += (unsigned int)(i / 8) * x.group + (unsigned int)(i % 8 * x.swizzle + k * x.element);
    else at += (unsigned int)(i / 8) * x.group + (unsigned int)(i % 8 * 16 + k * x.element % 16) + (unsigned int)(k * x.element / 16) * x.next;
    at = swizzled(at, x.swizzle);
    if (at >= x.end) device.fail("a matrix of wgmma ends outside of shared memory");
    return at;
}

/* One lane tells for all of them what is read: 16 bytes at a time, as swizzles keep them. */
static void tell(const matrix &x, int first, int rows, int k)
{
    const int step = 16 / x.element;
    for (int i = 0; i < rows; i += x.turned ? step : 1)
        for (int j = 0; j < k; j += x.turned ? 1 : step) touch(x.memory + place(x, first + i, j), 16, READS);
}

/* Row i's values, 32 bytes of them: swizzles keep pieces of 16 bytes together; of turned matrices each value lies by itself. */
static void values(const matrix &x, int i, double *to)
{
    const int count = 32 / x.element, step = x.turned ? 1 : 16 / x.element;
    for (int k = 0; k < count; k += step) {
        const unsigned char *p = x.memory + place(x, i, k);
        for (int j = 0; j < step; j++) to[k + j] = x.values[x.element == 1 ? p[j] : p[2 * j] | (uint32_t)p[2 * j + 1] << 8];
    }
}

static double dot(const double *a, const double *b, int k)
{
    double s[4] = {};
    for (int i = 0; i < k; i += 4)
        for (int j = 0; j < 4; j++) s[j] += a[i + j] * b[i + j];
    return s[0] + s[1] + (s[2] + s[3]);
}

/* "m64n128k32.f32.e4m3.e5m2"; the last one is kept, for it comes again and again. */
struct wgmma_shape { int n, k; char a_type[8], b_type[8]; };

static const wgmma_shape &shape_of(const char *text)
{
    static wgmma_shape last;
    static std::string kept;
    if (kept == text) return last;
    if (sscanf(text, "m64n%dk%d.f32.%4[a-z0-9].%4[a-z0-9]", &last.n, &last.k, last.a_type, last.b_type) != 4)
        device.fail("a wgmma that the emulator does not know");
    kept = text;
    return last;
}

/* What a lane gives: its part of D, and A's matrix or, `kept`, 16 values of 16 bits in registers: those of a row are four lanes'. */
struct wgmma { const char *shape; float *const *d; uint64_t a, b; bool more; int a_turned, b_turned; const uint32_t *kept; };

/* A warp's 16 rows. */
static void multiply_rows(thread *const lane[32])
{
    for (int i = 0; i < 32; i++)
        if (!lane[i]) device.fail("a product wants the whole warp");
    const wgmma *w = (const wgmma *)lane[0]->given;
    const wgmma_shape s = shape_of(w->shape);
    const matrix right = matrix_of(w->b, 32 / s.k, w->b_turned, values_of(s.b_type));
    double rows[16][32], column[32];
    if (checking) tell(right, 0, s.n, s.k);
    if (w->kept) {
        for (int i = 0; i < 32; i++)
            for (int r = 0; r < 4; r++)
                for (int e = 0; e < 2; e++)
                    rows[i / 4 + r % 2 * 8][i % 4 * 2 + e + r / 2 * 8] = right.values[((const wgmma *)lane[i]->given)->kept[r] >> 16 * e & 0xFFFF];
    } else {
        const matrix left = matrix_of(w->a, 32 / s.k, w->a_turned, values_of(s.a_type));
        const int first = lane[0]->index / 32 % 4 * 16;
        if (checking) tell(left, first, 16, s.k);
        for (int i = 0; i < 16; i++) values(left, first + i, rows[i]);
    }
    for (int j = 0; j < s.n; j++) {
        values(right, j, column);
        for (int i = j % 8 / 2; i < 32; i += 4)
            for (int h = 0; h < 2; h++) {
                const wgmma *mine = (const wgmma *)lane[i]->given;
                float *sum = mine->d[j / 8 * 4 + 2 * h + j % 2];
                *sum = (float)((mine->more ? *sum : 0) + dot(rows[i / 4 + 8 * h], column, s.k));
            }
    }
}

static void product(const char *shape, float *const *d, uint64_t a, uint64_t b, bool more, int a_turned, int b_turned)
{
    const wgmma w = { shape, d, a, b, more, a_turned, b_turned, 0 };
    device.together(multiply_rows, 0xFFFFFFFFu, &w, 0);
}

static void product_kept(const char *shape, float *const *d, const uint32_t a[4], uint64_t b, bool more)
{
    const wgmma_shape &s = shape_of(shape);
    if (s.k != 16 || strcmp(s.a_type, s.b_type) || (strcmp(s.a_type, "bf16") && strcmp(s.a_type, "f16")))
        device.fail("a wgmma that the emulator does not know");
    const wgmma w = { shape, d, 0, b, more, 0, 0, a };
    device.together(multiply_rows, 0xFFFFFFFFu, &w, 0);
}

void fill_products(machine *x) { x->mma = mma, x->product = product, x->product_kept = product_kept; }

}
