/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_tile.c: how a product is cut into tiles: every candidate's time is estimated, the shortest wins.
 *
 * The estimate, in clocks of a multiprocessor: rounds of units (product_units.cuh), each of `steps` stages and one store.  A stage takes the
 * longest of what the tensor cores, the copies out of L2, one team's chain of product, wait and addition, and 1x32 scales need; nothing is faster
 * than reading every operand once.  The constants are measured: docs/notes/gemm-hopper.md. */
#include "format.h"
#include "tensor_product.h"

enum { SHARED_MOST = 232448, FEW_COLUMNS = 2816, LARGE_TILE = 256 * 128 };

/* Of B, that a tile may touch: product_sm90.cuh's TILE_SQUARES. */
static int squares_of(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    int lines = moii_tile_lines(p, t), run = 128;
    while (lines % run) run /= 2; /* tiles begin at multiples of it */
    return p->swiglu || moii_tile_broad(p, t) ? 2 : (255 - run + lines) / 128 + (t->wide && t->bn % 64);
}

static bool stores_boxes(const moii_tensor_product *p, const moii_tensor_tile *t) { return !p->out_f32 && t->split == 1 && !moii_tensor_codes(p); }

int moii_tensor_shared(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    int bm = moii_tile_rows(p, t), lines = moii_tile_lines(p, t), per_step = p->scaling == SCALING_MX ? 4 : 1;
    if (t->thin) {
        int each = p->mixed ? 2 * bm * PRODUCT_STEP_BYTES : bm * (PRODUCT_STEP_BYTES + 16);
        int cards = p->mixed ? THIN_CARDS * (THIN_CARD + (p->halves ? bm * 4 : bm)) : 0;
        int scales = p->halves ? 8 * lines : p->mixed ? MIXED_SCALES(lines) : 4 * lines;
        return cards + t->stages * (each + lines * moii_tensor_row_bytes(p) + scales + 16) + 4 * t->wgs * THIN_ROOM(t->bn) + THIN_LISTS;
    }
    bool staged = p->scaling >= SCALING_SQUARE && p->scaling <= SCALING_MX;
    int a_scales = staged ? bm * per_step + (p->scales_bulk && p->grouping == PRODUCT_ROWS ? 4 : 0) : 0;
    int b_scales = p->scaling == SCALING_MX || p->scaling == SCALING_VECTOR ? t->bn * per_step : 0;
    int zeros = 0;
    if (moii_tile_outer(p, t)) a_scales = OUTER_FLOATS(bm), b_scales = OUTER_FLOATS(t->bn), zeros = OUTER_ZEROS;
    int squares = p->scaling == SCALING_SQUARE ? 32 + 2 * 64 * 4 * squares_of(p, t) : 0;
    int scales = 4 * (a_scales + b_scales), box = moii_tile_carries(p, t) ? 8192 : 128 * moii_tile_box(p, t);
    int out = stores_boxes(p, t) || moii_tile_carries(p, t) ? t->wgs * t->boxes * box : 0;
    int join = (t->turns - 1) * 128 * t->wgs * t->waves * t->bn * 2;
    int parts = t->split > 1 ? t->split * (int)moii_ceil_div(t->waves * t->bn / 8, t->split) * 128 * t->wgs * 16 : 0;
    int places = p->scatter_rows || p->weighted ? 512 * t->wgs * t->turns * t->waves : 0;
    int tops = moii_tensor_codes(p) ? t->wgs * bm * 4 : 0;
    return places + tops + zeros + squares + 576 + join + parts + t->stages * ((bm + lines) * PRODUCT_STEP_BYTES + scales + 16) + out;
}

/* ---- the estimate ---- */

int64_t moii_tensor_group_rows(const moii_tensor_product *p)
{
    int64_t groups = moii_max(p->groups, 1);
    if (!moii_tensor_experts(p)) return p->m;
    if (p->expected) return p->grouping == PRODUCT_MASKED ? moii_min(moii_ceil_div(p->expected, groups), p->m) : moii_ceil_div(p->expected, groups);
    return p->grouping == PRODUCT_MASKED ? p->m : moii_ceil_div(p->m, groups);
}

static int64_t group_depth(const moii_tensor_product *p)
{
    return p->grouping == PRODUCT_DEPTH ? moii_ceil_div(p->expected ? p->expected : p->k, moii_max(p->groups, 1)) : p->k;
}

