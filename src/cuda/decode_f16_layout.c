/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_layout.c: how moe_decode_f16_sm90 cuts a layer, and what lies where in its blocks' shared memory. */
#include "decode_f16_layout.h"

#include "decode_routing.h"
#include "format.h"

int moii_decode_f16_weights(const moi_format *f)
{
    if (f->recipe == MOI_RECIPE_BF16) return F16_BF16;
    if (f->recipe == MOI_RECIPE_BLK128) return F16_SQUARES;
    return f->elem == MOI_E2M1 ? F16_MXFP4 : f->elem == MOI_E5M2 ? F16_MX_E5M2 : F16_MX_E4M3;
}

int moii_decode_held(int64_t experts) { return experts <= 128 || experts > MOII_ROUTED_IN_PASSES ? 4 : experts <= 256 ? 8 : 16; }

int moii_decode_f16_lines(const moe_decode_f16_sm90_args *down) { return down->slot_lines > 2 ? 3 : 2; }

int moii_decode_last_blocks(int64_t k, int weights) { return (int)((k - 1) % F16_LINE_VALUES(weights)) / 32 + 1; }

int moii_decode_take(int *at, int64_t bytes, int align)
{
    int here = *at = (int)moii_round_up(*at, align);
    *at += (int)bytes;
    return here;
}

/* Places in shared memory; what they need. */
static int lay_out(moe_decode_f16_sm90_args *a, int pass, int64_t tokens)
{
    int64_t pairs = tokens * a->top_k;
    int workers = pass == 1 ? F16_UP_WORKERS : F16_DOWN_WARPS, at = workers * a->ring * a->slot_bytes;
    a->most_jobs = (int)moii_min(pairs, a->experts);
    const int lines = pass == 1 ? F16_UP_LINES(a->format) : moii_decode_f16_lines(a), kept = a->items ? 1 : a->parts;
    a->at_scales = moii_decode_take(&at, a->scale_row ? workers * a->ring * F16_ROWS * 4 * F16_SCALE_WORDS(lines, a->tail) : 0, 16);
    a->at_columns = moii_decode_take(&at, pass == 1 ? a->lines * F16_KEPT_LINE(a->format, a->columns) : 0, 16);
    a->at_sums = moii_decode_take(&at, pass == 1 ? F16_UP_SUMS(moii_decode_held(a->experts)) : pairs * kept * a->block_tiles * F16_ROWS * 4, 16);
    a->at_barriers = moii_decode_take(&at, 8 * workers * a->ring + (pass == 1 ? 8 * 4 * F16_TEAMS : 0), 16);
    a->at_ids = moii_decode_take(&at, 4 * pairs, 16);
    a->at_weights = moii_decode_take(&at, 4 * (pass == 1 ? moii_min(a->experts, MOII_ROUTED_IN_PASSES) : pairs), 16);
    a->at_first = moii_decode_take(&at, 4 * (a->experts + 1), 16), a->at_expert = moii_decode_take(&at, 4 * a->most_jobs, 16);
    a->at_column = moii_decode_take(&at, (int64_t)2 * a->most_jobs * F16_MOST_TOKENS, 16), a->at_job = moii_decode_take(&at, 2 * pairs, 16);
    return at;
}

enum { MOST_RING = 8, LEAST_RING = 2 }; /* each worker must have a slot to multiply and another that is on its way */

/* The deepest rings within so many bytes of shared memory.  In pass 1 they hold at most a third of what a block reads: what is sent for early is in
 * the way of what is waited for. */
static int fill(moe_decode_f16_sm90_args *a, int pass, int64_t tokens, int sms, int bytes)
{
    a->ring = pass == 2 && a->format == F16_BF16 ? LEAST_RING : MOST_RING; /* of BF16 more are not faster */
    if (pass == 1) {
        int64_t all = tokens * a->top_k * a->tiles * a->lines * F16_LINE_BYTES(a->format) / sms;
        a->ring = (int)moii_max(LEAST_RING, moii_min(MOST_RING, all / 3 / (F16_UP_WORKERS * a->slot_bytes)));
    }
    while (a->ring > LEAST_RING && lay_out(a, pass, tokens) > bytes) a->ring--;
    return lay_out(a, pass, tokens);
}

