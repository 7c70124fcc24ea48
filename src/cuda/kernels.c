/* SPDX-License-Identifier: Apache-2.0
 * kernels.c: every kernel there is, and preparing them on a machine that needs no GPU (moi_kernels_compile). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "ctx.h"
#include "jit.h"
#include "status.h"

const moii_kernel *moii_kernel_at(int index)
{
    for (int i = 0; i < moii_impl_count; i++) {
        const moii_kernel *const *list = moii_impls[i]->kernels;
        for (; list && *list; list++)
            if (index-- == 0) return *list;
    }
    return NULL;
}

/* "sm_90a" -> 90 */
static int capability_of(const char *arch) { return strncmp(arch, "sm_", 3) ? 0 : atoi(arch + 3); }

/* The next word of a list; NULL behind the last. */
static const char *next_word(const char *p, const char *gaps, char *word, size_t size)
{
    p += strspn(p, gaps);
    size_t n = strcspn(p, gaps);
    if (!n) return NULL;
    snprintf(word, size, "%.*s", (int)n, p);
    return p + n;
}

bool moii_kernel_arch(const moii_kernel *k, int capability, char arch[MOII_ARCH])
{
    int least = 0;
    for (const char *p = k->archs; (p = next_word(p, " ", arch, MOII_ARCH));) {
        int c = capability_of(arch);
        if (c == capability) return true;
        if (!least || c < least) least = c;
    }
    if (!k->newer || capability < least) return false;
    snprintf(arch, MOII_ARCH, "sm_%d", capability);
    return true;
}

static bool wanted(const char *archs, const char *arch)
{
    char word[MOII_ARCH];
    if (!archs || !*archs) return true;
    for (const char *p = archs; (p = next_word(p, ", ", word, sizeof word));)
        if (!strcmp(word, arch)) return true;
    return false;
}

/* Each kernel for each arch it states, each variant, of those the part that is asked for; returns how many, and fills `jobs` where that is not NULL. */
static int plan_jobs(const moi_kernels_config *c, moii_jit_job *jobs)
{
    char arch[MOII_ARCH];
    const moii_kernel *k;
    int count = 0, all = 0;
    for (int i = 0; (k = moii_kernel_at(i)); i++)
        for (const char *p = k->archs; (p = next_word(p, " ", arch, sizeof arch));)
            for (int v = 0; wanted(c->archs, arch) && v < (k->variants ? k->variants : 1); v++) {
                if (c->parts && all++ % c->parts != c->part) continue;
                if (jobs) {
                    jobs[count].kernel = k;
                    memcpy(jobs[count].arch, arch, sizeof arch);
                    if (k->variants) k->variant(v, jobs[count].defines);
                }
                count++;
            }
    return count;
}

static moi_status check_archs(const char *archs)
{
    char word[MOII_ARCH], arch[MOII_ARCH];
    const moii_kernel *k;
    for (const char *p = archs ? archs : ""; (p = next_word(p, ", ", word, sizeof word));) {
        bool known = false;
        for (int i = 0; (k = moii_kernel_at(i)) && !known; i++)
            for (const char *q = k->archs; !known && (q = next_word(q, " ", arch, sizeof arch));) known = !strcmp(word, arch);
        MOII_REQUIRE(known, MOI_ERR_ARG, "moi_kernels_compile: no kernel is written for '%s'; 'moiety kernels list' shows which are", word);
    }
    return MOI_OK;
}

static void report(const moii_jit_job *j, const moi_kernels_config *c)
{
    moi_kernel_info info = { .size = sizeof info, .stem = j->kernel->stem, .arch = j->arch, .defines = j->defines,
                             .register_limit = j->kernel->registers, .registers = j->use.registers, .local_bytes = j->use.stack_bytes,
                             .shared_bytes = j->use.shared_bytes, .cubin_bytes = (int64_t)j->bytes, .compiled = j->compiled,
                             .seconds = j->seconds, .status = j->status, .error = j->status ? j->error : NULL };
    if (c->each) c->each(c->user, &info);
}

/* What a kernel states of itself binds it. */
static void hold_to_limits(moii_jit_job *j)
{
    if (j->status) return;
    if (j->use.stack_bytes == 0 && j->use.registers <= j->kernel->registers && !j->serialized) return;
    j->status = MOI_ERR_COMPILE;
    snprintf(j->error, sizeof j->error, "cuda: %s for %s with '%s' uses %d registers (its row allows %d) and %d bytes of local memory (0)%s",
             j->kernel->stem, j->arch, j->defines, j->use.registers, j->kernel->registers, j->use.stack_bytes,
             j->serialized ? "; ptxas made its products wait for each other" : "");
}

static moi_status compile(const moi_kernels_config *c, moii_jit_job *jobs, int count)
{
    moii_jit jit;
    if (!moii_cache_ready(c->folder)) return moii_fail_errno(MOI_ERR_IO, "moi_kernels_compile: cannot write to %.200s", c->folder);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    MOII_TRY(moii_jit_open(&jit, c->threads ? c->threads : cores > 0 ? (int)cores : 1));
    moi_status status = moii_jit_compiler(&jit);
    *jit.env.kernels = 0; /* must come from this compiler, and lie in the folder asked for */
    snprintf(jit.env.cache, sizeof jit.env.cache, "%s", c->folder);
    jit.must_store = true;
    if (!status) moii_jit_get(&jit, jobs, count);
    moii_jit_close(&jit);
    return status;
}

moi_status moi_kernels_compile(const moi_kernels_config *config)
{
    moi_kernels_config c;
    MOII_TRY(moii_take(&c, sizeof c, config, "moi_kernels_compile: config"));
    MOII_REQUIRE(c.threads >= 0 && c.threads <= 1024, MOI_ERR_ARG, "moi_kernels_compile: threads must be 0..1024, got %d", c.threads);
    MOII_REQUIRE(!c.folder || (*c.folder && strlen(c.folder) < MOII_PATH), MOI_ERR_ARG,
                 "moi_kernels_compile: folder must have 1 to %d letters", MOII_PATH - 1);
    MOII_REQUIRE(c.parts >= 0 && c.part >= 0 && c.part < (c.parts ? c.parts : 1), MOI_ERR_ARG,
                 "moi_kernels_compile: part must be 0..parts-1, got %d of %d", c.part, c.parts);
    MOII_TRY(check_archs(c.archs));
    int count = plan_jobs(&c, NULL);
    moii_jit_job *jobs = calloc((size_t)count + 1, sizeof *jobs);
    MOII_REQUIRE(jobs, MOI_ERR_NOMEM, "moi_kernels_compile: no memory for %d kernels", count);
    plan_jobs(&c, jobs);
    moi_status status = c.folder ? compile(&c, jobs, count) : MOI_OK;
    moi_status first = status;
    for (int i = 0; i < count && !status; i++) {
        if (c.folder) hold_to_limits(&jobs[i]);
        report(&jobs[i], &c);
        if (!first && jobs[i].status) first = moii_fail(jobs[i].status, "%s", jobs[i].error);
    }
    for (int i = 0; i < count; i++) free(jobs[i].cubin);
    free(jobs);
    return first;
}