typedef struct shape { double m_tiles, n_tiles, steps; } shape; /* m_tiles: of all groups */

/* Tiles below each other in a group.  Ragged groups of many rows end anywhere in their last one, which takes as long as a whole one, or, where both
 * warpgroups share its blocks, as its part and 0.2.  In a product of few rounds that is not what counts, but how many rounds they are. */
static double tiles_down(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t rows)
{
    enum { MANY_ROWS = 512, MANY_ROUNDS = 8 };
    int64_t bm = moii_tile_rows(p, t);
    double rounds = (double)rows * (double)p->groups * (double)p->n / ((double)LARGE_TILE * p->sms);
    if (p->grouping != PRODUCT_ROWS || rows <= MANY_ROWS || rounds < MANY_ROUNDS) return (double)moii_ceil_div(rows, bm);
    return (double)rows / (double)bm + (moii_tile_halves(p, t) ? 0.2 : 0.5);
}

static shape shape_of(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    int64_t across = (int64_t)moii_tile_lines(p, t) * t->cluster, groups = moii_max(p->groups, 1), k = group_depth(p);
    int64_t step = p->scaling == SCALING_NONE ? 64 : 128, m_groups = p->grouping == PRODUCT_DENSE ? 1 : groups;
    return (shape){ tiles_down(p, t, moii_tensor_group_rows(p)) * (double)m_groups, (double)(moii_ceil_div(p->n, across) * t->cluster),
                    (double)moii_ceil_div(moii_ceil_div(k, step), t->split) };
}

/* Whether so many units of the last round all go to clusters that have a strip's, and so have time left. */
static bool strip_evens(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, int64_t last, int64_t clusters)
{
    int64_t strips = moii_tile_strips(p, t, m);
    return strips <= clusters && last <= strips;
}

product_cutting moii_tensor_cut(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, int64_t units, int64_t clusters)
{
    bool cuts = moii_tile_halves(p, t) && !p->widens && (p->grouping == PRODUCT_DENSE || p->grouping == PRODUCT_ROWS);
    if (!cuts || units >= PRODUCT_UNCUT) return (product_cutting){ PRODUCT_UNCUT, 2 };
    product_cutting c = product_cut_rest((int)units, (int)clusters, moii_tile_rows(p, t));
    if (strip_evens(p, t, m, 2 * (units % clusters), clusters)) c.pieces = 2;
    return c;
}

/* Tiles that one multiprocessor has behind each other; the last ones may be cut. */
static double rounds_of(const moii_tensor_product *p, const moii_tensor_tile *t, double blocks, double sms)
{
    int64_t units = (int64_t)blocks / t->cluster, clusters = moii_max((int64_t)sms / t->cluster, 1);
    product_cutting c = t->split > 1 ? (product_cutting){ PRODUCT_UNCUT, 1 } : moii_tensor_cut(p, t, p->m, units, clusters);
    bool cut = c.cut < PRODUCT_UNCUT;
    if (!moii_tile_strip(p, t) && !cut) return (double)(int64_t)((blocks + sms - 1) / sms);
    int64_t rest = units % clusters;
    double last = rest == 0 ? 0.0 : !cut ? 1.0 : c.pieces == 4 ? 0.5 : 0.72;
    if (rest > 0 && strip_evens(p, t, p->m, cut ? rest * c.pieces : rest, clusters)) last -= 0.25;
    return (double)(units / clusters) + last;
}

static double longest(double a, double b) { return a > b ? a : b; }

/* 192 x 128 as an alternative to tiles whose scales the tensor cores multiply: what it takes was measured beside those. */
static bool rivals_outer(const moii_tensor_product *p, const moii_tensor_tile *t) { return moii_tensor_outer(p) && t->wgs == 3; }

/* Clocks in which a stage's rows of B come from memory. */
static double weights_clocks(const moii_tensor_product *p, const moii_tensor_tile *t, double busy)
{
    return (double)moii_tile_lines(p, t) * PRODUCT_STEP_BYTES / 18.0 * busy;
}

