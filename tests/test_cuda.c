/* SPDX-License-Identifier: Apache-2.0
 * test_cuda.c: what of the CUDA back end needs no GPU: the folders of compiled kernels, damaged, raced for and missing; compiling; what a
 * compiled kernel uses.  Without NVRTC the tests that compile count as skipped. */
#include "support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/cuda/cache.h"
#include "../src/cuda/jit.h"
#include "support_files.h"

static bool can_compile(void)
{
    moii_jit jit;
    moit_ok(moii_jit_open(&jit, 1));
    bool yes = !moii_jit_compiler(&jit);
    moii_jit_close(&jit);
    return yes;
}

/* Files of the cache, without notes about compilers. */
static int count_in(const char *folder) { return moii_cache_count(folder, ".cubin"); }

static void first_in(const char *folder, char path[2048])
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    *path = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".cubin")) snprintf(path, 2048, "%.1000s/%s", folder, e->d_name);
    closedir(d);
}

static void test_cache_damage(void **state)
{
    (void)state;
    char path[1100];
    unsigned char data[300], *got;
    size_t bytes;
    const char *folder = moit_path("a/b");
    for (int i = 0; i < 300; i++) data[i] = (unsigned char)(7 * i);
    assert_false(moii_cache_read(folder, "x", &got, &bytes));
    assert_true(moii_cache_write(folder, "x", data, sizeof data));
    assert_true(moii_cache_read(folder, "x", &got, &bytes));
    assert_int_equal(bytes, sizeof data);
    assert_memory_equal(got, data, sizeof data);
    free(got);
    assert_true(moii_cache_read_any(folder, "x", &got, &bytes));
    free(got);
    assert_false(moii_cache_read_any(folder, "y", &got, &bytes));
    snprintf(path, sizeof path, "%s/x", folder);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t cut = 0; cut < st.st_size; cut += 13) { /* cut short */
        assert_true(moii_cache_write(folder, "x", data, sizeof data));
        assert_int_equal(truncate(path, cut), 0);
        assert_false(moii_cache_read(folder, "x", &got, &bytes));
    }
    for (long at = 0; at < st.st_size; at += 7) { /* one bit changed: in the magic, the length, the checksum, the data */
        assert_true(moii_cache_write(folder, "x", data, sizeof data));
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 0x10, f);
        fclose(f);
        assert_false(moii_cache_read(folder, "x", &got, &bytes));
    }
    FILE *f = fopen(path, "ab"); /* and longer than it says */
    fputc(0, f);
    fclose(f);
    assert_false(moii_cache_read(folder, "x", &got, &bytes));
}

/* Two processes write and read the same entry: whoever reads finds it whole, in one form or the other. */
static void test_cache_race(void **state)
{
    (void)state;
    enum { SIZE = 40000, ROUNDS = 150 };
    static unsigned char data[SIZE];
    const char *folder = moit_path("race");
    memset(data, 1, SIZE);
    assert_true(moii_cache_write(folder, "x", data, SIZE));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(data, 2, SIZE);
        for (int i = 0; i < ROUNDS; i++)
            if (!moii_cache_write(folder, "x", data, SIZE)) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char *got;
        size_t bytes;
        assert_true(moii_cache_read(folder, "x", &got, &bytes));
        for (int k = 0; k < SIZE; k++) assert_int_equal(got[k], got[0]);
        free(got);
        assert_true(moii_cache_write(folder, "x", data, SIZE));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    DIR *d = opendir(folder);
    int files = 0;
    for (struct dirent *e; (e = readdir(d));) files += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    assert_int_equal(files, 1); /* no temporary file is left */
}

static moii_jit_job job_for(const moii_kernel *k, const char *arch)
{
    moii_jit_job job = { .kernel = k };
    snprintf(job.arch, sizeof job.arch, "%s", arch);
    if (k->variants) k->variant(0, job.defines);
    return job;
}

/* A fresh process's way to a kernel.  Returns whether it was compiled. */
static moi_status get(moii_jit_job *job)
{
    moii_jit jit;
    moit_ok(moii_jit_open(&jit, 2));
    job->compiled = false;
    moi_status status = moii_jit_get(&jit, job, 1);
    moii_jit_close(&jit);
    free(job->cubin);
    job->cubin = NULL;
    return status;
}

