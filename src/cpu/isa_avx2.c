/* SPDX-License-Identifier: Apache-2.0
 * isa_avx2.c: AVX2 + FMA + F16C bodies; compiled with those flags, run only where the machine has them. */
#include "isa.h"

#if defined(__x86_64__)
static bool available(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* every such machine has F16C too */
}

const moii_isa moii_isa_avx2 = { .name = "avx2", .available = available };
#endif