/* Clocks of one stage.  busy: share of the multiprocessors that have work, and so compete for memory. */
static double stage_clocks(const moii_tensor_product *p, const moii_tensor_tile *t, double busy)
{
    static const double added[] = { [SCALING_NONE] = 0.0, [SCALING_SQUARE] = 0.6, [SCALING_VECTOR] = 1.4, [SCALING_MX] = 5.0, [SCALING_ROWS] = 0.5 };
    double bm = moii_tile_rows(p, t), bn = t->bn, lines = moii_tile_lines(p, t), beside = t->wgs * 0.75 > 1.0 ? t->wgs * 0.75 : 1.0;
    bool outer = moii_tile_outer(p, t);
    double tensor = bm * lines / 32.0 * (p->scaling == SCALING_NONE ? 1.1 : outer ? 1.25 : 1.2);
    double copies = (bm / t->cluster + lines) * PRODUCT_STEP_BYTES / (p->scaling == SCALING_ROWS ? 50.0 : 60.0);
    double memory = weights_clocks(p, t, busy);
    double each = rivals_outer(p, t) ? 3.2 : added[p->scaling]; /* 1236 clocks: 1200, and a little for it to be worth it */
    double products = t->waves * 2.0 * bn * beside, additions = t->waves * (each * bn + 250.0) - (t->waves - 1) * 270.0;
    if (moii_tile_doubled(p, t)) additions /= 2.0;
    double chain = p->scaling == SCALING_NONE || outer ? 0.0 : (products + additions) / t->turns;
    if (p->halves) return longest(memory, 1500.0);
    if (p->mixed) return bm > 64.0 ? 2800.0 : 2400.0; /* codes that become FP16, beside products */
    if (t->thin) return longest(memory, 1000.0); /* of groups whose sizes differ; of 64 rows each 1500 */
    if (bm > 128.0) memory = 0.0; /* a weight is read for many rows: it comes out of L2 */
    /* of tiles below each other the first one waits; in 16 bits smaller tiles were found slower than that says */
    bool shares = outer || p->scaling == SCALING_SQUARE || (p->scaling == SCALING_ROWS && p->grouping != PRODUCT_DEPTH);
    if (shares && !p->swiglu && t->split == 1) memory /= (double)moii_max(1, moii_ceil_div(moii_tensor_group_rows(p), (int64_t)bm));
    double scales = p->scaling == SCALING_MX ? 500.0 : 0.0; /* what three warps take to make them */
    return longest(longest(longest(tensor, copies), scales), longest(chain, memory));
}

/* Clocks that a tile takes longer: where two blocks share A each waits for the other; where none do, many rounds find them ever further apart, and what
 * one has read no longer in L2 when the next one asks for it.  With few columns, dense, tiles of three warpgroups lose more (H100). */
static double pace_clocks(const moii_tensor_product *p, const moii_tensor_tile *t, double rounds, double steps)
{
    if (p->grouping == PRODUCT_DEPTH || p->scaling == SCALING_VECTOR || p->widens || moii_tensor_group_rows(p) <= 128) return 0.0;
    bool across = p->grouping == PRODUCT_ROWS && p->scaling == SCALING_SQUARE && p->n <= FEW_COLUMNS; /* tiles at work are whole rows of D: they keep A in L2 */
    if (t->cluster > 1 || across) return (t->cluster > 1 ? 600.0 : 0.0) + 10.0 * steps;
    bool tall = t->wgs == 3 && p->scaling == SCALING_SQUARE && p->grouping == PRODUCT_DENSE && p->n <= FEW_COLUMNS && rounds > 1.0;
    return 5.0 * steps * rounds + (tall ? 25.0 * steps : 0.0);
}

static double out_bytes(const moii_tensor_product *p) { return p->out_f32 ? p->accumulate ? 8.0 : 4.0 : 2.0; }

static double bytes_once(const moii_tensor_product *p)
{
    double size = p->scaling == SCALING_NONE ? 2.0 : 1.0, groups = (double)moii_max(p->groups, 1), n = (double)p->n;
    double rows = (double)moii_tensor_group_rows(p), m = moii_tensor_experts(p) ? rows * groups : rows;
    double k = (double)group_depth(p) * (p->grouping == PRODUCT_DEPTH ? groups : 1.0);
    if (p->grouping == PRODUCT_DEPTH) return size * k * (m + n) + out_bytes(p) * groups * m * n;
    return size * k * (m + n * (p->grouping == PRODUCT_DENSE ? 1.0 : groups)) + out_bytes(p) * m * n;
}

/* The same for few rows, where every weight is read once: bytes of memory, or of copies into shared memory, and what comes before and behind
 * them. */
