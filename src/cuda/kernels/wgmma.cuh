/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma.cuh: the tensor core's product of one warpgroup, D[64][N] (+)= A[64][K] B[N][K]^T, K = 32 bytes, A and B in shared memory.
 *
 *   defines   WGMMA_N    columns, 8 or a multiple of 16 up to 256
 *             WGMMA_HALF 1: wgmma_half too, with half as many columns (N 64, 128 or 256);  WGMMA_QUARTER 1: wgmma_quarter too (N 64)
 *             WGMMA_TYPE what stands between the shape and the operands: "f32.e4m3.e4m3", "f32.bf16.bf16"
 *             WGMMA_LINE bytes of a row of A and B, 128 where not said, or 64: the swizzle
 *             WGMMA_K    "k32" (8 bits), "k16" (16 bits);  WGMMA_END what follows the scale immediates: "" or ", 0, 0" (16 bits: transposed?)
 *
 * Fragments: with g = lane / 4, c = lane % 4, d[4 j + 2 h + e] is row 16 * (warp % 4) + g + 8 h, column 8 j + 2 c + e.
 * Descriptors: address / 16, distances / 16 at bits 16 and 32, the swizzle at bit 62.  Source: PTX ISA 8.0, 9.7.15. */
#ifndef MOII_WGMMA_CUH
#define MOII_WGMMA_CUH

#include "num.h"

/* A descriptor's lower half holds the address and, MN-major, the distance between runs; sums of addresses / 16 may be added to it. */
MOII_FN unsigned int wgmma_at(unsigned int address) { return (address & 0x3FFFF) >> 4; } /* in a cluster the bits above name the block */
/* MN-major: runs of 64 values of 16 bits, `next` bytes between runs; 8 lines of K behind each other. */
MOII_FN unsigned int wgmma_runs(unsigned int next) { return next >> 4 << 16; }
#ifndef WGMMA_LINE
#define WGMMA_LINE 128
#endif
/* The upper half: groups of 8 rows behind each other, swizzled. */
#define WGMMA_ROWS ((unsigned long long)((8 * WGMMA_LINE) >> 4 | (WGMMA_LINE == 128 ? 1u : 2u) << 30) << 32)

MOII_FN void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MOII_FN void wgmma_close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define WGMMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory")

/* registers and their numbers, eight at a time */
#define WG_D0 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WG_D1 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define WG_D2 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WG_D3 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WG_D4 "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define WG_D5 "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define WG_D6 "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define WG_D7 "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define WG_D8 "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define WG_D9 "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define WG_D10 "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define WG_D11 "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define WG_D12 "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define WG_D13 "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define WG_D14 "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define WG_D15 "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define WG_T0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WG_T1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WG_T2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WG_T3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WG_T4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WG_T5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WG_T6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WG_T7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WG_T8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WG_T9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WG_T10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WG_T11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define WG_T12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define WG_T13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define WG_T14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define WG_T15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define WG_DS0 WG_D0
#define WG_DS1 WG_DS0, WG_D1
#define WG_DS2 WG_DS1, WG_D2
#define WG_DS3 WG_DS2, WG_D3
#define WG_DS4 WG_DS3, WG_D4
#define WG_DS5 WG_DS4, WG_D5
#define WG_DS6 WG_DS5, WG_D6
#define WG_DS7 WG_DS6, WG_D7
#define WG_DS8 WG_DS7, WG_D8
#define WG_DS9 WG_DS8, WG_D9
#define WG_DS10 WG_DS9, WG_D10
#define WG_DS11 WG_DS10, WG_D11
#define WG_DS12 WG_DS11, WG_D12
#define WG_DS13 WG_DS12, WG_D13
#define WG_DS14 WG_DS13, WG_D14
#define WG_DS15 WG_DS14, WG_D15
#define WG_TS0 WG_T0
#define WG_TS1 WG_TS0 ", " WG_T1
#define WG_TS2 WG_TS1 ", " WG_T2
#define WG_TS3 WG_TS2 ", " WG_T3
#define WG_TS4 WG_TS3 ", " WG_T4
#define WG_TS5 WG_TS4 ", " WG_T5
#define WG_TS6 WG_TS5 ", " WG_T6
#define WG_TS7 WG_TS6 ", " WG_T7
#define WG_TS8 WG_TS7 ", " WG_T8
#define WG_TS9 WG_TS8 ", " WG_T9
#define WG_TS10 WG_TS9 ", " WG_T10
#define WG_TS11 WG_TS10 ", " WG_T11
#define WG_TS12 WG_TS11 ", " WG_T12
#define WG_TS13 WG_TS12 ", " WG_T13
#define WG_TS14 WG_TS13 ", " WG_T14
#define WG_TS15 WG_TS14 ", " WG_T15