/* Weights leave L2 first, so that all else stays longer; but in pass 1 of eight tokens that is slower: measured (docs/notes/warp-decode.md). */
static unsigned long long policy_of(int pass, int tokens) { return pass == 1 && tokens == F16_MOST_TOKENS ? EVICT_NORMAL : EVICT_FIRST; }

/* Lines of a slot in pass 1, of which each of a team's warps has every fourth: as many as there is room for; but of a row of less than four such slots fewer,
 * if these leave the warp with most lines much less to do.  A slot costs two thirds of a line besides its lines (docs/notes/warp-decode.md). */
enum { LINE_COST = 3, SLOT_COST = 2 };

static int slot_cost(int lines, int slot_lines)
{
    const int parts = (int)moii_ceil_div(lines, slot_lines), rounds = (int)moii_ceil_div(parts, F16_TEAM), whole = lines - slot_lines * (parts - 1);
    const int most = (parts - 1) % F16_TEAM ? rounds * slot_lines : (rounds - 1) * slot_lines + whole; /* the first warp's, which may have the last slot */
    return LINE_COST * most + SLOT_COST * rounds;
}
static int slot_lines_of(int lines, int most)
{
    int best = most;
    for (int n = most - 1; n && moii_ceil_div(lines, most) < F16_TEAM; n--)
        if (16 * slot_cost(lines, n) < 15 * slot_cost(lines, best)) best = n;
    return best;
}

bool moii_decode_slots_are_whole(const moe_decode_f16_sm90_args *a, int most)
{
    return a->format != F16_BF16 && !a->tail && a->slot_lines == most && a->lines % most == 0;
}

static void cut_pass(const moi_moe_decode_desc *d, int tokens, int sms, int pass, moe_decode_f16_sm90_args *a, moii_gpu_launch *launch)
{
    const int weights = moii_decode_f16_weights(&d->weights);
    int64_t k = pass == 1 ? d->hidden : d->width;
    *a = (moe_decode_f16_sm90_args){ .top_k = (int)d->top_k, .experts = (int)d->experts, .width = (int)d->width, .hidden = (int)d->hidden,
                                     .format = weights, .scale_row = weights == F16_BF16 ? 0 : (int)k / 32,
                                     .lines = (int)moii_ceil_div(k, F16_LINE_VALUES(weights)), .columns = tokens, .renormalize = d->renormalize,
                                     .policy = policy_of(pass, tokens), .kept = EVICT_LAST, .out_f32 = d->out == MOI_F32 };
    a->exponent_row = (int)moii_round_up(d->width, F16_LINE_VALUES(weights)) / 8;
    a->tail = k % F16_LINE_VALUES(weights) != 0;
    a->last_blocks = moii_decode_last_blocks(k, weights);
    int64_t rows = pass == 1 ? 2 * d->width : d->hidden;
    a->expert_scale_bytes = (unsigned int)((weights == F16_SQUARES ? rows / 128 : rows) * a->scale_row);
    a->inverse_top_k = 65536u / (unsigned int)d->top_k + 1;
    a->tiles = pass == 1 ? (int)d->width / (F16_ROWS / 2) : (int)d->hidden / F16_ROWS;
    const int most = pass == 1 ? slot_lines_of(a->lines, F16_UP_LINES(weights)) : F16_DOWN_LINES(weights);
    a->parts = (int)moii_max(moii_ceil_div(a->lines, most), moii_min(a->lines, 2));
    a->slot_lines = (int)moii_ceil_div(a->lines, a->parts);
    a->slot_bytes = a->slot_lines * F16_LINE_BYTES(weights);
    a->shifts = pass == 1 && a->parts >= F16_TEAM && a->lines % (F16_TEAM * a->slot_lines) != 0; /* not all warps have as many lines */
    a->step_job = F16_TEAMS * sms / a->tiles, a->step_rest = F16_TEAMS * sms % a->tiles;
    *launch = (moii_gpu_launch){ .threads = 32 * (pass == 1 ? F16_UP_WARPS : F16_DOWN_WARPS), .overlap = true, .grid = { sms } };
    if (pass == 2) launch->grid[0] = moii_ceil_div(a->tiles, moii_ceil_div(a->tiles, sms)); /* as many tiles for each */
}