static double estimate_few(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    shape s = shape_of(p, t);
    double bn = t->bn, rows = moii_tile_rows(p, t), blocks = s.m_tiles * s.n_tiles * t->split, sms = p->sms;
    /* clusters of four lie within parts of the chip that have no room for all: of 33 some 27 are at work at one time, on some chips fewer */
    if (t->split > 2) sms = (double)moii_max((p->sms / t->split - 8) * t->split, 1);
    double rounds = (double)(int64_t)((blocks + sms - 1) / sms), filled = rounds * sms / blocks, some = 122.0 / blocks;
    double bytes = (double)p->n * (double)p->k + (double)p->m * (double)p->k + out_bytes(p) * (double)p->m * (double)p->n;
    bytes += 0.146 * (double)p->m * (double)p->k * s.n_tiles; /* A out of L2, by the way that weights take too */
    double memory = bytes / 2590.0 * longest(blocks > sms ? filled : 1.0, some);
    double copies = rounds * s.steps * (1.28 * rows + moii_tile_lines(p, t)) * PRODUCT_STEP_BYTES / 49.0;
    double chain = rounds * s.steps * (t->few == 2 ? longest(2.57 * bn, 393.0) : 2.0 * bn + 172.0) / t->turns;
    double join = t->split == 1 ? 0.0 : t->split == 2 ? 240.0 + 10.6 * bn * t->wgs : 1150.0 + 10.0 * bn * t->wgs;
    return longest(memory, longest(copies, chain)) + 5770.0 + 10.0 * bn + (bn > 128.0 ? 5000.0 : 0.0) + 2500.0 * (rounds - 1.0) + join;
}

/* One matrix of more than 128 rows that is less than two rounds of the largest tiles: what counts is how many multiprocessors have work, and tiles of other
 * widths are worth it.  BF16 alone was measured, with A's scales by bulk copies. */
static bool is_middle(const moii_tensor_product *p)
{
    bool squares = p->grouping == PRODUCT_DENSE && p->scaling == SCALING_SQUARE && p->scales_bulk && !p->out_f32;
    return squares && p->m > 128 && (double)p->m * (double)p->n < 2.0 * p->sms * LARGE_TILE;
}

/* Rows of tiles that find a weight in L2 when one has brought it.  One that lacks half of its rows or more, so that one of two warpgroups has nothing to do,
 * runs ahead of the others. */
static double rows_sharing(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    double rows = (double)p->m / moii_tile_rows(p, t), whole = (double)(int64_t)rows;
    bool ahead = rows > whole && rows - whole <= 0.5 && t->wgs == 2 && !moii_tile_halves(p, t);
    if (whole >= 1.0 && ahead) return 0.7 * whole;
    return rows > 1.0 ? rows : 1.0;
}

static double estimate_middle(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    shape s = shape_of(p, t);
    double bm = moii_tile_rows(p, t), bn = t->bn, blocks = s.m_tiles * s.n_tiles * t->split, sms = p->sms;
    double rounds = rounds_of(p, t, blocks, sms), busy = blocks < sms ? blocks / sms : 1.0;
    double additions = (squares_of(p, t) > 1 ? 0.526 : 0.34) * bn + 170.0;
    double chain = t->waves * (2.0 * bn * longest(1.0, 0.837 * t->wgs) + additions) - (t->waves - 1) * 150.0;
    if (t->wgs == 1 && bn <= 128.0) chain = longest(1.5 * bn + 166.0, 266.0) + 0.1 * bn * (squares_of(p, t) > 1); /* PAIRED */
    double memory = bm > 128.0 ? 0.0 : bn * PRODUCT_STEP_BYTES / 13.3 * busy / rows_sharing(p, t);
    double stage = longest(1.1 * bm * bn / 32.0, longest(chain, memory)), store = 1180.0 + bm * bn * 2.0 / 35.0 * (t->bn % 32 ? 3.0 : 1.0);
    double work = rounds * (s.steps * stage + store) + (t->split > 1 ? 1160.0 : 0.0) - (t->wgs == 1 ? 440.0 : 0.0);
    return longest(work, bytes_once(p) / 2030.0) + 4700.0;
}

/* Of a tile of groups of few rows: weights of the next ones come while it is multiplied and stored, beside A's rows, which are in L2 and count a fifth, and a
 * little slower in shorter rings of broader stages (fitted to products_tiles.csv, "random"). */
