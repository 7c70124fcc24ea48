/* SPDX-License-Identifier: Apache-2.0
 * test_decode_layout.c: how moe_decode_f16_sm90 and moe_decode_many_sm90 cut a layer and divide shared memory, and when decode turns to grouped products,
 * which needs no device. */
#include "support.h"

#include "../src/cuda/decode_crossing.h"
#include "../src/cuda/decode_many_layout.h"

enum { SMS = 132, SHARED = 232448, TOGETHER = 228 << 10 };
static const moii_decode_device H200 = { SMS, 4917 }, H100 = { SMS, 3352 };

static const int lengths[] = { 128, 256, 384, 512, 640, 736, 768, 1536, 2048, 2880, 4096, 7168, 14336 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

typedef struct place { int at, bytes, align; } place;

/* In the order in which they are reserved, each with what must fit there; the last one is the end. */
static void check_order(const place *p, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        assert_int_equal(p[i].at % p[i].align, 0);
        assert_true(p[i].at + p[i].bytes <= p[i + 1].at);
    }
}

static int larger(int a, int b) { return a > b ? a : b; }

/* Bytes that a warp has for routing a token, where sums come later: maxima, the best fours, their places, the best; or p of every expert. */
static int scratch_of(const moe_decode_f16_sm90_args *a)
{
    if (a->experts > 512) return 0; /* a launch before */
    return a->experts <= 128 ? (64 + 64 + 16 + 32) * 4 : a->experts <= 256 ? 256 * 4 : 512 * 4;
}

static void check_places(const moe_decode_f16_sm90_args *a, int pass, int tokens, bool bf16, int end)
{
    int pairs = tokens * a->top_k, slots = (pass == 1 ? F16_UP_WORKERS : F16_DOWN_WARPS) * a->ring;
    int lines = pass == 1 ? F16_UP_LINES(a->format) : moii_decode_f16_lines(a);
    int up_sums = larger(2 * F16_UP_WORKERS * 512, (F16_UP_WORKERS + 1) * scratch_of(a));
    const place places[] = {
        { 0, slots * a->slot_bytes, 1024 },
        { a->at_scales, bf16 ? 0 : slots * F16_ROWS * (lines + a->tail) * 4, 4 }, /* of rows that begin anywhere in a word one more */
        { a->at_columns, pass == 1 ? a->lines * (bf16 ? 2 * a->columns * 64 : 4 * a->columns * 64 + 32) : 0, 16 },
        { a->at_sums, pass == 1 ? up_sums : pairs * (a->items ? 1 : a->parts) * a->block_tiles * F16_ROWS * 4, 16 },
        { a->at_barriers, 8 * (slots + (pass == 1 ? 4 * F16_TEAMS : 0)), 8 },
        { a->at_ids, pairs * 4, 4 },
        { a->at_weights, (pass == 1 ? a->experts <= 512 ? a->experts : 0 : pairs) * 4, 4 },
        { a->at_first, (a->experts + 1) * 4, 4 },
        { a->at_expert, a->most_jobs * 4, 4 },
        { a->at_column, a->most_jobs * F16_MOST_TOKENS * 2, 4 },
        { a->at_job, pairs * 2, 2 },
        { end, 0, 1 },
    };
    check_order(places, sizeof places / sizeof *places);
}

static void check_cut(const moe_decode_f16_sm90_args *a, int pass, int k, int values)
{
    assert_int_equal(F16_LINE_VALUES(a->format), values);
    assert_true((a->lines - 1) * values + a->last_blocks * 32 == k && a->last_blocks * 32 <= values && a->tail == (k % values != 0));
    assert_true(a->slot_lines >= 1 && a->slot_lines <= (pass == 1 ? F16_UP_LINES(a->format) : moii_decode_f16_lines(a)));
    if (pass == 2) assert_true(moii_decode_f16_lines(a) <= F16_DOWN_LINES(a->format));
    assert_true(a->parts * a->slot_lines >= a->lines && (a->parts - 1) * a->slot_lines < a->lines);
    assert_int_equal(a->slot_bytes, a->slot_lines * F16_LINE_BYTES(a->format));
    for (int pair = 0; pair < F16_MOST_TOKENS * a->top_k; pair++) assert_int_equal((unsigned)pair * a->inverse_top_k >> 16, pair / a->top_k);
    if (pass == 1) {
        assert_true(a->step_rest >= 0 && a->step_rest < a->tiles);
        assert_int_equal(a->step_job * a->tiles + a->step_rest, F16_TEAMS * SMS);
        assert_int_equal(a->shifts, a->parts >= 4 && (a->parts % 4 || a->lines % a->slot_lines));
        return;
    }
    assert_true(a->block_tiles >= 1);
    const int parts = a->items ? 1 : a->parts; /* that go round the workers */
    assert_true(a->step_rest >= 0 && a->step_rest < parts && a->step_number >= 0 && a->step_number < a->block_tiles && a->step_job >= 0);
    assert_int_equal((a->step_job * a->block_tiles + a->step_number) * parts + a->step_rest, F16_DOWN_WARPS);
}

static void check(int hidden, int width, int experts, int top_k, int tokens, moi_format weights)
{
    const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = hidden, .width = width, .experts = experts, .top_k = top_k, .x = MOI_BF16,
                                    .out = MOI_BF16, .weights = weights };
    _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
    moii_gpu_launch launch[2];
    if (!moii_decode_f16_layout(&d, tokens, H200, args, launch)) return; /* moe_decode_many_sm90 takes it: test_many */
    assert_true(args[0].policy == (tokens == 8 ? EVICT_NORMAL : EVICT_FIRST) && args[1].policy == EVICT_FIRST);
    assert_true(launch[0].shared_bytes + launch[1].shared_bytes + 2048 <= TOGETHER); /* 1 KB is each block's own */
    assert_true(2 * (launch[0].shared_bytes + 1024) > TOGETHER); /* never two blocks of pass 1 */
    for (int pass = 1; pass <= 2; pass++) {
        const moe_decode_f16_sm90_args *a = &args[pass - 1];
        const moii_gpu_launch *l = &launch[pass - 1];
        int barriers = pass == 1 ? F16_UP_WORKERS * a->ring + 4 * F16_TEAMS : F16_DOWN_WARPS * a->ring;
        assert_true(a->ring >= 2 && barriers <= l->threads); /* a thread opens a barrier */
        check_places(a, pass, tokens, weights.recipe == MOI_RECIPE_BF16, l->shared_bytes);
        check_cut(a, pass, pass == 1 ? hidden : width, weights.recipe == MOI_RECIPE_BF16 ? 64 : 128);
        assert_int_equal(F16_ROW_BYTES(a->format), weights.elem == MOI_E2M1 ? 64 : 128);
        assert_true(l->grid[0] >= 1 && l->grid[0] <= SMS);
    }
    assert_int_equal(args[1].tiles, hidden / F16_ROWS);
    assert_true(args[0].exponent_row == args[1].exponent_row && args[0].exponent_row >= width / 4 && args[0].exponent_row % 256 == 0);
}