static void test_compile(void **state)
{
    (void)state;
    const moii_kernel *k = moii_kernel_at(0);
    assert_non_null(k);
    if (!can_compile()) skip();
    char path[2048];
    const char *folder = moit_path("kernels");
    setenv("MOI_CACHE", folder, 1);
    moii_jit_job job = job_for(k, "sm_90a");
    moit_ok(get(&job));
    assert_true(job.compiled);
    assert_true(job.use.registers > 8 && job.use.registers <= k->registers);
    assert_int_equal(job.use.stack_bytes, 0);
    assert_int_equal(count_in(folder), 1);
    moit_ok(get(&job));
    assert_false(job.compiled);
    first_in(folder, path); /* a damaged entry is made anew */
    assert_int_equal(truncate(path, 1000), 0);
    moit_ok(get(&job));
    assert_true(job.compiled);
    unsigned char junk[64] = { 1 }; /* so is one that is whole but no cubin */
    assert_true(moii_cache_write(folder, strrchr(path, '/') + 1, junk, sizeof junk));
    moit_ok(get(&job));
    assert_true(job.compiled);
    strcat(job.defines, " MORE=1"); /* other defines, another entry */
    moit_ok(get(&job));
    assert_true(job.compiled);
    assert_int_equal(count_in(folder), 2);
    strcpy(job.defines, "ELEM=((");
    moit_refused(get(&job), MOI_ERR_COMPILE, "cannot compile");
    setenv("MOI_CACHE", "/proc/no/such/folder", 1); /* a cache that cannot be written only costs time */
    job = job_for(k, "sm_90a");
    moit_ok(get(&job));
    assert_true(job.compiled);
    setenv("MOI_CACHE", folder, 1);
}

static void count_kernel(void *user, const moi_kernel_info *info)
{
    assert_true(info->status == MOI_OK && !info->compiled);
    ++*(int *)user;
}

/* Parts of all kernels: no part is left out, none that is not there. */
static void test_parts(void **state)
{
    (void)state;
    int all = 0, in_parts = 0;
    moi_kernels_config c = MOI_KERNELS_CONFIG_INIT;
    c.each = count_kernel, c.user = &all;
    moit_ok(moi_kernels_compile(&c));
    c.user = &in_parts;
    for (c.parts = 5; c.part < c.parts; c.part++) moit_ok(moi_kernels_compile(&c));
    assert_true(all > 5 && in_parts == all);
    moit_refused(moi_kernels_compile(&c), MOI_ERR_ARG, "part must be 0..parts-1, got 5 of 5");
    c.part = -1;
    moit_refused(moi_kernels_compile(&c), MOI_ERR_ARG, "got -1 of 5");
    c.part = 1, c.parts = 0;
    moit_refused(moi_kernels_compile(&c), MOI_ERR_ARG, "got 1 of 0");
}

/* Decode's kernels have as many variants as they say: one more would be the last one again.  (Products have those of shapes, some of which are cut alike.) */
static void test_variants(void **state)
{
    (void)state;
    int decode = 0;
    const moii_kernel *k;
    for (int i = 0; (k = moii_kernel_at(i)); i++) {
        if (strncmp(k->stem, "moe_decode", 10) != 0) continue;
        char (*defines)[MOII_DEFINES] = calloc((size_t)k->variants + 1, sizeof *defines);
        assert_non_null(defines);
        for (int v = 0; v < k->variants; v++) {
            k->variant(v, defines[v]);
            for (int w = 0; w < v; w++)
                if (!strcmp(defines[v], defines[w])) fail_msg("%s: variants %d and %d are '%s'", k->stem, w, v, defines[v]);
        }
        decode += k->variants > 1;
        free(defines);
    }
    assert_int_equal(decode, 3);
}

/* Several kernels on several threads; one that fails is reported and the others are there. */
static void test_several(void **state)
{
    (void)state;
    const moii_kernel *k = moii_kernel_at(0);
    moii_jit jit;
    moii_jit_job jobs[4];
    if (!can_compile()) skip();
    const char *folder = moit_path("several");
    setenv("MOI_CACHE", folder, 1);
    for (int i = 0; i < 4; i++) {
        jobs[i] = job_for(k, "sm_90a");
        if (k->variants > 3) k->variant(i, jobs[i].defines);
    }
    strcpy(jobs[2].defines, "ELEM=nothing");
    moit_ok(moii_jit_open(&jit, 3));
    moit_refused(moii_jit_get(&jit, jobs, 4), MOI_ERR_COMPILE, "'ELEM=nothing'");
    moii_jit_close(&jit);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(jobs[i].status, i == 2 ? MOI_ERR_COMPILE : MOI_OK);
        assert_int_equal(jobs[i].cubin == NULL, i == 2);
        free(jobs[i].cubin);
    }
}

/* ptxas makes wgmma products wait for each other, and says so in the log alone, where a sum is touched before its product is waited for. */
static void test_serialized(void **state)
{
    (void)state;
    if (!can_compile()) skip();
    const moii_text_set set = { .count = 1, .names = { "products.cu" }, .texts = {
        "extern \"C\" __global__ void products(float *out, unsigned long long a, unsigned long long b)\n{\n"
        "    float d[4] = { 0, 0, 0, 0 };\n    for (int i = 0; i < 4; i++) {\n"
        "        asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
        "        asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;\"\n"
        "                     : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a + i), \"l\"(b + i));\n"
        "        asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n        if (TOUCHED) d[0] += 1;\n    }\n"
        "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
        "    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];\n}\n" } };
    moii_jit jit;
    moit_ok(moii_jit_open(&jit, 1));
    moit_ok(moii_jit_compiler(&jit));
    moit_ok(moii_nvrtc_load(&jit.nvrtc));
    for (int touched = 0; touched < 2; touched++) {
        unsigned char *cubin;
        size_t bytes;
        bool serialized;
        moit_ok(moii_nvrtc_compile(&jit.nvrtc, &set, "sm_90a", touched ? "TOUCHED=1" : "TOUCHED=0", &cubin, &bytes, &serialized));
        assert_int_equal(serialized, touched);
        free(cubin);
    }
    moii_jit_close(&jit);
}