static bool streams(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return moii_tensor_experts(p) && moii_tensor_group_rows(p) <= 64 && p->scaling <= SCALING_SQUARE && !p->swiglu && !p->mixed && !t->thin;
}
static double stream_clocks(const moii_tensor_product *p, const moii_tensor_tile *t, double steps, double busy, double store)
{
    double with_a = 1.0 + 0.2 * moii_tile_rows(p, t) / moii_tile_lines(p, t);
    return longest(steps * weights_clocks(p, t, busy) * with_a * (t->bn > 128 ? 1.06 : 1.0), steps * stage_clocks(p, t, 0.0) + store);
}

static double estimate(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    if (t->few) return estimate_few(p, t);
    if (is_middle(p)) return estimate_middle(p, t);
    shape s = shape_of(p, t);
    double bm = moii_tile_rows(p, t), lines = moii_tile_lines(p, t), blocks = s.m_tiles * s.n_tiles * t->split, sms = p->sms;
    if (moii_tile_strip(p, t)) blocks = (double)(moii_tensor_units(p, t, p->m) * t->cluster);
    if (t->split > 2) sms = (double)((p->sms / t->split - 1) * t->split); /* the chip's parts have odd multiprocessors left over */
    double rounds = rounds_of(p, t, blocks, sms), busy = blocks < sms ? blocks / sms : 1.0;
    bool behind = moii_tile_carries(p, t) || (!p->out_f32 && t->split == 1); /* D leaves by copies in the background */
    double store = behind ? 1800.0 + bm * lines * out_bytes(p) / 80.0 : 1200.0 + bm * lines * out_bytes(p) / 16.0;
    if (rivals_outer(p, t) && moii_tile_carries(p, t)) store = 7000.0; /* half of a tile at a time; of sums that are added to */
    double work = rounds * (s.steps * stage_clocks(p, t, busy) + store + pace_clocks(p, t, rounds, s.steps)) + (t->split > 1 ? 3000.0 : 0.0);
    if (streams(p, t)) work = rounds * stream_clocks(p, t, s.steps, busy, store);
    return longest(work, bytes_once(p) / 2700.0);
}

/* ---- the order of tiles ---- */

/* Of short reductions, which wait for D: so few that tiles of 128 rows for all multiprocessors would have whole rows of it; larger ones reach over two. */
static int band_of_sums(const moii_tensor_product *p, const moii_tensor_tile *t, int most)
{
    enum { SHORT_DEPTH = 2048 };
    int64_t across = moii_max(1, moii_ceil_div(p->n, moii_tile_lines(p, t)));
    if (!p->out_f32 || group_depth(p) >= SHORT_DEPTH) return most;
    return (int)moii_min(most, moii_max(1, p->sms / across * 128 / moii_tile_rows(p, t)));
}

int moii_tensor_band(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    enum { ROWS = 2048, SMALL = 9 << 20 };
    int bm = moii_tile_rows(p, t), size = p->scaling == SCALING_NONE ? 2 : 1, rows = ROWS / bm;
    if (p->grouping == PRODUCT_DEPTH) return band_of_sums(p, t, rows);
    if (p->n <= FEW_COLUMNS) return p->scaling != SCALING_SQUARE || p->grouping != PRODUCT_DENSE ? 1 : bm == 128 ? 6 : 2;
    return 2 * ROWS * p->k * size <= (t->cluster > 1 ? SMALL : SMALL / 2) ? 2 * rows : rows;
}

/* ---- candidates: their stages are the most; boxes follows; of equal estimates the first counts ---- */

static const moii_tensor_tile large[] = {
    { 2, 2, 128, 4, 2, 1, 1, 0, 0, 0, 0 }, { 2, 2, 128, 4, 1, 1, 1, 0, 0, 0, 0 }, { 3, 1, 128, 5, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 1, 192, 5, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 128, 6, 1, 1, 1, 0, 0, 0, 0 },
};
static const moii_tensor_tile large16[] = {
    { 2, 1, 256, 4, 2, 1, 1, 0, 0, 0, 0 }, { 2, 2, 128, 4, 2, 1, 1, 0, 0, 0, 0 }, { 2, 1, 256, 4, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 2, 128, 4, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 128, 6, 1, 1, 1, 0, 0, 0, 0 },
};
static const moii_tensor_tile large_vector[] = {
    { 3, 1, 128, 5, 2, 1, 1, 0, 0, 0, 0 }, { 3, 1, 128, 5, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 128, 6, 1, 1, 1, 0, 0, 0, 0 },
};
/* Where the tensor cores multiply the scales, besides. */
static const moii_tensor_tile large_outer[] = { { 2, 1, 128, 6, 2, 1, 1, 0, 0, 0, 0 }, { 2, 1, 128, 6, 1, 1, 1, 0, 0, 0, 0 } };

