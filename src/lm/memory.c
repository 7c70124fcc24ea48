/* SPDX-License-Identifier: Apache-2.0
 * memory.c: refuses what this machine's memory cannot hold, before it is tried: buffers are zeroed when they are made, and a system
 * that promises more than it has ends the program then. */
#include <unistd.h>

#include "mapped.h"
#include "status.h"

moi_status moii_check_memory(const char *call, const moi_lm *lm, int64_t more)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const int64_t weights = lm->mapped ? lm->mapped->bytes : lm->params.floats * 4 + lm->prepared_bytes;
    const double need = (double)weights + (double)lm->held + (double)more, have = (double)pages * (double)page;
    if (pages <= 0 || page <= 0) return MOI_OK; /* not known */
    MOII_REQUIRE(need <= have, MOI_ERR_NOMEM, "%s: %s needs %.1f GB of memory, this machine has %.1f GB", call,
                 lm->mapped ? lm->mapped->folder : "the model", need / 1e9, have / 1e9);
    return MOI_OK;
}

moi_status moii_hold(moi_lm *lm, const char *call, int64_t bytes, void *at)
{
    MOII_TRY(moii_check_memory(call, lm, bytes));
    MOII_TRY(moii_alloc(lm->ctx, bytes, at));
    lm->held += bytes;
    return MOI_OK;
}

void moii_let_go(moi_lm *lm, void *p, int64_t bytes)
{
    if (p) lm->held -= bytes;
    moi_buf_free(lm->ctx, p);
}
