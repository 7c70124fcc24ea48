/* SPDX-License-Identifier: Apache-2.0
 * decode_many_layout.c: how moe_decode_many_sm90 cuts a layer, and what lies where in its blocks' shared memory. */
#include "decode_many_layout.h"

#include "decode_routing.h"
#include "format.h"

/* More tokens a launch for them routes faster: of many experts, or one token at a time, not so many.  Measured: docs/notes/warp-decode.md. */
enum { ROUTED = MANY_TOKENS, ROUTED_OF_MANY = 96, ONE_BY_ONE = 16, ONE_BY_ONE_OF_MANY = 32 };

static bool one_by_one(int64_t experts, int64_t top_k) { return top_k > 8 || experts > 256; }

int moii_decode_many_routed(int64_t experts, int64_t top_k)
{
    if (experts > MOII_ROUTED_IN_PASSES) return 0;
    if (one_by_one(experts, top_k)) return experts > 256 ? ONE_BY_ONE_OF_MANY : ONE_BY_ONE;
    return experts > 128 ? ROUTED_OF_MANY : ROUTED;
}

/* Of ids that are given, too: they have the kernels of logits. */
int moii_decode_many_held(int64_t experts, int64_t top_k, int64_t tokens)
{
    if (tokens > moii_decode_many_routed(experts, top_k)) return 4; /* nothing is routed there, which takes the least room */
    return one_by_one(experts, top_k) ? 0 : experts <= 128 ? 4 : 8;
}

/* Places in shared memory; what they need. */
static int lay_out(moe_decode_f16_sm90_args *a, int pass, int64_t tokens)
{
    int64_t pairs = tokens * a->top_k, slots = (pass == 1 ? MANY_UP_WORKERS(a->teams) : MANY_DOWN_WORKERS(a->columns)) * a->ring;
    int at = (int)(slots * a->slot_bytes);
    const int lines = pass == 1 ? F16_UP_LINES(a->format) : MANY_DOWN_LINES(a->format, a->whole || a->longer);
    const int words = a->scale_row ? F16_SCALE_WORDS(lines, a->tail) : 0, rooms = a->teams * a->scale_rooms;
    a->at_scales = moii_decode_take(&at, rooms ? (int64_t)rooms * F16_ROWS * a->scale_row : slots * F16_ROWS * 4 * words, 1024);
    a->at_columns = moii_decode_take(&at, a->buffers * a->columns / F16_MOST_TOKENS * a->lines * MANY_LINE(pass, a->format), 16);
    a->at_barriers = moii_decode_take(&at, 8 * (slots + 4 * a->teams + 2 * a->buffers + rooms), 16);
    a->at_expert = moii_decode_take(&at, 4 * a->most_jobs, 16);
    if (pass == 1) {
        a->at_sums = moii_decode_take(&at, MANY_UP_SUMS(moii_decode_many_held(a->experts, a->top_k, tokens), a->columns, a->teams), 16);
        a->at_ids = a->at_sums; /* before there are any */
        _Static_assert(2 * MANY_PAIRS <= MANY_UP_SUMS(4, F16_MOST_TOKENS, MANY_FEWER_TEAMS), "ids have room where sums will be");
        a->at_weights = moii_decode_take(&at, tokens > moii_decode_many_routed(a->experts, a->top_k) ? 0 : 4 * a->experts, 16);
        a->at_kept = moii_decode_take(&at, 2 * pairs, 16);
        a->at_first = moii_decode_take(&at, 4 * (a->experts + 1), 16);
        a->at_tokens = moii_decode_take(&at, 4 * a->token_words * moii_round_up(a->experts, 4), 16);
        a->at_scratch = moii_decode_take(&at, MANY_UP_WARPS(a->teams) * 128, 16);
    } else a->at_column = moii_decode_take(&at, (int64_t)2 * a->most_jobs * a->columns, 16);
    a->at_share = moii_decode_take(&at, 48, 16);
    return at;
}