static void check_all(void (*one)(int hidden, int width, int experts, int top_k, int tokens, moi_format weights), int least, int most)
{
    const moi_format weights[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_BF16, MOI_FORMAT_MXFP4, MOI_FORMAT_BLK128_WEIGHT };
    static const int experts[] = { 1, 8, 128, 512, MOII_DECODE_F16_EXPERTS }, top_ks[] = { 1, 3, 8, MOII_DECODE_F16_TOP_K };
    for (int i = 0; i < LENGTHS * LENGTHS; i++)
        for (size_t e = 0; e < sizeof experts / sizeof *experts; e++)
            for (size_t k = 0; k < sizeof top_ks / sizeof *top_ks; k++)
                for (int tokens = least; tokens <= most; tokens *= 2)
                    for (int w = 0; w < 4; w++) {
                        const int hidden = lengths[i % LENGTHS], width = lengths[i / LENGTHS];
                        if (w == 3 && (hidden % 128 || width % 128)) continue; /* the row for all weights has them */
                        one(hidden, width, experts[e], top_ks[k], tokens, weights[w]);
                    }
}

static void test_all(void **state)
{
    (void)state;
    check_all(check, 1, F16_MOST_TOKENS);
}

/* Of the layers it was made for, blocks of both passes fit a multiprocessor together, but for 8 tokens of the largest, of which 4 have no room for sums by
 * parts; with BF16 such are faster by three launches. */
static void test_together(void **state)
{
    (void)state;
    static const int shapes[][4] = { { 2048, 768, 128, 8 }, { 4096, 1536, 128, 8 }, { 2048, 512, 256, 8 } };
    for (int i = 0; i < 3; i++)
        for (int tokens = 1; tokens <= 8; tokens *= 2) {
            const int *shape = shapes[i];
            const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = shape[0], .width = shape[1], .experts = shape[2], .top_k = shape[3] };
            _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
            moii_gpu_launch launch[2];
            assert_int_equal(moii_decode_f16_layout(&d, tokens, H100, args, launch), i != 1 || tokens <= 4);
            const int slow = args[0].late_turns;
            assert_int_equal(moii_decode_f16_layout(&d, tokens, H200, args, launch), i != 1 || tokens <= 4);
            assert_true(args[1].items == (i == 1 && tokens >= 4) && !moii_decode_items_lose(&args[1], tokens, SMS, launch[1].grid[0]));
            assert_int_equal(args[1].block_tiles, i == 1 ? 2 : 1);
            if (tokens == 1) assert_int_equal(args[0].ring == 2, i != 1); /* a third of what a block reads */
            assert_int_equal(args[1].first_slots, i != 1 && tokens <= 2 ? 1 : args[1].ring); /* 4 units of a worker at most */
            /* 512 KB, of 4 tokens 384, by items 640, to the nearest turn, of slow memory 384 and 256; pass 2 of width 512 waits for more than its bytes:
             * 512 KB, of one token at once */
            if (i != 1 || tokens <= 4)
                assert_int_equal(args[0].late_turns, i == 2 ? (tokens > 1 ? 8 : 0) : shape[0] == 4096 ? (tokens == 4 ? 5 : 4) : tokens == 4 ? 6 : 8);
            assert_int_equal(slow, i == 2 ? (tokens > 1 ? 8 : 0) : shape[0] == 4096 ? (tokens == 4 ? 2 : 3) : tokens == 4 ? 4 : 6);
            assert_int_equal(args[0].known_jobs, shape[0] == 2048 ? 8 : 0); /* x of the larger is not all there before weights */
            moi_moe_decode_desc plain = d;
            plain.weights = MOI_FORMAT_BF16; /* the same, if with two slots of each worker of pass 2, and pass 2 late everywhere */
            assert_true(moii_decode_f16_layout(&plain, tokens, H200, args, launch));
            assert_true(args[1].ring == 2 && args[1].slot_lines == 2 && args[0].late_turns == (i != 1 ? 4 : tokens >= 4 ? 4 : 2));
            assert_int_equal(moii_decode_items_lose(&args[1], tokens, SMS, launch[1].grid[0]), i == 1 && tokens >= 4);
            plain.weights = MOI_FORMAT_MXFP4; /* 256 KB; pass 2 of width 512 waits for more than its bytes: of one token at once */
            const bool fits = moii_decode_f16_layout(&plain, tokens, H200, args, launch);
            assert_true(fits == (i != 1 || tokens <= 4) && args[0].slot_lines == 4);
            assert_int_equal(args[0].late_turns, tokens == 1 && i == 2 ? 0 : i == 1 ? 4 : 8);
        }
}

/* An expert's scales are as many bytes as its format has. */
static void test_scales(void **state)
{
    (void)state;
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_BLK128_WEIGHT };
    for (int i = 0; i < LENGTHS * LENGTHS * 2; i++) {
        const moi_moe_decode_desc d = { .max_tokens = 8, .hidden = lengths[i / 2 % LENGTHS], .width = lengths[i / 2 / LENGTHS], .experts = 8, .top_k = 2,
                                        .weights = formats[i % 2] };
        if (i % 2 && (d.hidden % 128 || d.width % 128)) continue; /* the row for all weights has them */
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        moii_gpu_launch launch[2];
        moii_decode_cut(&d, 8, SMS, args, launch);
        assert_int_equal(args[0].expert_scale_bytes, moi_scale_bytes(&d.weights, 2 * d.width, d.hidden, 0));
        assert_int_equal(args[1].expert_scale_bytes, moi_scale_bytes(&d.weights, d.hidden, d.width, 0));
        for (int pass = 0; pass < 2; pass++) assert_int_equal(args[pass].scale_row, moi_scale_bytes(&d.weights, 1, pass ? d.width : d.hidden, 0));
    }
}

