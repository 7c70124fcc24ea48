/* SPDX-License-Identifier: Apache-2.0
 * bench_moe_decode.c: a few tokens through a MoE layer, bound by reading weights: other experts in each repetition, all of them
 * together several times larger than the last-level cache. */
#include <math.h>
#include <stdlib.h>

#include "decode_layer.h"

typedef struct job {
    moi_plan *plan;
    void *workspace;
    decode_layer layer;
} job;

static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    const decode_layer *l = &j->layer;
    int64_t slots = l->desc.max_tokens * l->desc.top_k;
    for (int64_t i = 0; i < slots; i++) l->ids[i] = (int32_t)((repetition * slots + i) % l->desc.experts);
    moi_moe_decode_args a = { .size = sizeof a, .tokens = l->desc.max_tokens, .x = l->x, .ids = l->ids, .weights = l->weights,
                              .gate_up = bench_operand(&l->gate_up, 0), .down = bench_operand(&l->down, 0), .y = l->y };
    return !moi_moe_decode_run(j->plan, &a, j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}

static double check(bench *b, job *j)
{
    if (!run(j, 1)) return (double)NAN;
    bench_corrupt(b, MOI_F32, j->layer.y);
    return decode_layer_check(b, &j->layer, j->layer.desc.max_tokens);
}

bool bench_moe_decode(bench *b, const shapes *s, int line, const char *row)
{
    static machine_limit limit;
    if (b->ctx != b->host) return bench_moe_decode_cuda(b, s, line, row);
    bench_case c = { .op = "moe_decode", .row = row };
    job j = { .layer.desc = MOI_MOE_DECODE_DESC_INIT };
    moi_moe_decode_desc *d = &j.layer.desc;
    const char *why = decode_layer_shape(d, s, line, c.name);
    if (why) return bench_refuse(b, c.op, c.name, row, why);
    d->row = row;
    if (moi_moe_decode_plan_create(&j.plan, b->ctx, d)) return bench_declined(b, c.op, c.name, row);
    int64_t from = moi_moe_decode_grouped_from(j.plan);
    j.layer.grouped = from > 0 && from <= d->max_tokens;
    c.row = j.layer.grouped ? "grouped products" : moi_plan_row(j.plan);
    bool good = decode_layer_make(b, &j.layer, d->experts);
    j.workspace = bench_alloc(moi_plan_workspace_bytes(j.plan));
    if (!good) bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    if (good) good = bench_within(b, &c, check(b, &j));
    if (good && !machine_limit_read(&limit, moi_ctx_threads(b->ctx))) good = bench_refuse(b, c.op, c.name, c.row, "no memory");
    if (good) {
        int64_t slots = d->max_tokens * d->top_k, read = slots < d->experts ? slots : d->experts;
        c.limit = &limit;
        c.flops = 6.0 * (double)slots * (double)d->hidden * (double)d->width;
        c.bytes = (double)(read * decode_expert_bytes(d) + d->max_tokens * d->hidden * 6);
        c.work = (timing_work){ run, &j };
        good = bench_time(b, &c);
        machine_limit_free(&limit);
    }
    free(j.workspace);
    moi_plan_free(j.plan);
    decode_layer_free(&j.layer);
    return good;
}