/* The longest box that divides a row of scales, up to which they are swizzled; 0: a map takes rows that are multiples of 16 bytes. */
static int scale_box(int row)
{
    int box = 128;
    while (row % box) box /= 2;
    return box >= 16 ? box : 0;
}

enum { MOST_RING = 8, MOST_ROOMS = 2, MOST_SCALE_ROOMS = 4 };

/* The deepest rings that fit; 0: none do.  First with room for a second job's columns, which are brought ahead, and two slots for each worker.  Whole slots of
 * MXFP8: boxes bring pass 1's scales where those of a team's next four items have room, too, or of two; else lanes do, as of slots that are not whole.  For
 * that fewer teams have no kernel. */
static int fill_for(int teams, moe_decode_f16_sm90_args *a, int pass, int64_t tokens, int shared_bytes)
{
    a->teams = teams;
    const bool boxes = pass == 1 && a->whole && (a->format == F16_MX_E4M3 || a->format == F16_MX_E5M2);
    const int least_rooms = boxes && teams < MANY_TEAMS ? 2 : 0;
    a->scale_box = boxes ? scale_box(a->scale_row) : 0;
    for (int least = 2; least; least--)
        for (a->buffers = MOST_ROOMS; a->buffers; a->buffers--)
            for (a->ring = MOST_RING; a->ring >= least; a->ring--)
                for (a->scale_rooms = a->scale_box ? MOST_SCALE_ROOMS : 0; a->scale_rooms >= least_rooms; a->scale_rooms -= 2) {
                    int bytes = lay_out(a, pass, tokens);
                    if (bytes > shared_bytes) continue;
                    if (boxes) a->whole = a->scale_rooms > 0;
                    return bytes;
                }
    return 0;
}

/* Rows of each expert up to which multiplying does not bound jobs of 16 columns; so many, and jobs of 16 are better than jobs of 8 though a worker has one
 * slot. */
enum { FEW_ROWS = 6 };

/* Pass 1.  Two teams where three have one slot for each worker or do not fit: two slots each are worth more than a third team, if multiplying does not bound
 * it (MXFP4, and 24 columns of 8 bits); and so is one beside 16 columns, if codes leave it before they are multiplied and jobs of 8 would be many more, and
 * with few rows a third slot, or whole slots. */
static int fill_up(moe_decode_f16_sm90_args *a, int64_t tokens, int shared_bytes)
{
    moe_decode_f16_sm90_args fewer = *a;
    const bool bf16 = a->format == F16_BF16 && !a->tail; /* what two teams have, and */
    const bool whole = a->whole && a->format != F16_MXFP4 && a->columns <= 2 * F16_MOST_TOKENS;
    const int64_t pairs = tokens * a->top_k, few = FEW_ROWS * (int64_t)a->experts;
    const int bytes = fill_for(MANY_TEAMS, a, 1, tokens, shared_bytes);
    if (!bf16 && !whole) return bytes;
    const int fewer_bytes = fill_for(MANY_FEWER_TEAMS, &fewer, 1, tokens, shared_bytes);
    const bool of_16 = whole && a->columns > F16_MOST_TOKENS;
    bool better = fewer.ring > 1 || (whole && pairs >= few && (of_16 || !bytes));
    if (bytes && a->ring > 1) better = of_16 && pairs < few && (fewer.ring > a->ring || (fewer.whole && !a->whole));
    if (!fewer_bytes || !better) return bytes;
    *a = fewer;
    return fewer_bytes;
}

/* Up to 8 columns a job, and with BF16, there is room for a block of pass 3 beside one of pass 2 and of the next layer's pass 1, which then starts early: a
 * block's own shared memory is enough; registers are bounded in the kernel.  With more columns pass 2 leaves no room for one, and pass 3 has two.
 * What is likely to be read is asked for early there, and where workers have two slots, but of MXFP4.  All measured:
 * docs/notes/warp-decode.md. */
