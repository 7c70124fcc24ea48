/* SPDX-License-Identifier: Apache-2.0 */
#include "isa.h"

#include <string.h>

static const moii_isa *const isas[] = {
#if defined(__x86_64__)
    &moii_isa_avx2,
#endif
    &moii_isa_generic,
};

const moii_isa *moii_isa_choose(const char *name)
{
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        if ((!*name || !strcmp(name, isas[i]->name)) && isas[i]->available()) return isas[i];
    return NULL;
}