/* One matrix of a few hundred rows, and (the last five, in two parts) of at most half as many tiles as there are multiprocessors. */
static const moii_tensor_tile middle[] = {
    { 2, 2, 128, 4, 1, 1, 1, 0, 0, 0, 0 }, { 3, 1, 128, 5, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 192, 5, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 160, 6, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 1, 144, 6, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 128, 6, 1, 1, 1, 0, 0, 0, 0 }, { 2, 1, 96, 8, 1, 1, 1, 0, 0, 0, 0 },  { 2, 1, 80, 8, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 1, 64, 9, 1, 1, 1, 0, 0, 0, 0 },  { 1, 1, 128, 9, 1, 1, 1, 0, 0, 0, 0 }, { 1, 1, 96, 11, 1, 1, 1, 0, 0, 0, 0 }, { 1, 1, 64, 12, 1, 1, 1, 0, 0, 0, 0 },
    { 2, 1, 64, 9, 1, 2, 1, 0, 0, 0, 0 },  { 2, 1, 128, 6, 1, 2, 1, 0, 0, 0, 0 },  { 1, 1, 128, 9, 1, 2, 1, 0, 0, 0, 0 }, { 1, 1, 96, 11, 1, 2, 1, 0, 0, 0, 0 },
    { 1, 1, 64, 12, 1, 2, 1, 0, 0, 0, 0 },
};

typedef struct search { const moii_tensor_product *p; moii_tensor_tile best; double least; moii_tensor_told told; void *user; } search;

static void shorten(const moii_tensor_product *p, moii_tensor_tile *t)
{
    while (t->stages > 2 && moii_tensor_shared(p, t) > SHARED_MOST) t->stages -= t->turns; /* whole rounds of the teams */
}

/* As many stages as there is room for.  D leaves by all boxes of a tile at once, which is faster, but not if the ring would be shorter than 4: then by two, of
 * SwiGLU, whose tile has but two, by one. */
static void fit(const moii_tensor_product *p, moii_tensor_tile *t)
{
    moii_tensor_tile few = *t;
    t->boxes = moii_tile_carries(p, t) ? t->bn / 32 : t->waves * (int)moii_ceil_div(moii_tile_columns(p, t), moii_tile_box(p, t));
    few.boxes = p->swiglu ? 1 : 2;
    shorten(p, t), shorten(p, &few);
    if (t->stages < 4 && t->boxes > few.boxes && (stores_boxes(p, t) || moii_tile_carries(p, t)) && few.stages > t->stages) *t = few;
}

static void consider(search *s, moii_tensor_tile t)
{
    const moii_tensor_product *p = s->p;
    if ((p->a_turned || p->b_turned) && t.bn % 64) return; /* MN-major runs are 64 long */
    fit(p, &t);
    if (moii_tensor_shared(p, &t) > SHARED_MOST) return;
    double clocks = estimate(p, &t);
    if (s->told) s->told(s->user, &t, clocks);
    if (s->least == 0.0 || clocks < s->least) s->least = clocks, s->best = t;
}

enum { LONG_CHAIN = 8 }; /* stages of a part from which on it pays to have two in the tensor cores */

/* Tiles for few rows that read weights once, of squares: little code. */
static void consider_few(search *s, int wgs)
{
    static const int widths[] = { 192, 128, 112, 96, 80, 64, 48, 32 };
    int64_t steps = moii_ceil_div(s->p->k, 128);
    for (int i = 0; i < (int)(sizeof widths / sizeof *widths); i++)
        for (int split = 1; split <= 4; split *= 2) {
            if (split > 1 && s->p->sm_limit) continue; /* a cluster with parts has one unit */
            int few = widths[i] <= 128 && steps / split >= LONG_CHAIN ? 2 : 1;
            consider(s, (moii_tensor_tile){ wgs, 1, widths[i], 12, 1, split, 1, 0, 0, few, 0 });
        }
    for (int bn = 128; bn >= 64 && wgs == 1; bn -= 32) consider(s, (moii_tensor_tile){ 2, 1, bn, 12, 1, 1, 1, 0, 1, 1, 0 });
}

