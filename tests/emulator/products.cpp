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

/* ---- wgmma: this thread's part of D[64][n] += A[64][k] B[n][k]^T ---- */

/* A matrix in shared memory as its descriptor says: the bytes of row i's value k. */
struct matrix {
    unsigned int at, next, group; /* address; MN-major: between runs of 64 rows; between groups of 8 rows, or of 8 values of k */
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
    if (!x.swizzle) device.fail("the emulator's wgmma knows swizzled matrices alone");
    if (turned && x.swizzle != 128) device.fail("the emulator's wgmma knows turned matrices in lines of 128 bytes alone");
    return x;
}

static unsigned int place(const matrix &x, int i, int k)
{
    unsigned int at = x.at;
    if (x.turned) at += (unsigned int)(i / 64) * x.next + (unsigned int)(k / 8) * x.group + (unsigned int)(k % 8 * 128 + i % 64 * 2);
    else at += (unsigned int)(i / 8) * x.group + (unsigned int)(i % 8 * x.swizzle + k * x.element);
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

static double value(const matrix &x, int i, int k)
{
    const unsigned char *p = x.memory + place(x, i, k);
    return x.values[x.element == 1 ? p[0] : p[0] | (uint32_t)p[1] << 8];
}

static void add(float *const *d, int n, int k, const double rows[2][32], const matrix &right, bool more)
{
    const int lane = device.self->index % 32;
    double column[32];
    for (int j = 0; j < n / 8; j++)
        for (int e = 0; e < 2; e++) {
            for (int i = 0; i < k; i++) column[i] = value(right, 8 * j + lane % 4 * 2 + e, i);
            for (int h = 0; h < 2; h++) {
                float *sum = d[4 * j + 2 * h + e];
                double s = more ? *sum : 0;
                for (int i = 0; i < k; i++) s += rows[h][i] * column[i];
                *sum = (float)s;
            }
        }
}

/* shape: "m64n128k32.f32.e4m3.e5m2" */
static void product(const char *shape, float *const *d, uint64_t a, uint64_t b, bool more, int a_turned, int b_turned)
{
    int n, k;
    char a_type[8], b_type[8];
    if (sscanf(shape, "m64n%dk%d.f32.%4[a-z0-9].%4[a-z0-9]", &n, &k, a_type, b_type) != 4) device.fail("a wgmma that the emulator does not know");
    const matrix left = matrix_of(a, 32 / k, a_turned, values_of(a_type)), right = matrix_of(b, 32 / k, b_turned, values_of(b_type));
    const int lane = device.self->index % 32, row = device.self->index / 32 % 4 * 16 + lane / 4;
    double rows[2][32];
    if (checking && lane == 0) tell(left, row, 16, k), tell(right, 0, n, k);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < k; i++) rows[h][i] = value(left, row + 8 * h, i);
    add(d, n, k, rows, right, more);
}

/* The same with A, 16 values of 16 bits, in registers: those of a row are four lanes'. */
struct kept { const uint32_t *a; double rows[2][32]; const float *values; };

static void gather_rows(thread *const lane[32])
{
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) device.fail("a product wants the whole warp");
        kept *to = (kept *)lane[i]->given;
        for (int c = 0; c < 4; c++) {
            const kept *from = (const kept *)lane[i / 4 * 4 + c]->given;
            for (int r = 0; r < 4; r++)
                for (int e = 0; e < 2; e++) to->rows[r % 2][2 * c + e + r / 2 * 8] = to->values[from->a[r] >> 16 * e & 0xFFFF];
        }
    }
}

static void product_kept(const char *shape, float *const *d, const uint32_t a[4], uint64_t b, bool more)
{
    int n;
    char a_type[8], b_type[8];
    const bool known = sscanf(shape, "m64n%dk16.f32.%4[a-z0-9].%4[a-z0-9]", &n, a_type, b_type) == 3 && !strcmp(a_type, b_type);
    if (!known || (strcmp(a_type, "bf16") && strcmp(a_type, "f16"))) device.fail("a wgmma that the emulator does not know");
    const matrix right = matrix_of(b, 2, 0, values_of(a_type));
    kept f = { a, {}, right.values };
    device.together(gather_rows, 0xFFFFFFFFu, &f, 0);
    if (checking && device.self->index % 32 == 0) tell(right, 0, n, 16);
    add(d, n, 16, f.rows, right, more);
}

void fill_products(machine *x) { x->mma = mma, x->product = product, x->product_kept = product_kept; }

}
