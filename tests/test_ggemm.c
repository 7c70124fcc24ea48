/* SPDX-License-Identifier: Apache-2.0
 * test_ggemm.c: every row of ggemm, group by group, against sums in double. */
#include "support.h"
#include "support_products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define V(r, e) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }

static const struct { moi_format a, b; } pairs[] = {
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_F32, MOI_F32) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_BF16, MOI_BF16) },
    { V(MOI_RECIPE_MX32, MOI_E4M3), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E5M2), V(MOI_RECIPE_MX32, MOI_E2M1) },
    { V(MOI_RECIPE_MX32, MOI_E3M2), V(MOI_RECIPE_MX32, MOI_E2M3) },
    { V(MOI_RECIPE_MX32, MOI_INT8), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), V(MOI_RECIPE_BLK128, MOI_E5M2) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 } },
    /* weights alone, but for GROUP_K */
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E2M1) },
    { V(MOI_RECIPE_F32, MOI_F32), { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 } },
};
enum { PAIRS = sizeof pairs / sizeof *pairs, MAX_GROUPS = 12 };

/* Sizes of the groups, rows beyond the last group, and the two other sizes. */
typedef struct shape { int groups; int64_t size[MAX_GROUPS], rest, m, n; } shape;
static const shape shapes[] = {
    { 0, { 0 }, 3, 4, 5 },
    { 1, { 0 }, 0, 4, 5 },
    { 1, { 37 }, 2, 5, 6 },
    { 3, { 0, 0, 0 }, 4, 3, 5 },
    { 4, { 1, 0, 33, 31 }, 0, 7, 18 },
    { 4, { 0, 0, 90, 0 }, 0, 17, 12 }, /* all to one expert */
    { 5, { 32, 64, 128, 5, 0 }, 7, 3, 10 },
    { 12, { 3, 17, 1, 0, 2, 40, 8, 5, 5, 6, 130, 31 }, 1, 10, 7 },
    { 3, { 129, 1, 257 }, 0, 1, 3 },
    { 3, { 6, 0, 9 }, 0, 2, 131 }, /* more than one square per expert */
    { 2, { 5, 6 }, 1, 0, 4 },
    { 2, { 5, 6 }, 1, 4, 0 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const shape large = { 6, { 530, 2, 0, 60, 515, 3 }, 1, 40, 70 };

typedef struct job {
    moit_matrix a, b;
    moi_ggemm_desc desc;
    moi_plan *plan;
    const shape *s;
    int64_t *offsets, rows, lines, ldd; /* offsets: counts for GROUP_MASKED; lines: rows of D, over all groups */
    int32_t *index;  /* rows of A, with gather_rows */
    int64_t a_rows;
    int32_t *place;  /* rows of D, with scatter_rows */
    int64_t d_rows;
    float *weight;
    float *before;
    void *d;
} job;
/* Beside the groupings: GROUP_M of rows that an index list names; to rows that a list names, times weights. */
enum { GATHER = 3, SCATTER = 4 };

static const char *const names[] = { "M", "K", "MASKED", "M, gathered", "M, scattered" };

static const char *name_of(const job *j)
{
    bool placed = j->desc.scatter_rows || j->desc.weighted;
    return names[j->desc.gather_rows ? GATHER : placed ? SCATTER : (int)j->desc.grouping];
}

static float result_get(const job *j, int64_t line, int64_t col)
{
    return moi_decode(j->desc.out, (char *)j->d + line * moi_row_bytes(j->desc.out, j->ldd), col);
}

/* Rows that do not count hold whatever is worst. */
static void spoil_masked(job *j)
{
    int64_t bytes = moi_row_bytes(j->a.format.elem, j->a.ld);
    for (int64_t g = 0; g < j->s->groups; g++)
        memset((char *)j->a.data + (g * j->rows + j->offsets[g]) * bytes, 0xFF, (size_t)((j->rows - j->offsets[g]) * bytes));
}

/* Some rows of the product go nowhere, some of D are nobody's; what is behind the last group's is not looked at. */
static void make_places(job *j, moit_rng *rng)
{
    int64_t used = j->offsets[j->s->groups];
    j->d_rows = j->rows + 3, j->desc.scatter_rows = j->d_rows + 1;
    j->place = malloc((size_t)j->rows * sizeof *j->place + 1);
    int32_t *shuffled = malloc((size_t)j->d_rows * sizeof *shuffled);
    for (int64_t i = 0; i < j->d_rows; i++) {
        int64_t at = moit_below(rng, (uint32_t)i + 1);
        shuffled[i] = shuffled[at], shuffled[at] = (int32_t)i;
    }
    for (int64_t r = 0; r < j->rows; r++) j->place[r] = r >= used ? 1 << 30 : moit_below(rng, 8) ? shuffled[r] : -1;
    free(shuffled);
}

/* desc.grouping, formats, orders, out, accumulate and pads are set before. */
static void job_open(job *j, const char *row, const shape *s, int64_t k, moit_rng *rng)
{
    int masked = j->desc.grouping == MOI_GROUP_MASKED, by_rows = masked || j->desc.grouping == MOI_GROUP_M;
    j->s = s;
    j->offsets = malloc(masked && !s->groups ? 1 : (size_t)(s->groups + !masked) * sizeof *j->offsets); /* exactly: reading more is found */
    if (!masked) j->offsets[0] = 0;
    for (int g = 0; g < s->groups; g++) {
        if (masked) j->offsets[g] = s->size[g], j->rows = s->size[g] > j->rows ? s->size[g] : j->rows;
        else j->offsets[g + 1] = j->offsets[g] + s->size[g];
    }
    j->rows = masked ? j->rows + s->rest : j->offsets[s->groups] + s->rest;
    if (j->desc.gather_rows) { /* some rows twice, some not at all; numbers behind the last group's are not looked at */
        j->a_rows = j->rows / 2 + 3, j->desc.gather_rows = j->a_rows + 2;
        j->index = malloc((size_t)j->rows * sizeof *j->index + 1);
        for (int64_t r = 0; r < j->rows; r++) j->index[r] = r < j->offsets[s->groups] ? (int32_t)moit_below(rng, (uint32_t)j->a_rows) : -7;
    }
    if (j->desc.scatter_rows) make_places(j, rng);
    if (j->desc.weighted) j->weight = malloc((size_t)j->rows * sizeof *j->weight + 1);
    for (int64_t r = 0; r < j->rows && j->weight; r++) j->weight[r] = r < j->offsets[s->groups] ? moit_normal(rng) : NAN;
    j->a.rows = j->index ? j->a_rows : by_rows ? j->rows : s->m, j->a.depth = by_rows ? k : j->rows;
    j->b.rows = s->n, j->b.depth = j->a.depth;
    if (by_rows) j->b.batch = s->groups, j->a.batch = masked ? s->groups : 1;
    else j->a.groups = j->b.groups = s->groups, j->a.offsets = j->b.offsets = j->offsets;
    moit_matrix_make(&j->a, rng);
    moit_matrix_make(&j->b, rng);
    if (masked) spoil_masked(j);
    j->desc.size = sizeof j->desc, j->desc.row = row, j->desc.groups = s->groups, j->desc.max_rows = j->rows + 2;
    j->desc.a = j->a.format, j->desc.b = j->b.format, j->desc.a_order = j->a.order, j->desc.b_order = j->b.order;
    j->desc.sm_limit = s->groups, j->desc.overlap = s->groups % 2, j->desc.expected_rows = s->n; /* nothing changes on the CPU */
    j->desc.n = s->n, j->desc.m = by_rows ? 0 : s->m, j->desc.k = by_rows ? k : 0;
    moit_ok(moi_ggemm_plan_create(&j->plan, moit_ctx(0), &j->desc));
    assert_string_equal(moi_plan_row(j->plan), row);
    j->lines = j->place ? j->d_rows : by_rows ? j->rows * (masked ? s->groups : 1) : s->groups * s->m;
    j->ldd = s->n + j->a.pad;
    int64_t bytes = j->lines * moi_row_bytes(j->desc.out, j->ldd);
    j->d = moit_alloc(bytes);
    memset(j->d, 0xFF, (size_t)bytes);
    j->before = calloc((size_t)(j->lines * s->n) + 1, sizeof(float));
    for (int64_t i = 0; i < j->lines * s->n && j->desc.accumulate; i++) {
        j->before[i] = 100.0f * moit_normal(rng);
        ((float *)j->d)[i / s->n * j->ldd + i % s->n] = j->before[i];
    }
}

static void job_run(job *j)
{
    void *w = moit_workspace(j->plan);
    moi_ggemm_args args = { .size = sizeof args, .rows = j->rows, .offsets = j->offsets, .a = moit_operand(&j->a), .b = moit_operand(&j->b),
                            .d = j->d, .ldd = j->a.pad ? j->ldd : 0 };
    args.rows_of_a = j->index, args.a_rows = j->a_rows, args.rows_of_d = j->place, args.d_rows = j->d_rows, args.row_weight = j->weight;
    if (j->desc.grouping == MOI_GROUP_MASKED) args.counts = j->offsets, args.offsets = NULL;
    moit_ok(moi_ggemm_run(j->plan, &args, w, moi_plan_workspace_bytes(j->plan), NULL));
    moit_free(w);
}

static void job_close(job *j)
{
    moit_matrix_free(&j->a);
    moit_matrix_free(&j->b);
    moit_free(j->d);
    free(j->before);
    free(j->offsets);
    free(j->index);
    free(j->place);
    free(j->weight);
    moi_plan_free(j->plan);
}

/* One element: line of D, group, row of A, rows of depth. */
static double check_element(const job *j, int64_t line, int64_t g, int64_t i, int64_t col, int64_t l0, int64_t l1, int strict)
{
    int64_t k = j->a.depth;
    double sum = j->before[line * j->s->n + col], magnitude = fabs(sum);
    const double *va = j->a.values + (j->index ? j->index[i] : i) * k, *vb = j->b.values + ((j->desc.grouping != MOI_GROUP_K ? g * j->s->n : 0) + col) * k;
    double weight = j->weight ? (double)j->weight[i] : 1.0;
    for (int64_t l = l0; l < l1; l++) {
        double p = weight * (va[l] * vb[l]);
        sum += p, magnitude += fabs(p);
    }
    double e = moit_product_error(j->desc.out, result_get(j, line, col), sum, magnitude, l1 - l0 + (j->weight ? 2 : 0), strict);
    if (!(e <= 1.0))
        fail_msg("%s GROUP_%s %s x %s, %d groups, orders %d %d, layouts %d %d, out %s: group %lld D[%lld][%lld] = %g, exact %g: %g of the bound",
                 moi_plan_row(j->plan), name_of(j), moi_dtype_name(j->desc.a.elem),
                 moi_dtype_name(j->desc.b.elem), j->s->groups, j->desc.a_order, j->desc.b_order, j->desc.a.layout, j->desc.b.layout,
                 moi_dtype_name(j->desc.out), (long long)g, (long long)line, (long long)col, (double)result_get(j, line, col), sum, e);
    return e;
}

static bool is_place(const job *j, int64_t line)
{
    for (int64_t r = 0; r < j->offsets[j->s->groups]; r++)
        if (j->place[r] == line) return true;
    return false;
}

/* Largest ratio to the bound; rows of no group and padding must be as they were. */
static double job_check(const job *j, int strict)
{
    double worst = 0.0;
    int masked = j->desc.grouping == MOI_GROUP_MASKED, by_rows = masked || j->desc.grouping == MOI_GROUP_M;
    for (int64_t g = 0; g < j->s->groups; g++) {
        int64_t from = masked ? g * j->rows : j->offsets[g], to = masked ? from + j->offsets[g] : j->offsets[g + 1];
        for (int64_t i = by_rows ? from : 0; i < (by_rows ? to : j->s->m); i++) {
            int64_t line = j->place ? j->place[i] : by_rows ? i : g * j->s->m + i;
            for (int64_t c = 0; c < j->s->n && line >= 0; c++)
                worst = fmax(worst, check_element(j, line, g, i, c, by_rows ? 0 : from, by_rows ? j->desc.k : to, strict));
        }
    }
    for (int64_t line = 0; line < j->lines; line++) {
        const unsigned char *p = (const unsigned char *)j->d + line * moi_row_bytes(j->desc.out, j->ldd);
        int untouched = j->place ? !is_place(j, line) : masked ? line % j->rows >= j->offsets[line / j->rows] : by_rows && line >= j->offsets[j->s->groups];
        for (int64_t c = 0; c < j->s->n && untouched && j->desc.accumulate; c++)
            assert_true(result_get(j, line, c) == j->before[line * j->s->n + c]);
        int64_t first = untouched && !j->desc.accumulate ? 0 : moi_row_bytes(j->desc.out, j->s->n);
        for (int64_t i = first; i < moi_row_bytes(j->desc.out, j->ldd); i++) assert_int_equal(p[i], 0xFF);
    }
    return worst;
}

/* 0 where the combination does not exist; else sets the job up but does not open it. */
static int job_set(job *j, moi_grouping grouping, int pair, int variant, int mode)
{
    moi_format *a = &j->a.format, *b = &j->b.format;
    *a = pairs[pair].a, *b = pairs[pair].b;
    if (grouping == MOI_GROUP_K && (b->block == MOI_BLOCK_SQUARE || a->recipe != b->recipe)) return 0;
    j->desc.gather_rows = (int)grouping == GATHER;
    j->desc.scatter_rows = (int)grouping == SCATTER && variant % 3 != 1, j->desc.weighted = (int)grouping == SCATTER && variant % 3 != 2;
    if ((int)grouping >= GATHER) grouping = MOI_GROUP_M;
    if (b->recipe <= MOI_RECIPE_BF16) {
        j->a.order = (moi_order)(grouping == MOI_GROUP_K && (variant & 1)), j->b.order = (moi_order)(variant >> 1 & 1);
    } else {
        a->layout = (moi_layout)(variant % 3), b->layout = (moi_layout)((variant + pair) % 3);
        if (b->recipe == MOI_RECIPE_BLK128) {
            if (a->layout == MOI_LAYOUT_TILED) a->layout = MOI_LAYOUT_COL;
            if (b->layout == MOI_LAYOUT_TILED) b->layout = MOI_LAYOUT_COL;
        }
    }
    j->desc.grouping = grouping, j->desc.out = mode == 2 ? MOI_BF16 : MOI_F32, j->desc.accumulate = mode == 1;
    j->a.pad = variant % 2 * 5, j->b.pad = variant / 2 * 3;
    return 1;
}

static double one(const char *row, moi_grouping grouping, int pair, int variant, int mode, const shape *s, int64_t k)
{
    job j;
    memset(&j, 0, sizeof j);
    moit_rng rng = moit_seed("ggemm", (uint64_t)(((int)grouping * 16 + pair) * 4 + variant) * 64 + (uint64_t)(mode + s->n * 4));
    if (!job_set(&j, grouping, pair, variant, mode)) return 0.0;
    if (j.desc.gather_rows && j.a.format.recipe == MOI_RECIPE_F32 && !strcmp(row, "ggemm_fast")) return 0.0; /* declines, see test_plan_errors */
    job_open(&j, row, s, k, &rng);
    job_run(&j);
    double worst = job_check(&j, strcmp(row, "ggemm_ref") == 0);
    job_close(&j);
    return worst;
}

/* P:ggemm.bound, P:guard, P:empty */
static void test_bound(void **state)
{
    (void)state;
    static const int64_t depths[] = { 64, 33, 0, 160, 1 };
    const char *row;
    int parts, part = moit_part(&parts);
    for (int i = 0; (row = moit_row("ggemm", i)); i++)
        for (int grouping = 0; grouping <= SCATTER; grouping++) {
            double worst = 0.0;
            for (int pair = 0; pair < PAIRS; pair++)
                for (int variant = 0; variant < 4; variant++)
                    for (int mode = 0; mode < 3; mode++)
                        for (int s = 0; s < SHAPES; s++)
                            if ((pair + variant + mode + s) % parts == part) /* a part has every pair, every shape */
                                worst = fmax(worst, one(row, (moi_grouping)grouping, pair, variant, mode, &shapes[s], depths[(s + pair) % 5]));
            printf("%s GROUP_%s: at most %.3f of the bound\n", row, names[grouping], worst);
        }
}

static void test_bound_large(void **state)
{
    (void)state;
    int parts, part = moit_part(&parts);
    for (int i = 0; moit_row("ggemm", i); i++)
        for (int c = part; c < PAIRS * 5 && strcmp(moit_row("ggemm", i), "ggemm_ref"); c += parts)
            one(moit_row("ggemm", i), (moi_grouping)(c % 5), c / 5, c / 5 % 4, c % 3, &large, c % 5 == MOI_GROUP_MASKED ? 200 : 550);
}

/* P:ggemm.nan: within a group as gemm, and never into another group. */
static void test_nan(void **state)
{
    (void)state;
    static const shape s = { 5, { 7, 0, 40, 2, 33 }, 2, 9, 11 };
    const char *row;
    int parts, part = moit_part(&parts);
    for (int i = 0; (row = moit_row("ggemm", i)); i++)
        for (int c = 0; c < PAIRS * 2 * 2 * 3; c++) {
            if ((c + c / 4) % parts != part) continue; /* a part has every pair, both groupings, both operands */
            job j;
            memset(&j, 0, sizeof j);
            moit_rng rng = moit_seed("ggemm nan", (uint64_t)c);
            moi_grouping grouping = (moi_grouping)(c & 1);
            if (!job_set(&j, grouping, c / 4 % PAIRS, c / 4 / PAIRS, 0)) continue;
            job_open(&j, row, &s, 70, &rng);
            moit_matrix *m = c & 2 ? &j.b : &j.a;
            int64_t at = moit_below(&rng, grouping == MOI_GROUP_M && m == &j.a ? 82 : m->rows);
            int64_t l = moit_below(&rng, grouping == MOI_GROUP_M ? 70 : 82);
            int by_element = m->format.recipe != MOI_RECIPE_MX32 || m->format.elem == MOI_E4M3 || m->format.elem == MOI_E5M2;
            if (by_element && c % 3) moit_matrix_set(m, at, l, m->format.recipe <= MOI_RECIPE_BF16 ? INFINITY : NAN);
            else if (m->scale_bytes) moit_matrix_set_scale(m, 0, at, l, NAN);
            else moit_matrix_set(m, at, l, NAN);
            moit_matrix_read(m);
            job_run(&j);
            job_check(&j, strcmp(row, "ggemm_ref") == 0); /* compares NaN with NaN, number with number */
            int64_t bad = 0;
            for (int64_t e = 0; e < j.lines * s.n; e++) {
                if (grouping == MOI_GROUP_M && e / s.n >= 82) continue;
                float x = result_get(&j, e / s.n, e % s.n);
                bad += !isfinite(x);
            }
            assert_true(bad > 0 && bad <= (m == &j.a ? s.n : 40 * (m->format.block == MOI_BLOCK_SQUARE ? s.n : 1)));
            job_close(&j);
        }
}

/* P:det */
static void test_deterministic(void **state)
{
    (void)state;
    const char *row;
    for (int i = 0; (row = moit_row("ggemm", i)); i++)
        for (int c = 0; c < 6; c++) {
            job j;
            memset(&j, 0, sizeof j);
            moit_rng rng = moit_seed("ggemm det", 1);
            job_set(&j, (moi_grouping)(c & 1), c / 2 * 2, 0, 0);
            job_open(&j, row, &shapes[7], 100, &rng);
            job_run(&j);
            size_t bytes = (size_t)(j.lines * j.ldd) * sizeof(float);
            void *first = malloc(bytes);
            memcpy(first, j.d, bytes);
            for (int again = 0; again < 3; again++) {
                job_run(&j);
                assert_memory_equal(first, j.d, bytes);
            }
            free(first);
            job_close(&j);
        }
}

/* The reference by hand: two groups cut the reduction at 33, so the second one's codes and scales begin at block 33 / 32 + 1 = 2. */
static void test_by_hand(void **state)
{
    (void)state;
    _Alignas(16) unsigned char a[96], b[96], sa[16] = { 127, 128, 129, 0xFF }, sb[16] = { 127, 127, 127, 0xFF };
    _Alignas(16) float d[4] = { 0 };
    static const int64_t offsets[] = { 0, 33, 40 };
    memset(a, 0x7F, sizeof a); /* NaN, which nobody reads */
    memset(b, 0x7F, sizeof b);
    memset(a, 0x38, 33), memset(a + 64, 0x38, 7); /* ones */
    memset(b, 0x38, 33), memset(b + 64, 0x38, 7);
    moi_ggemm_desc desc = MOI_GGEMM_DESC_INIT;
    desc.row = "ggemm_ref", desc.grouping = MOI_GROUP_K, desc.a = desc.b = MOI_FORMAT_MXFP8;
    desc.groups = 2, desc.max_rows = 40, desc.m = 1, desc.n = 1;
    moi_ggemm_args args = { .size = sizeof args, .rows = 40, .offsets = offsets, .a = { a, sa, 0 }, .b = { b, sb, 0 }, .d = d };
    moi_plan *plan;
    moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(1), &desc));
    moit_ok(moi_ggemm_run(plan, &args, NULL, 0, NULL));
    moi_plan_free(plan);
    assert_true(d[0] == 32.0f + 2.0f);
    assert_true(d[1] == 7.0f * 4.0f);
    assert_true(d[2] == 0.0f);
}