void moii_decode_cut(const moi_moe_decode_desc *d, int tokens, int sms, moe_decode_f16_sm90_args args[2], moii_gpu_launch launch[2])
{
    for (int pass = 1; pass <= 2; pass++) cut_pass(d, tokens, sms, pass, &args[pass - 1], &launch[pass - 1]);
}

/* One multiprocessor's shared memory, less what each block costs: room for a block of either pass, so that passes overlap; at most so much of it is
 * pass 2's.  Two blocks of pass 1 must not fit, or where pass 2 has fewer blocks than there are multiprocessors, some have two of the next layer's pass 1
 * and others none. */
enum { TOGETHER = 226 << 10, DOWN = 112 << 10, DOWN_OF_TWO = 84 << 10, ALONE = 114 << 10 };

/* Pass 2 is let in when so many bytes of each block's weights are left in pass 1: earlier, it is in its way; slow memory gives fewer in the time that its
 * start takes.  But of one token whose units of pass 2 have so few codes that it takes longer than their bytes, at once.  Measured, but for items with slow
 * memory or MXFP4, which go as parts there: docs/notes/warp-decode.md. */
enum { LATE_BYTES = 8 << 16, LATE_BYTES_4 = 6 << 16, LATE_BYTES_SLOW = 6 << 16, LATE_BYTES_4_SLOW = 4 << 16, LATE_BYTES_MXFP4 = 4 << 16 };
enum { LATE_BYTES_ITEMS = 10 << 16, LATE_BYTES_ITEMS_BF16 = 14 << 16 };
enum { SLOW_GB_S = 4000, UNIT_CODES = 17 << 8 };

static int late_turns(const moe_decode_f16_sm90_args *up, const moe_decode_f16_sm90_args *down, int tokens, moii_decode_device on, int64_t down_blocks)
{
    const bool slow = on.memory_gb_s && on.memory_gb_s < SLOW_GB_S, bf16 = up->format == F16_BF16, fours = up->format == F16_MXFP4;
    const int64_t codes = (int64_t)down->lines * F16_ROWS * F16_LINE / down->parts;
    const bool small = !bf16 && codes * down_blocks < (int64_t)UNIT_CODES * on.sms; /* a share of every multiprocessor's */
    if (tokens == 1 && !bf16 && codes < UNIT_CODES) return 0;
    const int64_t four = slow ? LATE_BYTES_4_SLOW : LATE_BYTES_4, other = slow ? LATE_BYTES_SLOW : LATE_BYTES;
    const int64_t by_parts = small || bf16 ? LATE_BYTES : tokens == 4 ? four : other, by_items = bf16 ? LATE_BYTES_ITEMS_BF16 : LATE_BYTES_ITEMS;
    const int64_t late = fours ? LATE_BYTES_MXFP4 : down->items && !slow ? by_items : by_parts;
    const int turn = F16_TEAMS * up->lines * F16_LINE_BYTES(up->format);
    return (int)moii_max((late + turn / 2) / turn, 1);
}

/* Bytes between rows of exponents, of width / 8 each: all blocks of pass 2 look at them until they are there.  Where rows lie close together, these looks
 * wait for each other: one token took 17 or 20 us, by where the workspace was. */
static int exponent_row(int64_t width) { return (int)moii_round_up(width / 4, 256); }

/* Slots of a worker of pass 2 whose weights it sends for before it has its first u, which comes behind them: one, where it has few units. */
enum { FEW_UNITS = 4, FEW_UNITS_BF16 = 6 };

