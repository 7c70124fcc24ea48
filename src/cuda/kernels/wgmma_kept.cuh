/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma_kept.cuh: the tensor core's product of one warpgroup with A in registers, D[64][N] (+)= A[64][16] B[N][16]^T, of WGMMA_TYPE "f32.bf16.bf16" or
 * "f32.f16.f16"; N is 16, 32, 48, 64, 96, 128 or 144.
 *
 * With g = lane / 4, c = lane % 4, of a warp's 16 rows: a[0] is row g, values 2 c and 2 c + 1; a[1] row g + 8; a[2] and a[3] the same of values 2 c + 8 and
 * 2 c + 9.  B and D as in wgmma.cuh, which is included before.  Source: PTX ISA 8.0, 9.7.15. */
#ifndef MOII_WGMMA_KEPT_CUH
#define MOII_WGMMA_KEPT_CUH

#define WG_KEPT(shape, d, a, b, p) \
    "{\n .reg .pred more;\n setp.ne.b32 more, " p ", 0;\n wgmma.mma_async.sync.aligned." shape "k16." WGMMA_TYPE " {" d "}, {" a "}, " b ", more, 1, 1, 0;\n}"
#define WG_KEPT_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

MOII_FN void wgmma_kept_16(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n16", WG_TS0, "%8, %9, %10, %11", "%12", "%13") : WG_DS0 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_32(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n32", WG_TS1, "%16, %17, %18, %19", "%20", "%21") : WG_DS1 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_48(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n48", WG_TS2, "%24, %25, %26, %27", "%28", "%29") : WG_DS2 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_64(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n64", WG_TS3, "%32, %33, %34, %35", "%36", "%37") : WG_DS3 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_96(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n96", WG_TS5, "%48, %49, %50, %51", "%52", "%53") : WG_DS5 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_128(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n128", WG_TS7, "%64, %65, %66, %67", "%68", "%69") : WG_DS7 : WG_KEPT_A, "l"(b), "r"(more));
}
MOII_FN void wgmma_kept_144(float *d, const unsigned int a[4], unsigned long long b, int more)
{
    asm volatile(WG_KEPT("m64n144", WG_TS8, "%72, %73, %74, %75", "%76", "%77") : WG_DS8 : WG_KEPT_A, "l"(b), "r"(more));
}

MOII_FN void wgmma_kept(float *d, const unsigned int a[4], unsigned int b_half, int columns, int more)
{
    const unsigned long long b = WGMMA_ROWS | b_half;
    if (columns == 144) wgmma_kept_144(d, a, b, more);
    else if (columns == 128) wgmma_kept_128(d, a, b, more);
    else if (columns == 96) wgmma_kept_96(d, a, b, more);
    else if (columns == 64) wgmma_kept_64(d, a, b, more);
    else if (columns == 48) wgmma_kept_48(d, a, b, more);
    else if (columns == 32) wgmma_kept_32(d, a, b, more);
    else wgmma_kept_16(d, a, b, more);
}

#endif