#if WGMMA_N == 8
#define WG_SHAPE "m64n8"
#define WG_D "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WG_T "%0, %1, %2, %3"
#define WG_A "%4"
#define WG_B "%5"
#define WG_P "%6"
#elif WGMMA_N == 16
#define WG_SHAPE "m64n16"
#define WG_D WG_DS0
#define WG_T WG_TS0
#define WG_A "%8"
#define WG_B "%9"
#define WG_P "%10"
#elif WGMMA_N == 32
#define WG_SHAPE "m64n32"
#define WG_D WG_DS1
#define WG_T WG_TS1
#define WG_A "%16"
#define WG_B "%17"
#define WG_P "%18"
#elif WGMMA_N == 48
#define WG_SHAPE "m64n48"
#define WG_D WG_DS2
#define WG_T WG_TS2
#define WG_A "%24"
#define WG_B "%25"
#define WG_P "%26"
#elif WGMMA_N == 64
#define WG_SHAPE "m64n64"
#define WG_D WG_DS3
#define WG_T WG_TS3
#define WG_A "%32"
#define WG_B "%33"
#define WG_P "%34"
#elif WGMMA_N == 80
#define WG_SHAPE "m64n80"
#define WG_D WG_DS4
#define WG_T WG_TS4
#define WG_A "%40"
#define WG_B "%41"
#define WG_P "%42"
#elif WGMMA_N == 96
#define WG_SHAPE "m64n96"
#define WG_D WG_DS5
#define WG_T WG_TS5
#define WG_A "%48"
#define WG_B "%49"
#define WG_P "%50"
#elif WGMMA_N == 112
#define WG_SHAPE "m64n112"
#define WG_D WG_DS6
#define WG_T WG_TS6
#define WG_A "%56"
#define WG_B "%57"
#define WG_P "%58"
#elif WGMMA_N == 128
#define WG_SHAPE "m64n128"
#define WG_D WG_DS7
#define WG_T WG_TS7
#define WG_A "%64"
#define WG_B "%65"
#define WG_P "%66"
#elif WGMMA_N == 144
#define WG_SHAPE "m64n144"
#define WG_D WG_DS8
#define WG_T WG_TS8
#define WG_A "%72"
#define WG_B "%73"
#define WG_P "%74"
#elif WGMMA_N == 160
#define WG_SHAPE "m64n160"
#define WG_D WG_DS9
#define WG_T WG_TS9
#define WG_A "%80"
#define WG_B "%81"
#define WG_P "%82"
#elif WGMMA_N == 176
#define WG_SHAPE "m64n176"
#define WG_D WG_DS10
#define WG_T WG_TS10
#define WG_A "%88"
#define WG_B "%89"
#define WG_P "%90"
#elif WGMMA_N == 192
#define WG_SHAPE "m64n192"
#define WG_D WG_DS11
#define WG_T WG_TS11
#define WG_A "%96"
#define WG_B "%97"
#define WG_P "%98"
#elif WGMMA_N == 208
#define WG_SHAPE "m64n208"
#define WG_D WG_DS12
#define WG_T WG_TS12
#define WG_A "%104"
#define WG_B "%105"
#define WG_P "%106"
#elif WGMMA_N == 224
#define WG_SHAPE "m64n224"
#define WG_D WG_DS13
#define WG_T WG_TS13
#define WG_A "%112"
#define WG_B "%113"
#define WG_P "%114"
#elif WGMMA_N == 240
#define WG_SHAPE "m64n240"
#define WG_D WG_DS14
#define WG_T WG_TS14
#define WG_A "%120"
#define WG_B "%121"
#define WG_P "%122"
#elif WGMMA_N == 256
#define WG_SHAPE "m64n256"
#define WG_D WG_DS15
#define WG_T WG_TS15
#define WG_A "%128"
#define WG_B "%129"
#define WG_P "%130"
#endif