enum { BLOCK_BYTES = 1 << 10, SUM_BLOCKS = 2, LIKELY_BYTES = 192 << 10 };

/* Pass 2: as many lines of its items in one launch as leave room for two slots of each worker, or where lists leave no room for that, for one. */
static int fill_launches(moe_decode_f16_sm90_args *a, int64_t tokens, int shared_bytes)
{
    const int lines = a->lines, parts = a->parts;
    for (int ring = 2; ring; ring--)
        for (int launches = 1; launches <= parts; launches++) {
            a->parts = (int)moii_ceil_div(parts, launches), a->lines = (int)moii_min(lines, a->parts * a->slot_lines);
            a->last_blocks = moii_decode_last_blocks(moii_min(a->width, a->lines * F16_LINE_VALUES(a->format)), a->format);
            int bytes = fill_for(MANY_TEAMS, a, 2, tokens, shared_bytes);
            if (bytes && a->ring >= ring) return bytes;
        }
    return 0;
}

/* Slots, if they are whole; of MXFP4 two are one. */
static void make_whole(moe_decode_f16_sm90_args *down)
{
    const int part = F16_DOWN_LINES(down->format), most = MANY_DOWN_LINES(down->format, true);
    down->whole = moii_decode_slots_are_whole(down, part) && down->lines % most == 0;
    down->longer = !down->whole && most > part && down->slot_lines == part && down->lines > part;
    if (!down->whole && !down->longer) return;
    down->parts = (int)moii_ceil_div(down->lines, most), down->slot_lines = most, down->slot_bytes = most * F16_LINE_BYTES(down->format);
}
/* Longer slots only where there are no more launches by them, nor fewer than two slots for each worker that shorter ones leave room for. */
static int fill_down(moe_decode_f16_sm90_args *a, int64_t tokens, int shared_bytes)
{
    const int lines = a->lines;
    moe_decode_f16_sm90_args shorter = *a;
    make_whole(a);
    const int bytes = fill_launches(a, tokens, shared_bytes);
    if (a->slot_lines == shorter.slot_lines) return bytes;
    const int shorter_bytes = fill_launches(&shorter, tokens, shared_bytes);
    const bool deep = a->ring >= moii_min(2, shorter.ring);
    if (bytes && (!shorter_bytes || (deep && moii_ceil_div(lines, a->lines) <= moii_ceil_div(lines, shorter.lines)))) return bytes;
    *a = shorter;
    return shorter_bytes;
}

int moii_decode_next_size(int tokens) { return tokens < 32 ? 2 * tokens : tokens < 64 ? tokens + 16 : tokens < 256 ? tokens + 32 : tokens + 64; }

bool moii_decode_many_shallow(const moe_decode_f16_sm90_args *up) { return up->teams == MANY_FEWER_TEAMS && up->ring == 1; }

int moii_decode_many_launches(const moi_moe_decode_desc *d, const moe_decode_f16_sm90_args *down)
{
    return (int)moii_ceil_div(d->width, (int64_t)F16_LINE_VALUES(down->format) * down->parts * down->slot_lines);
}

static many_shares even_shares(int tiles, int blocks)
{
    return (many_shares){ .tiles = tiles, .inverse_tiles = (unsigned int)((1ull << 32) / (unsigned int)tiles + 1), .even = 1 / (float)blocks };
}

/* Pass 2's blocks start in their order, as those of pass 1 end: the first one has so many bytes of weights and such a part of its share more than the mean, the
 * last one so much less.  The first blocks are also on multiprocessors that get more of memory: they share a part of all alone, a tenth of theirs. */
enum { LEAD_BYTES = 320 << 10 };
#define LEAD_MORE (1 / 16.0f)
#define LEAD_OF_MORE (3 / 13.0f)     /* columns, and not beside pass 3: no bytes then */
#define LEAD_OF_TWO_TEAMS (1 / 8.0f) /* of these pass 1 with two teams, whose blocks end less far apart */
#define FASTER 0.1f