/* Without a compiler: what a folder has is used, what none has is refused with the reason. */
static void test_no_compiler(void **state)
{
    (void)state;
    if (!can_compile()) skip();
    const char *folder = moit_path("shipped");
    const char *empty = moit_path("empty");
    setenv("MOI_CACHE", folder, 1);
    moii_jit_job job = job_for(moii_kernel_at(0), "sm_90a");
    moit_ok(get(&job));
    setenv("MOI_NVRTC", "/nowhere/libnvrtc.so.13", 1);
    moit_ok(get(&job)); /* the cache is warm */
    assert_false(job.compiled);
    setenv("MOI_CACHE", empty, 1);
    moit_refused(get(&job), MOI_ERR_NO_COMPILER, "MOI_NVRTC is '/nowhere/libnvrtc.so.13'");
    moit_refused(get(&job), MOI_ERR_NO_COMPILER, "no folder has");
    setenv("MOI_KERNELS", folder, 1);
    moit_ok(get(&job)); /* shipped */
    assert_false(job.compiled);
    unsetenv("MOI_KERNELS"), unsetenv("MOI_NVRTC");
}

static void test_archs(void **state)
{
    (void)state;
    static const moii_kernel plain = { .stem = "p", .archs = "sm_80 sm_90a sm_100a", .newer = true }, hopper = { .stem = "h", .archs = "sm_90a" };
    static const struct { const moii_kernel *k; int capability; const char *arch; } cases[] = {
        { &plain, 75, NULL }, { &plain, 80, "sm_80" }, { &plain, 86, "sm_86" }, { &plain, 90, "sm_90a" }, { &plain, 100, "sm_100a" },
        { &plain, 120, "sm_120" }, { &hopper, 80, NULL }, { &hopper, 90, "sm_90a" }, { &hopper, 100, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arch[MOII_ARCH];
        assert_int_equal(moii_kernel_arch(cases[i].k, cases[i].capability, arch), cases[i].arch != NULL);
        if (cases[i].arch) assert_string_equal(arch, cases[i].arch);
    }
}

static void test_texts(void **state)
{
    (void)state;
    moii_text_set set;
    const moii_kernel *k;
    for (int i = 0; (k = moii_kernel_at(i)); i++) { /* every kernel's text and headers are in the library */
        char file[128], entry[160];
        snprintf(file, sizeof file, "%s.cu", k->stem);
        if (moii_text_collect(&set, file)) fail_msg("%s: %s is missing", file, set.names[set.count]);
        snprintf(entry, sizeof entry, "%s(", k->stem);
        const char *c = strstr(set.texts[0], "extern \"C\" __global__"), *at = c ? strstr(c, entry) : NULL;
        if (!at || (at[-1] != ' ' && at[-1] != '\n')) fail_msg("%s has no entry %s", file, k->stem);
    }
    assert_int_equal(moii_text_collect(&set, "nothing.cu"), 1);
}

/* Bytes that are no ELF file, or a broken one, are refused and not read past. */
static void test_cubin_damage(void **state)
{
    (void)state;
    moii_cubin_use use;
    assert_false(moii_cubin_read((const unsigned char *)"\177ELF", 4, "x", &use));
    if (!can_compile()) skip();
    moii_jit jit;
    moii_jit_job job = job_for(moii_kernel_at(0), "sm_90a");
    moit_ok(moii_jit_open(&jit, 1));
    moit_ok(moii_jit_get(&jit, &job, 1));
    moii_jit_close(&jit);
    unsigned char *p = malloc(job.bytes);
    moit_rng rng = moit_seed("cubin", 1);
    assert_false(moii_cubin_read(job.cubin, job.bytes, "no_such_entry", &use));
    for (int i = 0; i < 3000; i++) {
        size_t bytes = i % 2 ? job.bytes : (size_t)moit_below(&rng, (int64_t)job.bytes);
        memcpy(p, job.cubin, bytes);
        for (int n = 0; n < 4 && bytes; n++) p[moit_below(&rng, n % 2 && bytes > 64 ? 64 : (int64_t)bytes)] = (unsigned char)moit_next(&rng);
        moii_cubin_read(p, bytes, job.kernel->stem, &use); /* the sanitizer judges */
    }
    free(p), free(job.cubin);
}

int main(void)
{
    setenv("MOI_CACHE", moit_path("cache"), 1);
    unsetenv("MOI_KERNELS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_damage), cmocka_unit_test(test_cache_race), cmocka_unit_test(test_archs), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_parts), cmocka_unit_test(test_variants), cmocka_unit_test(test_compile), cmocka_unit_test(test_several),
        cmocka_unit_test(test_no_compiler), cmocka_unit_test(test_cubin_damage), cmocka_unit_test(test_serialized),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
