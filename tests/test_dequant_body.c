/* SPDX-License-Identifier: Apache-2.0
 * test_dequant_body.c: the dequantising bodies of every instruction set give the bits of moi_decode and one product. */
#include "support.h"

#include <stdlib.h>

#include "../src/cpu/isa.h"

static const moi_dtype elems[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
static const float scales[] = { 1.0f, 0x1p-127f, 0x1p127f, 0x1p-20f, 0x1.8p3f, 0x1.234568p-120f, 0.0f };

/* Inputs of exactly the bytes they need: reading one more is found by the address sanitizer. */
static void check(const moii_isa *isa, moi_dtype elem, int64_t first, int64_t count, int64_t block, moit_rng *rng)
{
    int64_t bytes = moi_row_bytes(elem, first + count), blocks = count / block + 1;
    unsigned char *row = malloc((size_t)bytes + 1);
    float *s = malloc((size_t)blocks * sizeof *s), *out = moit_alloc(count * 4);
    for (int64_t i = 0; i < bytes; i++) row[i] = (unsigned char)(i < 256 && first == 0 ? i : (int64_t)moit_next(rng));
    for (int64_t i = 0; i < blocks; i++) s[i] = scales[moit_below(rng, sizeof scales / sizeof *scales)];
    unsigned char *exact = malloc((size_t)bytes + (bytes == 0));
    memcpy(exact, row, (size_t)bytes);
    isa->dequant(elem, exact, first, count, block, s, out);
    for (int64_t i = 0; i < count; i++) {
        float want = moi_decode(elem, exact, first + i) * s[i / block];
        if (memcmp(&want, &out[i], 4))
            fail_msg("%s %s: element %lld + %lld, scale %g: wanted %g, got %g", isa->name, moi_dtype_name(elem), (long long)first, (long long)i,
                     (double)s[i / block], (double)want, (double)out[i]);
    }
    free(row), free(exact), free(s), moit_free(out);
}

static void test_bits(void **state)
{
    (void)state;
    static const char *const names[] = { "generic", "avx2" };
    moit_rng rng = moit_seed("dequant body", 0);
    for (size_t i = 0; i < 2; i++) {
        const moii_isa *isa = moii_isa_choose(names[i]);
        if (!isa) continue;
        for (size_t e = 0; e < sizeof elems / sizeof *elems; e++)
            for (int64_t block = 32; block <= 128; block *= 4)
                for (int64_t first = 0; first < 5; first++)
                    for (int64_t count = 0; count < 600; count += count < 70 ? 1 : 37) check(isa, elems[e], first, count, block, &rng);
    }
}

static void test_plain(void **state)
{
    (void)state;
    const moii_isa *isa = moii_isa_choose("");
    uint16_t h[77];
    float f[77], out[77];
    moit_rng rng = moit_seed("dequant plain", 0);
    for (int i = 0; i < 77; i++) h[i] = (uint16_t)moit_next(&rng), f[i] = moit_normal(&rng);
    isa->dequant(MOI_F32, f, 3, 70, 0, NULL, out);
    assert_memory_equal(out, f + 3, 70 * 4);
    isa->dequant(MOI_BF16, h, 3, 70, 0, NULL, out);
    for (int i = 0; i < 70; i++) {
        float want = moi_decode(MOI_BF16, h, 3 + i);
        assert_memory_equal(&want, &out[i], 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits), cmocka_unit_test(test_plain) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