static many_shares down_shares(const moe_decode_f16_sm90_args *down, int blocks, bool early, int teams)
{
    many_shares s = even_shares(down->tiles, blocks);
    const int items = LEAD_BYTES / (down->lines * F16_LINE_BYTES(down->format));
    s.lead = early ? (float)(items * blocks) : 0, s.more = early ? LEAD_MORE : teams == MANY_TEAMS ? LEAD_OF_MORE : LEAD_OF_TWO_TEAMS;
    s.fast = FASTER / MANY_FAST;
    return s;
}

/* An item's job is found by a multiplication: many_shares. */
static bool divisible(const moe_decode_f16_sm90_args *a) { return (int64_t)a->most_jobs * a->tiles * a->tiles < INT64_C(1) << 32; }

/* Of sums: fewer stay in L2 until they are overwritten (docs/notes/warp-decode.md, "What passes leave for each other"). */
enum { DISCARDED_BYTES = 6 << 20 };

bool moii_decode_many_discards(const moi_moe_decode_desc *d, int tokens) { return 4 * tokens * d->top_k * d->hidden >= DISCARDED_BYTES; }

/* Whether jobs of 16 columns are better than those of 8: of few tokens only where teams have many items besides, for fewer jobs end less evenly. */
static bool of_16(const moi_moe_decode_desc *d, int tokens, int sms, const moe_decode_f16_sm90_args *up)
{
    enum { ITEMS = 8 }; /* of a team */
    const int64_t pairs = tokens * d->top_k;
    if (up->format == F16_BF16) return tokens > MANY_TOKENS_FOR_16_BF16;
    if (tokens > MANY_TOKENS_FOR_16) return pairs > (up->format == F16_MXFP4 ? MANY_ROWS_FOR_16_MXFP4 : MANY_ROWS_FOR_16) * d->experts;
    const bool even = d->experts * up->tiles >= ITEMS * MANY_TEAMS * sms;
    return even && pairs > MANY_ROWS_FOR_16_FEW * d->experts && moii_decode_many_held(d->experts, d->top_k, tokens);
}

/* Columns of a job, in groups of 8, best first: the next one is taken where one does not fit. */
static int ways_for(const moi_moe_decode_desc *d, int tokens, int sms, const moe_decode_f16_sm90_args args[2], int way[MANY_GROUPS])
{
    const int format = args[0].format;
    const bool bf16 = format == F16_BF16, mx = format == F16_MX_E4M3 || format == F16_MX_E5M2, tail = args[0].tail || args[1].tail;
    const bool many = tokens > MANY_TOKENS_FOR_16, two = of_16(d, tokens, sms, &args[0]);
    const int64_t pairs = tokens * d->top_k;
    int ways = 0;
    if (many && bf16 && !tail && pairs > MANY_ROWS_FOR_32_BF16 * d->experts) way[ways++] = 4;
    if (many && format != F16_MXFP4 && !tail && pairs > (mx ? MANY_ROWS_FOR_24_MXFP8 : MANY_ROWS_FOR_24) * d->experts) way[ways++] = 3;
    way[ways++] = two ? 2 : 1;
    if (two || many) way[ways++] = two ? 1 : 2;
    return ways;
}

/* Jobs of fewer columns are better, if they fit: where those of 16 leave each worker one slot, and experts have few rows, or weights are BF16, which are not
 * taken out of it; of few tokens, too, where pass 2 has many launches, or with BF16 and few rows pass 1 fewer teams; of more columns there are no others than
 * of two slots, and of one launch of pass 2. */