static int first_slots(const moe_decode_f16_sm90_args *down)
{
    const int few = down->format == F16_BF16 ? FEW_UNITS_BF16 : FEW_UNITS, items = down->most_jobs * down->block_tiles;
    const int64_t units = down->items ? moii_ceil_div(items, F16_DOWN_WARPS) * down->parts : moii_ceil_div(items * down->parts, F16_DOWN_WARPS);
    return units <= few ? 1 : down->ring;
}

/* Multiplying codes of E2M1 takes longer than reading them: where less than three quarters of the multiprocessors have tiles of pass 2, four and more tokens
 * are faster by three launches (measured, docs/notes/warp-decode.md). */
enum { IDLE_FROM = 4 };

static bool leaves_idle(const moe_decode_f16_sm90_args *down, int tokens, int sms, int64_t blocks)
{
    return down->format == F16_MXFP4 && tokens >= IDLE_FROM && 4 * blocks < 3 * sms;
}

/* Items are fewer than units and leave workers idle at the end: with BF16, whose items are longest, that costs more than a third launch from two tokens on,
 * and where blocks of pass 2 leave multiprocessors idle, too, from four. */
bool moii_decode_items_lose(const moe_decode_f16_sm90_args *down, int tokens, int sms, int64_t blocks)
{
    return down->items && ((down->format == F16_BF16 && tokens > 1) || (tokens >= IDLE_FROM && 8 * blocks < 7 * sms));
}

/* From a worker's unit to its next, or of whole items, from its item to its next. */
static void step_down(moe_decode_f16_sm90_args *down)
{
    const int parts = down->items ? 1 : down->parts, units = down->block_tiles * parts;
    down->step_job = F16_DOWN_WARPS / units;
    down->step_number = F16_DOWN_WARPS % units / parts, down->step_rest = F16_DOWN_WARPS % parts;
}

/* Rings of both passes; true: blocks of both fit a multiprocessor together. */
static bool fill_both(int tokens, int sms, moe_decode_f16_sm90_args args[2], moii_gpu_launch launch[2])
{
    const bool of_two = moii_decode_f16_lines(&args[1]) == 2 && args[1].format != F16_BF16; /* lines of a slot: two slots of each worker are best */
    const int most_down = of_two ? DOWN_OF_TWO : DOWN;
    step_down(&args[1]);
    launch[1].shared_bytes = fill(&args[1], 2, tokens, sms, most_down);
    launch[0].shared_bytes = fill(&args[0], 1, tokens, sms, TOGETHER - launch[1].shared_bytes);
    if (launch[0].shared_bytes < ALONE) launch[0].shared_bytes = ALONE;
    return launch[0].shared_bytes + launch[1].shared_bytes <= TOGETHER && launch[1].shared_bytes <= most_down;
}

bool moii_decode_f16_layout(const moi_moe_decode_desc *d, int tokens, moii_decode_device on, moe_decode_f16_sm90_args args[2], moii_gpu_launch launch[2])
{
    const int sms = on.sms;
    moii_decode_cut(d, tokens, sms, args, launch);
    if (leaves_idle(&args[1], tokens, sms, launch[1].grid[0])) return false;
    args[1].block_tiles = (int)moii_ceil_div(args[1].tiles, launch[1].grid[0]);
    args[0].whole = args[0].format == F16_MXFP4 && moii_decode_slots_are_whole(&args[0], F16_UP_LINES(args[0].format));
    bool fits = fill_both(tokens, sms, args, launch);
    if (!fits) args[1].items = 1, fits = fill_both(tokens, sms, args, launch);
    args[0].late_turns = late_turns(&args[0], &args[1], tokens, on, launch[1].grid[0]);
    /* where registers do not hold all of x, no weights are sent for before it is kept: the rest would stand behind them */
    args[0].known_jobs = d->hidden <= F16_X_VALUES * F16_UP_WORKERS ? (int)d->top_k : 0;
    args[0].exponent_row = args[1].exponent_row = exponent_row(d->width);
    args[1].first_slots = first_slots(&args[1]);
    return fits;
}