/* Products times their weights, in their tokens' places, are summed to the bits that combining plain ones by map and weights gives:
 * but for the reference, which rounds once. */
static void test_scatter_combine(void **state)
{
    (void)state;
    enum { TOKENS = 9, TOP = 3, ROWS = TOKENS * TOP, H = 20 };
    static const shape s = { 4, { 10, 0, 16, 1 }, 0, 0, H };
    for (int i = 0; moit_row("ggemm", i); i++) {
        if (!strcmp(moit_row("ggemm", i), "ggemm_ref")) continue;
        _Alignas(16) int32_t row_of[ROWS], place[ROWS];
        _Alignas(16) float weight[ROWS], sorted[ROWS], y[2][TOKENS * H];
        moi_plan *combine;
        moi_permute_desc to = { .size = sizeof to, .dtype = MOI_F32, .max_tokens = TOKENS, .hidden = H, .experts = 4, .top_k = TOP };
        moit_ok(moi_combine_plan_create(&combine, moit_ctx(0), &to));
        for (int slot = 0; slot < ROWS; slot++) {
            int row = slot * 10 % ROWS; /* a permutation */
            row_of[slot] = row, place[row] = slot, weight[slot] = sorted[row] = 0.1f * (float)(slot + 1);
        }
        for (int fused = 0; fused < 2; fused++) {
            moit_rng rng = moit_seed("ggemm combine", 1);
            job j;
            memset(&j, 0, sizeof j);
            job_set(&j, MOI_GROUP_M, 6, 0, 0);
            job_open(&j, moit_row("ggemm", i), &s, 70, &rng);
            moi_plan_free(j.plan);
            j.desc.scatter_rows = fused * ROWS, j.desc.weighted = fused;
            moit_ok(moi_ggemm_plan_create(&j.plan, moit_ctx(0), &j.desc));
            void *w = moit_workspace(j.plan);
            moi_ggemm_args args = { .size = sizeof args, .rows = ROWS, .offsets = j.offsets, .a = moit_operand(&j.a), .b = moit_operand(&j.b), .d = j.d };
            if (fused) args.rows_of_d = place, args.d_rows = ROWS, args.row_weight = sorted;
            moit_ok(moi_ggemm_run(j.plan, &args, w, moi_plan_workspace_bytes(j.plan), NULL));
            moi_combine_args c = { .size = sizeof c, .tokens = TOKENS, .y_sorted = j.d, .y = y[fused] };
            if (!fused) c.row_of = row_of, c.weights = weight;
            moit_ok(moi_combine_run(combine, &c, NULL, 0, NULL));
            moit_free(w);
            job_close(&j);
        }
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        moi_plan_free(combine);
    }
}