/* Few rows: what counts is that all multiprocessors read weights all the time. */
static void consider_small(search *s, int wgs)
{
    static const int widths[] = { 192, 128, 96, 64, 48, 32 };
    for (int i = 0; i < (int)(sizeof widths / sizeof *widths); i++)
        for (int split = 1; split <= 4; split *= 2)
            for (int turns = 1; turns <= 2; turns++) {
                if (split > 1 && (s->p->grouping != PRODUCT_DENSE || s->p->sm_limit)) continue; /* a cluster with parts has one unit */
                if (turns > 1 && wgs > 1) continue; /* 640 threads have too few registers */
                if (turns > 1 && (widths[i] > 64 || s->p->scaling == SCALING_NONE || s->p->grouping == PRODUCT_DEPTH)) continue;
                if (s->p->scaling == SCALING_MX && widths[i] > 96) continue; /* two accumulators */
                consider(s, (moii_tensor_tile){ wgs, 1, widths[i], 12, 1, split, turns, 0, 0, 0, 0 });
            }
}

static void consider_middle(search *s, int64_t rows)
{
    for (int i = 0; i < (int)(sizeof middle / sizeof *middle); i++) {
        const moii_tensor_tile *t = &middle[i];
        int64_t blocks = moii_tensor_units(s->p, t, rows) * t->split;
        /* a cluster with parts has one unit; beside small ones one multiprocessor is left over */
        bool fits = rows <= 512 && !s->p->sm_limit && blocks <= s->p->sms - (t->wgs == 1);
        if (t->split == 1 || fits) consider(s, *t);
    }
}

static const moii_tensor_tile thin = { 2, 1, 64, 12, 1, 1, 1, 0, 0, 0, 1 };

/* Whether nothing else is as fast: up to 32 rows of a group, or of one matrix if its columns keep enough multiprocessors busy. */
static bool thin_alone(const moii_tensor_product *p, int64_t rows)
{
    int64_t tiles = moii_ceil_div(p->n, 128), most = 10 * tiles >= 7 * p->sms ? 32 : 10 * tiles >= 4 * p->sms ? 16 : 0;
    return rows <= (moii_tensor_experts(p) ? 32 : most);
}

moii_tensor_tile moii_tensor_choose(const moii_tensor_product *p) { return moii_tensor_consider(p, NULL, NULL); }

moii_tensor_tile moii_tensor_consider(const moii_tensor_product *p, moii_tensor_told told, void *user)
{
    search s = { .p = p, .told = told, .user = user };
    int64_t rows = moii_tensor_group_rows(p);
    if (p->swiglu && !p->mixed) {
        for (int waves = 1; waves <= 2; waves++) consider(&s, (moii_tensor_tile){ 2, waves, 128, 8, 1, 1, 1, 0, 0, 0, 0 });
        return s.best;
    }
    if (p->mixed) {
        consider(&s, moii_mixed_tile(p));
        return s.best;
    }
    if (moii_thin_fits(p)) {
        bool alone = thin_alone(p, rows);
        if (alone || (rows <= 64 && moii_tensor_experts(p))) consider(&s, thin);
        if (alone && s.best.thin) return s.best;
    }
    if (p->grouping == PRODUCT_DENSE && p->scaling == SCALING_SQUARE && rows <= 128) {
        consider_few(&s, rows <= 64 ? 1 : 2); /* alone: its estimate is another one */
        return s.best;
    }
    if (is_middle(p)) {
        consider_middle(&s, rows);
        return s.best;
    }
    if (p->scaling != SCALING_MX && rows > 64) {
        const moii_tensor_tile *list = p->scaling == SCALING_NONE ? large16 : p->scaling == SCALING_VECTOR ? large_vector : large;
        int count = p->scaling == SCALING_VECTOR ? 3 : 5;
        if (moii_tensor_outer(p)) {
            for (int i = 0; i < 2; i++) consider(&s, large_outer[i]);
            count = 2; /* of 192 rows, which two of 128 would leave half empty, or which are one round and not two */
        }
        for (int i = 0; i < count; i++) consider(&s, list[i]);
    }
    if (rows <= 256) consider_small(&s, rows <= 64 ? 1 : 2);
    else if (p->scaling == SCALING_MX) consider_small(&s, 2);
    return s.best;
}