#define WG_PRODUCT_OF(shape, k_type, end, d, a, b, more)                                                                                \
    "{\n .reg .pred more;\n setp.ne.b32 more, " more ", 0;\n"                                                                          \
    " wgmma.mma_async.sync.aligned." shape k_type " {" d "}, " a ", " b ", more, 1, 1" end ";\n}"
#define WG_PRODUCT(shape, d, a, b, more) WG_PRODUCT_OF(shape, WGMMA_K "." WGMMA_TYPE, WGMMA_END, d, a, b, more)

/* more: adds to d; else d is overwritten */
MOII_FN void wgmma(float *d, unsigned int a_half, unsigned int b_half, int more)
{
    const unsigned long long a = WGMMA_ROWS | a_half, b = WGMMA_ROWS | b_half;
    asm volatile(WG_PRODUCT(WG_SHAPE, WG_T, WG_A, WG_B, WG_P) : WG_D : "l"(a), "l"(b), "r"(more));
}

#ifdef WGMMA_HALF
#if WGMMA_N == 64
#define WG_HALF_SHAPE "m64n32"
#define WG_HALF_D WG_DS1
#define WG_HALF_T WG_TS1
#define WG_HALF_A "%16"
#define WG_HALF_B "%17"
#define WG_HALF_P "%18"
#elif WGMMA_N == 128
#define WG_HALF_SHAPE "m64n64"
#define WG_HALF_D WG_DS3
#define WG_HALF_T WG_TS3
#define WG_HALF_A "%32"
#define WG_HALF_B "%33"
#define WG_HALF_P "%34"
#elif WGMMA_N == 256
#define WG_HALF_SHAPE "m64n128"
#define WG_HALF_D WG_DS7
#define WG_HALF_T WG_TS7
#define WG_HALF_A "%64"
#define WG_HALF_B "%65"
#define WG_HALF_P "%66"
#endif
MOII_FN void wgmma_half(float *d, unsigned int a_half, unsigned int b_half, int more)
{
    const unsigned long long a = WGMMA_ROWS | a_half, b = WGMMA_ROWS | b_half;
    asm volatile(WG_PRODUCT(WG_HALF_SHAPE, WG_HALF_T, WG_HALF_A, WG_HALF_B, WG_HALF_P) : WG_HALF_D : "l"(a), "l"(b), "r"(more));
}
#endif

#ifdef WGMMA_QUARTER
MOII_FN void wgmma_quarter(float *d, unsigned int a_half, unsigned int b_half, int more)
{
    const unsigned long long a = WGMMA_ROWS | a_half, b = WGMMA_ROWS | b_half;
    asm volatile(WG_PRODUCT("m64n16", WG_TS0, "%8", "%9", "%10") : WG_DS0 : "l"(a), "l"(b), "r"(more));
}
#endif

/* Keeps the compiler from moving an accumulator of so many columns across a fence or a wait. */
MOII_FN void wgmma_hold(float *d, int columns = WGMMA_N)
{
#pragma unroll
    for (int i = 0; i < columns / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}

#endif
