/* SPDX-License-Identifier: Apache-2.0 */
#include "jit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "hash.h"
#include "status.h"

/* Changes when the options of nvrtc.c do. */
static const char options_version[] = "options 1";

moi_status moii_jit_open(moii_jit *jit, int threads)
{
    memset(jit, 0, sizeof *jit);
    MOII_TRY(moii_env_read_cuda(&jit->env));
    MOII_REQUIRE(pthread_mutex_init(&jit->lock, NULL) == 0, MOI_ERR_NOMEM, "cuda: no memory for a lock");
    jit->threads = threads > 0 ? threads : 1;
    return MOI_OK;
}

void moii_jit_close(moii_jit *jit)
{
    moii_nvrtc_close(&jit->nvrtc);
    pthread_mutex_destroy(&jit->lock);
}

static moi_status compiler_locked(moii_jit *jit)
{
    if (!jit->has_looked) {
        jit->looked = moii_nvrtc_find(&jit->nvrtc, &jit->env);
        jit->has_looked = true;
        if (jit->looked) snprintf(jit->why, sizeof jit->why, "%.500s", moi_last_error());
    }
    return jit->looked ? moii_fail(jit->looked, "%s", jit->why) : MOI_OK;
}

moi_status moii_jit_compiler(moii_jit *jit)
{
    pthread_mutex_lock(&jit->lock);
    moi_status status = compiler_locked(jit);
    pthread_mutex_unlock(&jit->lock);
    return status;
}

static moi_status load_compiler(moii_jit *jit)
{
    pthread_mutex_lock(&jit->lock);
    moi_status status = compiler_locked(jit);
    if (!status) status = moii_nvrtc_load(&jit->nvrtc);
    pthread_mutex_unlock(&jit->lock);
    return status;
}

static moi_status collect(moii_text_set *set, const char *stem)
{
    char file[128];
    snprintf(file, sizeof file, "%s.cu", stem);
    const moii_text *text = moii_text_find(file);
    MOII_REQUIRE(text, MOI_ERR_INTERNAL, "cuda: the library carries no %s", file);
    MOII_REQUIRE(!moii_text_collect(set, text->name), MOI_ERR_INTERNAL, "cuda: %s includes %.60s, which the library does not carry", file,
                 set->names[set->count] ? set->names[set->count] : "too many files");
    return MOI_OK;
}

static void name_of(char name[256], const moii_jit_job *job, const moii_text_set *set)
{
    moii_hash h = MOII_HASH_INIT;
    moii_hash_text(&h, options_version);
    moii_hash_text(&h, job->arch);
    moii_hash_text(&h, job->defines);
    for (int i = 0; i < set->count; i++) moii_hash_text(&h, set->names[i]), moii_hash_text(&h, set->texts[i]);
    snprintf(name, 256, "%.100s-%s-%016" PRIx64 "%016" PRIx64 "-", job->kernel->stem, job->arch, h.a, h.b);
}

/* Whether the entry is a cubin with the right symbol: a checksum only says that it is what was written. */
static bool sound(moii_jit_job *job)
{
    if (moii_cubin_read(job->cubin, job->bytes, job->kernel->stem, &job->use)) return true;
    free(job->cubin);
    job->cubin = NULL;
    return false;
}

static bool from_folders(moii_jit *jit, moii_jit_job *job, const char *prefix)
{
    const moii_env_cuda *env = &jit->env;
    char name[320];
    if (*env->kernels && moii_cache_read_any(env->kernels, prefix, &job->cubin, &job->bytes) && sound(job)) return true;
    if (!*env->cache) return false;
    if (moii_jit_compiler(jit)) return moii_cache_read_any(env->cache, prefix, &job->cubin, &job->bytes) && sound(job);
    snprintf(name, sizeof name, "%s%d.%d.cubin", prefix, jit->nvrtc.major, jit->nvrtc.minor);
    return moii_cache_read(env->cache, name, &job->cubin, &job->bytes) && sound(job);
}

static moi_status get(moii_jit *jit, moii_jit_job *job)
{
    moii_text_set set;
    char prefix[256], name[320];
    MOII_TRY(collect(&set, job->kernel->stem));
    name_of(prefix, job, &set);
    if (from_folders(jit, job, prefix)) return MOI_OK;
    if (load_compiler(jit)) {
        char why[512];
        snprintf(why, sizeof why, "%.500s", moi_last_error());
        MOII_FAIL(MOI_ERR_NO_COMPILER, "%s; and no folder has %s for %s compiled already (cache: %.100s; MOI_KERNELS: %.100s)", why,
                  job->kernel->stem, job->arch, *jit->env.cache ? jit->env.cache : "none", *jit->env.kernels ? jit->env.kernels : "not set");
    }
    job->compiled = true;
    MOII_TRY(moii_nvrtc_compile(&jit->nvrtc, &set, job->arch, job->defines, &job->cubin, &job->bytes, &job->serialized));
    MOII_REQUIRE(sound(job), MOI_ERR_COMPILE, "cuda: %s.cu compiled for %s has no entry %s", job->kernel->stem, job->arch, job->kernel->stem);
    if (job->serialized && jit->must_store) return MOI_OK; /* it will be refused, and must not be found there the next time */
    snprintf(name, sizeof name, "%s%d.%d.cubin", prefix, jit->nvrtc.major, jit->nvrtc.minor);
    bool stored = *jit->env.cache && moii_cache_write(jit->env.cache, name, job->cubin, job->bytes);
    if (!stored && jit->must_store) return moii_fail_errno(MOI_ERR_IO, "cuda: %s cannot be written to %.200s", job->kernel->stem, jit->env.cache);
    return MOI_OK;
}

/* ---- several at once ---- */

typedef struct crew {
    moii_jit *jit;
    moii_jit_job *jobs;
    int count, next;
    pthread_mutex_t lock;
} crew;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *user)
{
    crew *c = user;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        int i = c->next++;
        pthread_mutex_unlock(&c->lock);
        if (i >= c->count) return NULL;
        moii_jit_job *job = &c->jobs[i];
        double start = now();
        job->status = get(c->jit, job);
        job->seconds = now() - start;
        if (job->status) snprintf(job->error, sizeof job->error, "%s", moi_last_error()); /* which is this thread's own */
    }
}

moi_status moii_jit_get(moii_jit *jit, moii_jit_job *jobs, int count)
{
    enum { MOST = 64 };
    crew c = { .jit = jit, .jobs = jobs, .count = count };
    pthread_t thread[MOST];
    int helpers = jit->threads < count ? jit->threads - 1 : count - 1, started = 0;
    MOII_REQUIRE(pthread_mutex_init(&c.lock, NULL) == 0, MOI_ERR_NOMEM, "cuda: no memory for a lock");
    if (helpers > MOST) helpers = MOST;
    while (started < helpers && pthread_create(&thread[started], NULL, work, &c) == 0) started++;
    work(&c); /* also alone, where no thread could be started */
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c.lock);
    for (int i = 0; i < count; i++)
        if (jobs[i].status) MOII_FAIL(jobs[i].status, "%s", jobs[i].error);
    return MOI_OK;
}
