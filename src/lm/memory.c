/* SPDX-License-Identifier: Apache-2.0
 * memory.c: refuses what this machine's memory cannot hold, before it is tried. */
#include <unistd.h>

#include "mapped.h"
#include "status.h"

moi_status moii_check_memory(const char *call, const moi_lm *lm, int64_t more)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const double need = (double)lm->mapped->bytes + (double)more, have = (double)pages * (double)page;
    if (pages <= 0 || page <= 0) return MOI_OK; /* not known */
    MOII_REQUIRE(need <= have, MOI_ERR_NOMEM, "%s: %s needs %.1f GB of memory, this machine has %.1f GB", call, lm->mapped->folder, need / 1e9, have / 1e9);
    return MOI_OK;
}