/* ---- more tokens, or of larger layers ---- */

/* Bytes of all scales that have room: of each slot words by lanes, or of items by boxes, whose rows are a power of two up to 128 and which lie at multiples of
 * their swizzle's pattern; no slot's are in two pieces of 16 bytes. */
static int scale_room(const moe_decode_f16_sm90_args *a, int pass, const moi_format *f, int64_t k, int slots)
{
    const int lines = pass == 1 ? F16_UP_LINES(a->format) : a->slot_lines > 3 ? 6 : F16_DOWN_LINES(a->format), rooms = a->scale_rooms, box = a->scale_box;
    const bool wide = f->recipe == MOI_RECIPE_MX32 && f->elem != MOI_E2M1;
    if (f->recipe == MOI_RECIPE_BF16) return 0;
    if (!rooms) return slots * F16_ROWS * 4 * (lines + a->tail);
    assert_true(pass == 1 && wide && !a->tail && a->scale_row == k / 32 && (rooms == 2 || rooms == 4));
    assert_true(box >= 16 && box <= 128 && (box & (box - 1)) == 0 && a->scale_row % box == 0 && (box == 128 || a->scale_row % (2 * box)));
    assert_true(a->whole && F16_ROWS * a->scale_row % (8 * box) == 0);
    return a->teams * rooms * F16_ROWS * a->scale_row;
}

/* Of more tokens there is a launch before. */
static bool routes(int experts, int top_k, int tokens)
{
    return experts <= 512 && tokens <= (experts > 256 ? 32 : top_k > 8 ? 16 : experts > 128 ? 96 : MANY_TOKENS);
}

static void check_many_places(const moe_decode_f16_sm90_args *a, int pass, const moi_moe_decode_desc *d, int end)
{
    const int tokens = (int)d->max_tokens;
    const bool bf16 = d->weights.recipe == MOI_RECIPE_BF16;
    bool up = pass == 1;
    int pairs = tokens * a->top_k, slots = (up ? MANY_UP_WORKERS(a->teams) : MANY_DOWN_WORKERS(a->columns)) * a->ring;
    const int room = scale_room(a, pass, &d->weights, up ? d->hidden : d->width, slots);
    const bool finds = routes(a->experts, a->top_k, tokens);
    const int scratch = !finds ? 0 : a->top_k > 8 ? 512 * 4 : scratch_of(a);
    const int up_sums = larger(MANY_UP_WORKERS(a->teams) * (a->columns > 8 ? 1 : 2) * (a->columns / 8) * 512, MANY_UP_WARPS(a->teams) * scratch);
    const place places[] = {
        { 0, slots * a->slot_bytes, 1024 },
        { a->at_scales, room, a->scale_rooms ? 1024 : 4 },
        { a->at_columns, a->buffers * (a->columns / 8) * a->lines * (bf16 ? 2 * 8 * 64 : 4 * 8 * 64 + (up ? 32 : 128)), 16 },
        { a->at_barriers, 8 * (slots + 4 * a->teams + 2 * a->buffers + a->teams * a->scale_rooms), 8 },
        { a->at_expert, a->most_jobs * 4, 4 },
        { up ? a->at_sums : a->at_column, up ? up_sums : a->most_jobs * a->columns * 2, 16 },
        { up ? a->at_weights : a->at_share, up && finds ? a->experts * 4 : 0, 4 },
        { up ? a->at_kept : a->at_share, up ? pairs * 2 : 0, 2 },
        { up ? a->at_first : a->at_share, up ? (a->experts + 1) * 4 : 0, 4 },
        { up ? a->at_tokens : a->at_share, up ? (tokens + 31) / 32 * ((a->experts + 3) / 4 * 4) * 4 : 0, 16 },
        { up ? a->at_scratch : a->at_share, up ? MANY_UP_WARPS(a->teams) * 32 * 4 : 0, 4 },
        { a->at_share, 2 * 16 + 2 * 4 + 4, 16 },
        { end, 0, 1 },
    };
    check_order(places, sizeof places / sizeof *places);
    if (up) assert_true(a->at_ids == a->at_sums && pairs * 2 <= up_sums); /* before there are sums */
}

/* As many jobs as there can be: each expert's last one is not full, the others are. */
static int jobs_of(int pairs, int experts, int columns)
{
    int jobs = 0;
    for (int e = 0; e < experts && pairs; e++) jobs++, pairs--; /* one pair each; then the fullest way to one more job */
    return jobs + pairs / columns;
}