/* Weights beside plain activations may lie anywhere: the same bits from any address. */
static void test_weights_anywhere(void **state)
{
    (void)state;
    enum { GROUPS = 2, ROWS = 3, N = 5, K = 64, CODES = GROUPS * N * K, SCALES = CODES / 32 };
    static const int64_t offsets[] = { 0, 1, ROWS };
    static _Alignas(128) uint16_t a[ROWS * K];
    static _Alignas(128) unsigned char codes[CODES + 8], scales[SCALES + 8];
    moit_rng rng = moit_seed("ggemm anywhere", 0);
    for (int l = 0; l < ROWS * K; l++) moi_encode(MOI_BF16, a, l, moit_normal(&rng));
    for (int i = 0; moit_row("ggemm", i); i++) {
        _Alignas(128) float d[2][32];
        for (int shift = 0; shift < 2; shift++) {
            moi_ggemm_desc g = MOI_GGEMM_DESC_INIT;
            moi_plan *plan;
            moit_rng same = moit_seed("ggemm anywhere", 1);
            for (int l = 0; l < CODES; l++) codes[shift + l] = (unsigned char)moit_below(&same, 0x7F);
            for (int l = 0; l < SCALES; l++) scales[shift + l] = (unsigned char)(120 + moit_below(&same, 8));
            g.row = moit_row("ggemm", i), g.a = MOI_FORMAT_BF16, g.b = MOI_FORMAT_MXFP8, g.groups = GROUPS, g.max_rows = ROWS, g.n = N, g.k = K;
            moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &g));
            void *w = moit_workspace(plan);
            moi_ggemm_args x = { .size = sizeof x, .rows = ROWS, .offsets = offsets, .a = { a, NULL, 0 }, .b = { codes + shift, scales + shift, 0 },
                                 .d = d[shift] };
            moit_ok(moi_ggemm_run(plan, &x, w, moi_plan_workspace_bytes(plan), NULL));
            moit_free(w);
            moi_plan_free(plan);
        }
        assert_memory_equal(d[0], d[1], ROWS * N * sizeof(float));
        assert_true(d[0][0] != 0.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_bound), cmocka_unit_test(test_bound_large), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_weights_anywhere),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_scatter_combine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