static bool too_broad(const moi_moe_decode_desc *d, int groups, int tokens, const moe_decode_f16_sm90_args args[2])
{
    enum { LAUNCHES = 2 };
    const moe_decode_f16_sm90_args *up = &args[0];
    const int64_t pairs = tokens * d->top_k;
    const int launches = moii_decode_many_launches(d, &args[1]);
    const bool bf16 = up->format == F16_BF16, few = pairs <= MANY_ROWS_FOR_16_FEW * d->experts;
    if (groups > 2) return up->ring < 2 || launches > 1;
    if (groups < 2) return false;
    if (tokens <= MANY_TOKENS_FOR_16 && (bf16 ? few && up->teams < MANY_TEAMS : launches > LAUNCHES)) return true;
    return up->ring < 2 && (bf16 || pairs < FEW_ROWS * d->experts);
}

/* False: jobs of so many groups do not fit. */
static bool fill_passes(const moi_moe_decode_desc *d, int groups, int tokens, int sms, int shared_bytes, moe_decode_f16_sm90_args args[2],
                        moii_gpu_launch launch[3])
{
    moe_decode_f16_sm90_args *up = &args[0], *down = &args[1];
    const bool bf16 = up->format == F16_BF16, early = groups == 1 || bf16;
    const int bytes = shared_bytes - (early ? BLOCK_BYTES : 0);
    const int64_t pairs = tokens * d->top_k;
    for (int pass = 0; pass < 2; pass++) {
        args[pass].columns = groups * F16_MOST_TOKENS, args[pass].token_words = (tokens + 31) / 32;
        args[pass].most_jobs = (int)moii_min(pairs, d->experts + pairs / args[pass].columns);
    }
    /* of MXFP8 pass 1 has none beside routing by p */
    const bool has_kernel = up->format == F16_SQUARES || up->format == F16_MXFP4 || moii_decode_many_held(d->experts, d->top_k, tokens);
    up->whole = has_kernel && moii_decode_slots_are_whole(up, F16_UP_LINES(up->format));
    launch[0].shared_bytes = fill_up(up, tokens, bytes), launch[0].threads = 32 * MANY_UP_WARPS(up->teams);
    launch[1].shared_bytes = fill_down(down, tokens, bytes), launch[1].threads = 32 * MANY_DOWN_WARPS(down->columns);
    launch[2] = (moii_gpu_launch){ .grid = { early ? sms : SUM_BLOCKS * sms }, .threads = 32 * MANY_SUM_WARPS, .overlap = true };
    up->shares = even_shares(up->tiles, sms), up->down_shares = down_shares(down, sms, early, up->teams);
    const bool asks = early || (up->format != F16_MXFP4 && up->ring > 1);
    up->likely = asks ? LIKELY_BYTES / (MANY_UP_WORKERS(up->teams) * up->slot_bytes) : 0;
    return launch[0].shared_bytes && launch[1].shared_bytes && divisible(up) && divisible(down);
}

bool moii_decode_many_layout(const moi_moe_decode_desc *d, int tokens, int sms, int shared_bytes, moe_decode_f16_sm90_args args[2],
                             moii_gpu_launch launch[3], int *groups)
{
    moii_decode_cut(d, F16_MOST_TOKENS, sms, args, launch);
    if (tokens > F16_MOST_TOKENS) args[0].policy = EVICT_FIRST;
    if (tokens * d->top_k > MANY_PAIRS) return false;
    launch[1].grid[0] = sms;
    const moe_decode_f16_sm90_args down = args[1];
    int way[MANY_GROUPS];
    const int ways = ways_for(d, tokens, sms, args, way);
    for (int i = 0; i < ways; i++) {
        *groups = way[i], args[1] = down;
        if (fill_passes(d, *groups, tokens, sms, shared_bytes, args, launch) && !too_broad(d, *groups, tokens, args)) return true;
    }
    *groups = 2, args[1] = down; /* though too broad, where nothing else fits */
    return ways > 1 && fill_passes(d, *groups, tokens, sms, shared_bytes, args, launch);
}
