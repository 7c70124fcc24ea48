/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_down.cuh: pass 2 of moe_decode_f16_sm90: what its warps do with a job's 16 rows.
 *
 * A warp multiplies a whole job, then the one `workers` jobs further on; the ring holds a multiple of `workers` jobs, so that a slot always is the
 * same warp's.  It fetches u for two lines ahead. */
#ifndef MOII_DECODE_F16_DOWN_CUH
#define MOII_DECODE_F16_DOWN_CUH

#include "decode_f16_ring.cuh"

/* This warp's next line of which it has not sent for u; `left`: jobs of all warps from here on. */
typedef struct ahead { int left, job, line; } ahead;

MOII_FN int job_behind(const moe_decode_f16_sm90_args &a, const lists &l, int job)
{
    for (job += a.workers; job >= l.jobs;) job -= l.jobs;
    return job;
}

MOII_FN void look_ahead(line_u &u, ahead &n, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int lane = (int)as_it_is((unsigned int)w.lane);
    if (n.left <= 0) return;
    load_u(u, a, pair_of(w, a, n.job, lane / 4), n.line, lane);
    if (++n.line < a.lines) return;
    n.line = 0, n.left -= a.workers;
    n.job = job_behind(a, l, n.job);
}

MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, share s)
{
    if (w.warp >= a.workers || w.warp >= s.to) return;
    int slot = w.warp * a.parts, scale_slot = w.warp, turns = 0, job = w.warp % l.jobs;
    unsigned int phase = 0;
    line_u even, odd; /* of the next two lines */
    bool at_odd = false;
    ahead next;
    next.left = s.to - w.warp, next.job = job, next.line = 0;
    grid_wait();
    look_ahead(even, next, w, a, l);
    look_ahead(odd, next, w, a, l);
    for (int left = s.to - w.warp; left > 0; left -= a.workers, turns++) {
        const int groups = groups_of(w, a, job);
        tile_sum sums[GROUPS];
#pragma unroll
        for (int j = 0; j < GROUPS; j++) sums[j].v[0] = sums[j].v[1] = sums[j].v[2] = sums[j].v[3] = 0;
        for (int part = 0; part < a.parts; part++) {
            barrier_wait(filled(w, a, slot + part), phase);
#pragma unroll 1
            for (int i = 0, line = part * a.slot_lines; i < a.slot_lines && line < a.lines; i++, line++) {
                const int lane = (int)as_it_is((unsigned int)w.lane); /* registers are short: nothing of what follows is to be kept */
                const unsigned int from = w.shared + (slot + part) * a.slot_bytes + i * F16_LINE_BYTES + lane_place(lane);
                const unsigned int scale = w.shared + a.at_scales + (scale_slot * F16_ROWS + row_at(lane / 4)) * a.scale_row + line * 4;
                column_source columns;
                if (at_odd) align_u(columns.group[0], odd, lane);
                else align_u(columns.group[0], even, lane);
                if (GROUPS > 1 && groups > 1) {
                    line_u more;
                    load_u(more, a, pair_of(w, a, job, 8 + lane / 4), line, lane);
                    align_u(columns.group[GROUPS - 1], more, lane);
                }
                add_line(sums, from, shared_word(scale), shared_word(scale + 8 * a.scale_row), groups, columns);
                if (at_odd) look_ahead(odd, next, w, a, l);
                else look_ahead(even, next, w, a, l);
                at_odd = !at_odd;
            }
            __syncwarp();
            if (w.lane == 0) barrier_arrive(freed(w, a, slot + part));
        }
        put_sums(w, a, sums, 2 * w.warp + (turns & 1), 0, turns >> 1, groups);
        job = job_behind(a, l, job);
        slot += a.workers * a.parts, scale_slot += a.workers;
        if (slot >= a.ring) slot -= a.ring, phase ^= 1u;
        if (scale_slot >= a.scale_slots) scale_slot -= a.scale_slots;
    }
}

/* y of the tile's 16 rows for every token, job after job. */
MOII_FN void add_outputs(float *y, const lists &l, const moe_decode_f16_sm90_args &a, int pair, float weight, float top, float bottom)
{
    if (pair < 0) return;
    float *to = y + token_of(a, pair) * F16_ROWS;
    const float old_top = to[0], old_bottom = to[8];
    to[0] = __fmaf_rn(weight, top, old_top), to[8] = __fmaf_rn(weight, bottom, old_bottom);
}

/* They then begin anew. */
MOII_FN void put_outputs(const worker &w, const moe_decode_f16_sm90_args &a, int tile)
{
    float *y = (float *)(w.memory + a.at_y);
#pragma unroll 1
    for (int i = w.lane; i < a.tokens * F16_ROWS; i += 32) {
        const long long to = (long long)(i / F16_ROWS) * a.hidden + tile * F16_ROWS + i % F16_ROWS;
        if (a.out_f32) ((float *)a.out)[to] = y[i];
        else ((unsigned short *)a.out)[to] = (unsigned short)moii_bf16_encode(y[i]);
        y[i] = 0;
    }
    __syncwarp();
}

MOII_FN void begin_outputs(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
#pragma unroll 1
    for (int i = w.lane; i < a.tokens * F16_ROWS; i += 32) ((float *)(w.memory + a.at_y))[i] = 0;
    grid_wait();
#pragma unroll 1
    for (int i = w.lane; a.logits && i < l.pairs; i += 32) l.weights[i] = __ldcg(a.weights + i);
    __syncwarp();
}

MOII_FN void add_up(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, share s)
{
    float *y = (float *)(w.memory + a.at_y) + row_at(w.lane / 4);
    place p = first_place(a, s);
    int warp = 0, turns = 0;
    begin_outputs(w, a, l);
    for (int n = 0; n < s.to; n++) {
        const int groups = groups_of(w, a, p.job), buffer = 2 * warp + (turns & 1), tile = p.tile;
#pragma unroll 1
        for (int j = 0; j < groups; j++) {
            const int column = 8 * j + w.lane % 4 * 2, even = pair_of(w, a, p.job, column), odd = pair_of(w, a, p.job, column + 1);
            const float w_even = even < 0 ? 0 : l.weights[even], w_odd = odd < 0 ? 0 : l.weights[odd];
            if (!j) barrier_wait(summed(w, a, buffer), turns >> 1 & 1);
            const tile_sum sum = whole_sum(w, a, buffer, j);
            if (j == groups - 1) free_sums(w, a, buffer);
            add_outputs(y, l, a, even, w_even, sum.v[0], sum.v[2]);
            add_outputs(y, l, a, odd, w_odd, sum.v[1], sum.v[3]);
            __syncwarp();
        }
        if (++warp == a.workers) warp = 0, turns++;
        next_place(p, l, a);
        if (p.tile != tile) put_outputs(w, a, tile);
    }
    if (!s.to) /* no expert for anyone */
        for (int tile = (int)blockIdx.x; tile < a.tiles; tile += (int)gridDim.x) put_outputs(w, a, tile);
}

#endif
