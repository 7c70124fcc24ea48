/* SPDX-License-Identifier: Apache-2.0
 * isa.h: the inner loops that are written once per instruction set.  Each isa_<name>.c is compiled with its own flags and
 * fills one table; isa.c picks the best one that the machine has (or the one MOI_CPU_ISA names). */
#ifndef MOII_ISA_H
#define MOII_ISA_H

#include "moiety.h"

typedef struct moii_isa {
    const char *name;
    bool (*available)(void);
} moii_isa;

extern const moii_isa moii_isa_generic;
#if defined(__x86_64__)
extern const moii_isa moii_isa_avx2;
#endif

/* NULL if `name` is unknown or not available here; "" asks for the best. */
const moii_isa *moii_isa_choose(const char *name);

#endif