static void check_many(int hidden, int width, int experts, int top_k, int tokens, moi_format weights)
{
    const bool bf16 = weights.recipe == MOI_RECIPE_BF16;
    const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = hidden, .width = width, .experts = experts, .top_k = top_k, .weights = weights };
    _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2], few[2];
    moii_gpu_launch launch[3], few_launch[2];
    int groups;
    if (!moii_decode_many_layout(&d, tokens, SMS, SHARED, args, launch, &groups)) { /* columns of hidden, or lists of many experts beside long rows */
        const bool many = experts == MOII_DECODE_F16_EXPERTS && tokens > 16, more = experts == 512 && tokens > 128;
        const int longest = many && tokens > 256 ? 2048 : 4096;
        assert_true(hidden > MOII_DECODE_F16_HIDDEN || ((many || more) && (hidden > longest || width > longest)) || tokens * top_k > MANY_PAIRS);
        return;
    }
    const bool early = groups == 1 || bf16;
    assert_true(args[0].policy == (tokens > 8 ? EVICT_FIRST : EVICT_NORMAL) && args[1].policy == EVICT_FIRST);
    moii_decode_f16_layout(&d, 8, H200, few, few_launch);
    for (int pass = 1; pass <= 2; pass++) {
        const moe_decode_f16_sm90_args *a = &args[pass - 1];
        int workers = pass == 1 ? MANY_UP_WORKERS(a->teams) : MANY_DOWN_WORKERS(a->columns);
        assert_true(launch[pass - 1].shared_bytes <= SHARED && launch[pass - 1].threads <= 1024 && launch[pass - 1].grid[0] == SMS);
        assert_true(a->ring >= 1 && a->buffers >= 1);
        assert_true(workers * a->ring + 4 * a->teams + 2 * a->buffers + a->teams * a->scale_rooms <= launch[pass - 1].threads);
        assert_true(a->teams == MANY_TEAMS || (pass == 1 && a->teams == MANY_FEWER_TEAMS && (a->whole || (bf16 && !a->tail))));
        assert_int_equal(launch[pass - 1].threads, 32 * (pass == 1 ? MANY_UP_WARPS(a->teams) : MANY_DOWN_WARPS(a->columns)));
        assert_true(a->columns == 8 * groups && a->most_jobs >= jobs_of(tokens * top_k, experts, a->columns));
        assert_true(a->exponent_row >= width / 8 && a->exponent_row % 8 == 0 && (bf16 || a->exponent_row % 16 == 0)); /* whole lines */
        const int left = (pass == 1 ? hidden : width) - (a->lines - 1) * F16_LINE_VALUES(a->format);
        assert_int_equal(a->last_blocks * 32, left < F16_LINE_VALUES(a->format) ? left : F16_LINE_VALUES(a->format));
        /* slots are those of fewer tokens, or two of these, so the bits are; pass 2 is launched for all of them, or for some and then for the others */
        const int of_two = a->format == F16_MXFP4 && pass == 2 && (a->whole || a->longer) ? 2 : 1;
        const int launches = pass == 1 ? 1 : moii_decode_many_launches(&d, a), all = (few[pass - 1].parts + of_two - 1) / of_two;
        assert_true(a->slot_lines == of_two * few[pass - 1].slot_lines && a->parts * launches >= all && a->parts * (launches - 1) < all);
        assert_true(!a->longer || (pass == 2 && a->format == F16_MXFP4 && !a->whole && a->slot_lines == 6));
        assert_int_equal(a->slot_bytes, a->slot_lines * F16_LINE_BYTES(a->format));
        assert_int_equal(a->lines, launches == 1 ? few[pass - 1].lines : a->parts * a->slot_lines);
        const int most = pass == 1 ? F16_UP_LINES(a->format) : of_two * F16_DOWN_LINES(a->format);
        if (a->whole) assert_true(!a->tail && a->lines == a->parts * a->slot_lines && a->slot_lines == most);
        if (a->format == F16_MXFP4 && pass == 1) assert_int_equal(a->whole, hidden % 512 == 0 && few[0].slot_lines == 4);
        if (pass == 1 && a->format <= F16_MX_E5M2) assert_true(a->whole == (a->scale_rooms > 0));
        if (a->scale_rooms) assert_true(!routes(experts, top_k, tokens) || (top_k <= 8 && experts <= 256)); /* it does not route by p */
        check_many_places(a, pass, &d, launch[pass - 1].shared_bytes);
        if (early) assert_true(launch[pass - 1].shared_bytes + 2048 <= TOGETHER); /* a block of pass 3 beside it: 1 KB is each block's own */
    }
    assert_true(launch[2].grid[0] == (early ? SMS : 2 * SMS) && launch[2].threads == 32 * MANY_SUM_WARPS);
    const bool asks = early || (weights.elem != MOI_E2M1 && args[0].ring > 1), mx = weights.recipe == MOI_RECIPE_MX32;
    assert_int_equal(args[0].likely, asks ? (192 << 10) / (MANY_UP_WORKERS(args[0].teams) * args[0].slot_bytes) : 0);
    assert_true(args[0].kept == EVICT_LAST && args[1].kept == EVICT_LAST);
    if (groups > 2) { /* what kernels there are */
        assert_true(tokens > 64 && tokens * top_k > (groups == 4 ? 18 : mx ? 12 : 11) * experts && args[0].ring > 1 && weights.elem != MOI_E2M1);
        assert_true(!args[0].tail && !args[1].tail && (groups == 3 || bf16) && (args[0].teams == MANY_TEAMS || bf16));
    }
    const many_shares *down = &args[0].down_shares;
    assert_true(down->more == (early ? 1 / 16.0f : args[0].teams == MANY_FEWER_TEAMS ? 1 / 8.0f : 3 / 13.0f) && (down->lead > 0) == early);
    for (int pair = 0; pair < tokens * top_k; pair++) assert_int_equal((unsigned)pair * args[0].inverse_top_k >> 16, pair / top_k);
}

static void test_many(void **state)
{
    (void)state;
    check_all(check_many, 1, 256);
    check_all(check_many, MANY_TOKENS, MANY_TOKENS);
}

/* From 6 MB of sums on, of which a line of L2 is one pair's. */
static void test_discards(void **state)
{
    (void)state;
    static const struct { int tokens, hidden, top_k; bool discards; } cases[] = {
        { 1, 2048, 8, false }, { 64, 2048, 8, false },  { 95, 2048, 8, false },  { 96, 2048, 8, true },  { 47, 4096, 8, false },
        { 48, 4096, 8, true }, { 127, 768, 16, false }, { 128, 768, 16, true }, { 128, 736, 16, false }, { 128, 8192, 16, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const moi_moe_decode_desc d = { .hidden = cases[i].hidden, .top_k = cases[i].top_k };
        assert_int_equal(moii_decode_many_discards(&d, cases[i].tokens), cases[i].discards);
    }
}

/* Of the layers it was made for: columns of a second job are brought ahead in pass 1 of the small one, and in pass 2; pass 1's scales come by boxes. */
static void test_rooms(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 2048, 768 }, { 4096, 1536 } };
    for (int i = 0; i < 2; i++)
        for (int tokens = 16; tokens <= 128; tokens *= 2) {
            const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = shapes[i][0], .width = shapes[i][1], .experts = 128, .top_k = 8 };
            _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
            moii_gpu_launch launch[3];
            int groups;
            assert_true(moii_decode_many_layout(&d, tokens, SMS, SHARED, args, launch, &groups));
            assert_int_equal(groups, tokens > 64 ? 2 : 1);
            assert_true(args[0].whole && args[1].whole && args[0].scale_box == shapes[i][0] / 32);
            assert_true(args[0].scale_rooms == 4 && !args[1].scale_rooms);
            moi_moe_decode_desc plain = d;
            plain.weights = MOI_FORMAT_BF16; /* 16 columns sooner, where they leave room for two slots */
            _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args of_plain[2];
            assert_true(moii_decode_many_layout(&plain, tokens, SMS, SHARED, of_plain, launch, &groups));
            assert_int_equal(groups, tokens > (i == 0 ? 32 : 64) ? 2 : 1);
            assert_int_equal(args[0].buffers, i == 0 && tokens <= 64 ? 2 : 1);
            assert_int_equal(args[1].buffers, i == 0 || tokens <= 64 ? 2 : 1);
            assert_true(args[0].ring >= 2 && args[1].ring >= 2);
            assert_int_equal(args[0].likely, tokens > 64 && i == 1 ? 6 : 4); /* 192 KB for 12 workers, or for 8 */
        }
}

/* moe_decode_many_sm90: columns of a job, in groups of 8; 0: so many tokens do not fit. */
static int lay_out_many(const moi_format *weights, int tokens, int hidden, int width, int experts, int top_k, moe_decode_f16_sm90_args args[2])
{
    const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = hidden, .width = width, .experts = experts, .top_k = top_k, .weights = *weights };
    moii_gpu_launch launch[3];
    int groups;
    return moii_decode_many_layout(&d, tokens, SMS, SHARED, args, launch, &groups) ? groups : 0;
}

/* Boxes of pass 1's scales, of the longest power of two that divides a row; rooms for four items of a team, or two, or none.  test_decode_slots.c has
 * these. */
static void test_boxes(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8;
    static const struct { int tokens, hidden, experts, top_k, box, rooms; } cases[] = {
        { 16, 1024, 2, 2, 32, 4 },  { 128, 1024, 2, 2, 32, 4 },  { 16, 1536, 2, 2, 16, 4 }, { 128, 1536, 2, 2, 16, 4 }, { 16, 2048, 2, 2, 64, 4 },
        { 128, 2048, 2, 2, 64, 4 }, { 16, 3072, 2, 2, 32, 2 },   { 16, 4096, 2, 2, 128, 4 }, { 128, 4096, 2, 2, 128, 4 }, { 8, 6144, 2, 2, 64, 2 },
        { 128, 8192, 2, 2, 128, 2 }, { 16, 3072, 256, 8, 32, 2 }, { 64, 3072, 256, 8, 32, 0 }, { 96, 3072, 160, 8, 32, 2 },
        { 96, 3072, 256, 8, 32, 0 }, { 128, 3072, 255, 8, 32, 4 }, { 128, 3072, 256, 8, 32, 2 }, { 32, 2048, 512, 10, 0, 0 },
        { 48, 2048, 512, 10, 64, 4 }, { 16, 2048, 96, 9, 0, 0 }, { 32, 2048, 96, 9, 64, 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        assert_true(lay_out_many(&mx, cases[i].tokens, cases[i].hidden, 32, cases[i].experts, cases[i].top_k, args));
        assert_true(args[0].scale_rooms == cases[i].rooms && args[0].scale_box == cases[i].box && args[0].whole == (cases[i].rooms > 0));
    }
}

/* Two teams where three have one slot for each worker, or do not fit beside 16 columns; of MXFP4 three.  One slot with many rows alone.  The second half is of
 * few experts, and what test_decode_slots.c and test_decode_logits.c run. */
static void test_teams(void **state)
{
    (void)state;
    const moi_format blk = MOI_FORMAT_BLK128_WEIGHT, mx = MOI_FORMAT_MXFP8, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const struct { const moi_format *weights; int tokens, hidden, experts, top_k, groups, teams, ring; } cases[] = {
        { &blk, 128, 2048, 128, 8, 2, 3, 2 }, { &blk, 64, 4096, 128, 8, 1, 3, 2 },   { &blk, 128, 4096, 128, 8, 2, 2, 2 }, { &mx, 128, 4096, 128, 8, 2, 2, 2 },
        { &bf16, 64, 4096, 128, 8, 1, 3, 2 }, { &bf16, 128, 4096, 128, 8, 2, 2, 2 }, { &fours, 128, 4096, 128, 8, 2, 3, 1 },
        { &blk, 96, 5120, 160, 8, 1, 3, 2 },
        { &blk, 128, 5120, 160, 8, 2, 2, 1 }, { &blk, 128, 5120, 192, 8, 1, 3, 2 },  { &mx, 128, 5120, 160, 8, 2, 2, 1 },  { &blk, 16, 7168, 256, 8, 1, 2, 2 },
        { &mx, 128, 7168, 256, 8, 1, 2, 2 },  { &bf16, 128, 7168, 256, 8, 1, 2, 2 }, { &fours, 16, 7168, 256, 8, 1, 3, 1 }, { &blk, 128, 7168, 32, 8, 1, 2, 3 },
        { &mx, 16, 7168, 32, 8, 1, 2, 2 },    { &mx, 64, 7168, 128, 4, 1, 2, 2 },    { &mx, 96, 5120, 64, 8, 2, 2, 1 },    { &mx, 128, 3072, 192, 8, 2, 2, 3 },
        { &blk, 16, 7168, 2, 2, 1, 2, 3 },    { &blk, 96, 5120, 2, 1, 2, 2, 1 },     { &bf16, 96, 4096, 2, 1, 2, 2, 2 },   { &mx, 16, 7168, 2, 1, 1, 2, 2 },
        { &mx, 96, 5120, 4, 2, 2, 2, 1 },     { &blk, 96, 4096, 3, 2, 2, 2, 2 },     { &blk, 128, 5120, 5, 3, 2, 2, 1 },   { &bf16, 16, 7680, 3, 2, 1, 2, 3 },
        { &mx, 16, 7168, 3, 2, 1, 2, 2 },     { &mx, 96, 4096, 3, 2, 2, 2, 2 },      { &blk, 16, 7168, 9, 9, 1, 2, 2 },    { &bf16, 16, 7168, 9, 9, 1, 2, 2 },
        { &mx, 16, 4096, 3, 2, 1, 3, 2 },     { &mx, 16, 7168, 130, 2, 1, 2, 2 },    { &bf16, 96, 4096, 3, 2, 2, 2, 2 },
        { &blk, 160, 3072, 256, 8, 2, 2, 3 },
        { &blk, 192, 3072, 128, 8, 2, 3, 2 }, { &mx, 160, 3072, 256, 8, 2, 2, 3 },   { &mx, 192, 4096, 128, 8, 2, 2, 2 },
        { &fours, 256, 2880, 128, 4, 2, 3, 2 }, { &mx, 96, 5120, 160, 8, 1, 3, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        const int groups = lay_out_many(cases[i].weights, cases[i].tokens, cases[i].hidden, 1536, cases[i].experts, cases[i].top_k, args);
        if (groups != cases[i].groups || args[0].teams != cases[i].teams || args[0].ring != cases[i].ring)
            fail_msg("case %zu: %d, %d, %d", i, groups, args[0].teams, args[0].ring);
        if (args[0].teams < MANY_TEAMS) assert_true(args[0].whole == (args[0].format != F16_BF16));
    }
}

/* Jobs of 24 columns: of more than 64 tokens, and of more than 11 rows of each expert, of MXFP8 12, where they leave room for two slots; and neither of MXFP4
 * nor of rows that are no whole lines.  Where there is no room for boxes of scales, slots are not whole.  Of BF16 and more than 18 rows jobs of 32. */
static void test_broad(void **state)
{
    (void)state;
    const moi_format blk = MOI_FORMAT_BLK128_WEIGHT, mx = MOI_FORMAT_MXFP8, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const struct { const moi_format *weights; int tokens, hidden, width, experts, top_k, groups, teams; bool whole; } cases[] = {
        { &blk, 176, 2048, 768, 128, 8, 2, 3, 1 }, { &blk, 192, 2048, 768, 128, 8, 3, 3, 1 },   { &blk, 256, 2048, 768, 128, 8, 3, 3, 1 },
        { &blk, 320, 2048, 768, 128, 8, 2, 3, 1 }, { &mx, 192, 2048, 768, 128, 8, 2, 3, 1 },    { &mx, 224, 2048, 768, 128, 8, 3, 3, 0 },
        { &mx, 160, 2048, 1408, 64, 6, 3, 3, 1 },  { &bf16, 288, 2048, 768, 128, 8, 3, 3, 0 },  { &bf16, 256, 2560, 1536, 128, 8, 3, 2, 0 },
        { &blk, 224, 2560, 1536, 128, 8, 2, 3, 1 }, { &fours, 256, 2048, 768, 128, 8, 2, 3, 1 }, { &blk, 64, 1024, 128, 2, 2, 1, 3, 1 },
        { &blk, 65, 1024, 128, 2, 2, 3, 3, 1 },    { &mx, 65, 1024, 160, 2, 2, 2, 3, 1 },        { &bf16, 65, 96, 128, 2, 2, 2, 3, 0 },
        { &bf16, 65, 64, 64, 2, 2, 4, 3, 0 },      { &bf16, 65, 64, 64, 9, 2, 3, 3, 0 },       { &bf16, 320, 2048, 768, 128, 8, 4, 2, 0 },
        { &bf16, 384, 2048, 768, 128, 8, 4, 2, 0 }, { &bf16, 320, 2560, 1536, 128, 8, 3, 2, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        const int groups = lay_out_many(cases[i].weights, cases[i].tokens, cases[i].hidden, cases[i].width, cases[i].experts, cases[i].top_k, args);
        if (groups != cases[i].groups || args[0].teams != cases[i].teams || args[0].whole != cases[i].whole)
            fail_msg("case %zu: %d, %d, %d", i, groups, args[0].teams, args[0].whole);
    }
}

/* Jobs of 16 columns: of more than 64 tokens (BF16: 32), and but for BF16 more than 4 rows of each expert, of MXFP4 6; of fewer tokens and more than 7 rows,
 * with items enough; and where jobs of 8 are too many. */
static void test_groups(void **state)
{
    (void)state;
    const moi_format blk = MOI_FORMAT_BLK128_WEIGHT, mx = MOI_FORMAT_MXFP8, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const struct { const moi_format *weights; int tokens, hidden, width, experts, top_k, groups; } cases[] = {
        { &blk, 64, 2048, 768, 8, 2, 1 },    { &blk, 128, 2048, 768, 255, 8, 2 },   { &blk, 128, 2048, 768, 256, 8, 1 },   { &mx, 96, 2048, 768, 128, 8, 2 },
        { &fours, 96, 2048, 768, 128, 8, 1 }, { &fours, 96, 2048, 768, 127, 8, 2 },  { &bf16, 128, 2880, 2880, 128, 4, 2 }, { &bf16, 32, 2048, 768, 8, 8, 1 },
        { &mx, 96, 2048, 32768, 200, 6, 2 }, { &fours, 96, 2048, 32768, 160, 8, 2 },
        { &bf16, 96, 4608, 1536, 512, 5, 1 }, { &bf16, 128, 5120, 8192, 16, 1, 1 }, { &blk, 128, 5120, 8192, 16, 1, 2 }, /* one slot beside 16 columns */
        { &bf16, 128, 2048, 2560, 16, 2, 3 }, { &bf16, 128, 2048, 3200, 16, 2, 2 }, { &blk, 128, 2048, 2304, 16, 2, 2 }, /* launches of pass 2 */
        { &blk, 192, 4608, 28928, 288, 3, 2 }, { &bf16, 192, 3744, 25632, 166, 11, 2 }, /* jobs of 8 do not fit */
        { &mx, 56, 2048, 1024, 64, 8, 1 },    { &mx, 57, 2048, 1024, 64, 8, 2 },    { &fours, 57, 2048, 1024, 64, 8, 2 }, { &mx, 64, 2880, 2880, 32, 4, 2 },
        { &blk, 64, 2048, 384, 64, 8, 1 },    { &blk, 64, 2048, 512, 64, 8, 2 },    { &blk, 64, 6144, 10752, 16, 4, 1 },  { &blk, 16, 2048, 1536, 17, 9, 1 },
        { &blk, 17, 2048, 1536, 17, 9, 2 },   { &bf16, 64, 4096, 768, 72, 10, 2 },  { &bf16, 48, 4096, 768, 72, 10, 1 },  { &bf16, 32, 2048, 1536, 17, 9, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        const int groups = lay_out_many(cases[i].weights, cases[i].tokens, cases[i].hidden, cases[i].width, cases[i].experts, cases[i].top_k, args);
        if (groups != cases[i].groups) fail_msg("case %zu: %d", i, groups);
    }
}

/* Where pass 2 goes by items, where it would be faster by three launches, and when it is let in, in turns. */
static void test_items(void **state)
{
    (void)state;
    const moi_format blk = MOI_FORMAT_BLK128_WEIGHT, mx = MOI_FORMAT_MXFP8, bf16 = MOI_FORMAT_BF16;
    const struct { const moi_format *weights; int tokens, hidden, width, experts, top_k; bool items, lose; int late; } cases[] = {
        { &blk, 1, 7168, 2048, 256, 8, true, false, 3 },  { &mx, 2, 7168, 2048, 256, 8, true, false, 3 },  { &bf16, 1, 7168, 2048, 256, 8, false, false, 1 },
        { &bf16, 2, 7168, 2048, 256, 8, true, true, 2 },  { &blk, 1, 4096, 1536, 128, 8, false, false, 4 }, { &blk, 2, 5120, 1536, 160, 8, true, false, 4 },
        { &blk, 4, 5120, 1536, 160, 8, true, true, 4 },   { &mx, 4, 3072, 1536, 128, 8, true, true, 7 },    { &mx, 2, 6144, 2048, 64, 8, true, false, 3 },
        { &blk, 4, 4096, 14336, 8, 2, true, false, 5 },   { &mx, 8, 2048, 1024, 64, 8, true, false, 10 },   { &mx, 1, 2880, 2880, 128, 4, false, false, 6 },
        { &mx, 1, 3072, 1024, 64, 8, false, false, 5 },   { &mx, 1, 2048, 512, 64, 8, false, false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int tokens = cases[i].tokens;
        const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = cases[i].hidden, .width = cases[i].width, .experts = cases[i].experts,
                                        .top_k = cases[i].top_k, .weights = *cases[i].weights };
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        moii_gpu_launch launch[2];
        assert_true(moii_decode_f16_layout(&d, tokens, H200, args, launch));
        const bool lose = moii_decode_items_lose(&args[1], tokens, SMS, launch[1].grid[0]);
        if (args[1].items != cases[i].items || lose != cases[i].lose || args[0].late_turns != cases[i].late)
            fail_msg("case %zu: %d, %d, %d", i, args[1].items, lose, args[0].late_turns);
    }
}

/* MXFP4: slots have four lines, but of rows of less than four such slots, and warps change places where they do not share these evenly; and 4 tokens go by
 * three launches where pass 2 would have 90 blocks. */
static void test_fours(void **state)
{
    (void)state;
    static const struct { int hidden, slot_lines, few; bool shifts; } cases[] = {
        { 2048, 4, 8, 0 }, { 4096, 4, 4, 0 }, { 2880, 4, 2, 1 }, { 3072, 4, 2, 1 }, { 2560, 4, 2, 1 },
        { 1024, 2, 2, 0 }, { 1536, 3, 2, 0 }, { 3584, 4, 8, 1 }, { 4608, 4, 2, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int tokens = 1; tokens <= 8; tokens *= 2) {
            const moi_moe_decode_desc d = { .max_tokens = tokens, .hidden = cases[i].hidden, .width = 768, .experts = 128, .top_k = 8,
                                            .weights = MOI_FORMAT_MXFP4 };
            _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
            moii_gpu_launch launch[2];
            const bool together = moii_decode_f16_layout(&d, tokens, H200, args, launch);
            if (tokens <= cases[i].few || cases[i].few < 4) assert_int_equal(together, tokens <= cases[i].few);
            assert_int_equal(args[0].slot_lines, cases[i].slot_lines);
            assert_true(!args[1].whole && (!together || args[0].whole == (cases[i].hidden % 512 == 0 && cases[i].slot_lines == 4)));
            assert_true(args[0].shifts == cases[i].shifts && !args[1].shifts);
        }
}

/* MXFP4, pass 2 of 9 tokens and more: slots of up to six lines where those of fewer tokens have three of more, whole where width is a multiple, unless they
 * would be more launches than slots of three, or one for each worker where there is room for two of three. */
static void test_longer_slots(void **state)
{
    (void)state;
    static const struct { int tokens, width, slot_lines, launches, experts; } cases[] = {
        { 9, 768, 6, 1, 64 },    { 9, 1536, 6, 1, 64 },  { 9, 2048, 6, 1, 64 },   { 9, 3840, 6, 1, 64 },  { 9, 4608, 3, 1, 64 },
        { 9, 9216, 3, 2, 64 },   { 48, 384, 2, 1, 64 },  { 48, 3072, 6, 1, 64 },  { 128, 768, 6, 1, 64 }, { 128, 1536, 6, 1, 64 },
        { 128, 2304, 3, 1, 64 }, { 128, 9216, 3, 3, 64 }, { 128, 768, 6, 1, 2048 },
        { 128, 2304, 3, 1, 2048 }, /* lists leave room for one of six */
        { 9, 992, 6, 1, 64 }, { 9, 416, 2, 1, 64 }, { 9, 544, 6, 1, 64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int experts = cases[i].experts;
        const moi_moe_decode_desc d = { .max_tokens = cases[i].tokens, .hidden = 2048, .width = cases[i].width, .experts = experts,
                                        .top_k = experts > 64 ? 16 : 8, .weights = MOI_FORMAT_MXFP4 };
        _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
        moii_gpu_launch launch[3];
        int groups;
        assert_true(moii_decode_many_layout(&d, cases[i].tokens, SMS, SHARED, args, launch, &groups));
        assert_int_equal(args[1].slot_lines, cases[i].slot_lines);
        assert_int_equal(args[1].whole, cases[i].slot_lines == 6 && cases[i].width % 768 == 0);
        assert_int_equal(args[1].longer, cases[i].slot_lines == 6 && !args[1].whole);
        assert_int_equal(moii_decode_many_launches(&d, &args[1]), cases[i].launches);
    }
}

/* As measured (docs/notes/warp-decode.md), with rows of 128 tokens a launch. */
static void test_crossing(void **state)
{
    (void)state;
    const moi_format blk = { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 };
    const moi_format bf16 = MOI_FORMAT_BF16, f16 = MOI_FORMAT_F16, fours = MOI_FORMAT_MXFP4;
    moi_format mx = MOI_FORMAT_MXFP8, cols = mx, vectors = blk;
    cols.layout = MOI_LAYOUT_COL, vectors.block = MOI_BLOCK_VECTOR;
    const struct { const moi_format *weights; int64_t hidden, width, experts; bool f16; int64_t from; } cases[] = {
        { &mx, 4096, 14336, 32, true, 20 },     { &blk, 4096, 14336, 8, true, 16 },   { &blk, 5120, 8192, 256, true, 129 },
        { &mx, 4096, 5376, 32, true, 129 },     { &mx, 2048, 768, 128, true, 129 },   { &mx, 4096, 1536, 128, true, 129 },
        { &mx, 2048, 512, 256, true, 129 },     { &mx, 4096, 1536, 256, true, 129 },  { &cols, 2048, 768, 128, false, 16 },
        { &mx, 2048, 672, 128, true, 129 },     { &mx, 2080, 768, 256, true, 129 },   { &mx, 2048, 768, 1024, true, 513 },
        { &mx, 2048, 672, 128, false, 16 },     { &blk, 2048, 768, 128, true, 129 },  { &blk, 4096, 1536, 128, true, 129 },
        { &blk, 2048, 736, 128, false, 96 },    { &bf16, 2048, 768, 128, true, 129 }, { &bf16, 4096, 1536, 128, true, 129 },
        { &bf16, 4096, 14336, 8, true, 16 },    { &bf16, 2048, 736, 128, true, 129 }, { &f16, 2048, 768, 128, false, 96 },
        { &fours, 2048, 768, 128, true, 129 },  { &fours, 4096, 1536, 128, true, 129 }, { &fours, 4096, 14336, 32, true, 20 },
        { &fours, 2048, 736, 128, true, 129 },  { &fours, 2048, 750, 128, false, 80 }, { &vectors, 2048, 768, 128, false, 96 },
        { &vectors, 4096, 1536, 128, false, 16 }, { &vectors, 2048, 512, 256, false, 129 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const moi_moe_decode_desc d = { .max_tokens = 4096, .hidden = cases[i].hidden, .width = cases[i].width, .experts = cases[i].experts, .top_k = 8,
                                        .weights = *cases[i].weights };
        assert_int_equal(moii_decode_crossing(&d, cases[i].f16, 128, 129), cases[i].from);
    }
}

/* Where experts have 1.02 jobs in the mean, 1.065 of 16 columns, 0.88 of 24, of BF16 and 24 1.07, 32 0.97, and what 110 MB of weights take besides, at most a
 * half, of 24 and 8 bits 0.27; of MXFP4 1.45, of 16 1.09 and what 35 MB take, at most a half; or a worker of two teams has one slot; behind the last launch
 * where not. */
static void test_late(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const struct { const moi_format *weights; int64_t hidden, width, experts, top_k, late; } cases[] = {
        { &mx, 2048, 768, 128, 8, 257 },   { &fours, 2048, 768, 128, 8, 217 }, { &bf16, 2048, 768, 128, 8, 385 }, { &blk, 4096, 1536, 128, 8, 195 },
        { &mx, 2048, 512, 256, 8, 385 },   { &mx, 2048, 512, 512, 10, 385 },   { &blk, 7168, 2048, 256, 8, 145 }, { &fours, 7168, 2048, 256, 8, 265 },
        { &fours, 2880, 2880, 128, 4, 385 }, { &fours, 5120, 1536, 160, 8, 166 }, { &mx, 5120, 1536, 160, 8, 129 }, { &blk, 5120, 1536, 160, 8, 129 },
        { &mx, 2048, 768, 8, 8, 65 },      { &mx, 8192, 8192, 2048, 16, 65 }, { &mx, 2048, 512, 512, 16, 257 },
        { &blk, 2048, 1408, 64, 6, 196 },  { &bf16, 2560, 1536, 64, 6, 211 }, { &bf16, 2048, 1408, 64, 6, 266 }, { &bf16, 2048, 2048, 64, 8, 189 },
        { &blk, 2048, 2048, 64, 8, 108 },  { &mx, 2048, 2048, 64, 8, 108 },  { &fours, 2048, 2048, 64, 8, 106 },
        { &blk, 2048, 1536, 160, 8, 253 }, /* jobs of 24, of which there are more than 0.88 and the bytes from the first token on */
        { &mx, 256, 256, 1, 2, 65 },       { &mx, 128, 128, 2, 4, 65 },       { &bf16, 256, 256, 4, 16, 129 }, /* a token has an expert twice */
        { &blk, 1024, 512, 32, 8, 80 },    { &bf16, 1024, 512, 32, 8, 129 },   { &fours, 1024, 512, 32, 8, 71 }, /* small layers */
        { &blk, 2048, 512, 64, 8, 160 },   { &bf16, 1536, 512, 40, 8, 162 },   { &mx, 2048, 1024, 64, 8, 160 },
        { &fours, 4096, 768, 72, 10, 97 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moi_moe_decode_desc d = { .hidden = cases[i].hidden, .width = cases[i].width, .experts = cases[i].experts, .top_k = cases[i].top_k,
                                  .weights = *cases[i].weights };
        moii_decode_launch of[16];
        int launches = 0;
        for (int tokens = 16; tokens <= MANY_TOKENS; tokens = moii_decode_next_size(tokens)) {
            _Alignas(moe_decode_f16_sm90_args) moe_decode_f16_sm90_args args[2];
            moii_gpu_launch launch[3];
            int groups;
            d.max_tokens = tokens;
            if (!moii_decode_many_layout(&d, tokens, SMS, SHARED, args, launch, &groups)) break;
            of[launches++] = (moii_decode_launch){ tokens, args[0].columns, moii_decode_many_shallow(&args[0]) };
        }
        assert_int_equal(moii_decode_late(&d, of, launches), cases[i].late);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all), cmocka_unit_test(test_together), cmocka_unit_test(test_scales), cmocka_unit_test(test_many),
        cmocka_unit_test(test_discards), cmocka_unit_test(test_rooms), cmocka_unit_test(test_boxes), cmocka_unit_test(test_teams),
        cmocka_unit_test(test_broad), cmocka_unit_test(test_groups), cmocka_unit_test(test_items), cmocka_unit_test(test_fours),
        cmocka_unit_test(test_longer_slots), cmocka_unit_test(test_crossing), cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
