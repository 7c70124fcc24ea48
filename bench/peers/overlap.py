# SPDX-License-Identifier: Apache-2.0
"""Products that start beside their predecessor, and products on fewer multiprocessors.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/overlap.py OUT.csv

chain   24 products with weights of their own, one behind the other in one captured graph: time of one, with and without `overlap`
limit   one product with sm_limit; what it should take is the time on all multiprocessors times all over limit"""
import statistics
import sys

import torch

import moiety as m
import products as p

CHAIN = [(64, 2112, 7168), (64, 4096, 7168), (64, 7168, 2048), (128, 4096, 7168), (128, 7168, 2048)]
LIMIT = (4096, 4096, 7168)
LIMITS = (0, 124, 108, 66)
HEAD = "commit,date,device,driver,sm_clock,mem_clock,table,case,what,median_us,p10_us,p90_us"


def operands(ctx, rows, n, k):
    x, y = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    return p.quantized(ctx, x, p.act()), p.quantized(ctx, y, p.weight())


def timed(call, times, share):
    call()
    torch.cuda.synchronize()
    ev = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for a, b in ev:
        a.record()
        call()
        b.record()
    torch.cuda.synchronize()
    us = sorted(1e3 * a.elapsed_time(b) / share for a, b in ev)
    return statistics.median(us), us[times // 10], us[-1 - times // 10]


def chain(ctx, row, size, overlap):
    rows, n, k = size
    pairs = [operands(ctx, rows, n, k) for _ in range(24)]
    outs = [torch.empty(rows, n, device="cuda", dtype=torch.bfloat16) for _ in pairs]
    plans = [m.Gemm(ctx, a, b, d, row=row, overlap=overlap) for (a, b), d in zip(pairs, outs)]
    for plan in plans:
        plan()
    torch.cuda.synchronize()
    for d in outs:
        p.poison(d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for plan in plans:
            plan()
    graph.replay()
    torch.cuda.synchronize()
    for (a, b), d in zip(pairs, outs):
        p.verify(d, a, b)
    us = timed(graph.replay, 30, len(plans))
    for plan in plans:
        plan.free()
    return us


def limited(ctx, row, limit):
    rows, n, k = LIMIT
    a, b = operands(ctx, rows, n, k)
    d = p.poison(torch.empty(rows, n, device="cuda", dtype=torch.bfloat16))
    plan = m.Gemm(ctx, a, b, d, row=row, sm_limit=limit)
    plan()
    torch.cuda.synchronize()
    p.verify(d, a, b)
    us = timed(plan, 10, 1)
    plan.free()
    return us


def main():
    ctx, start, row = m.context(), m.machine(), (sys.argv[2] if len(sys.argv) > 2 else "").encode() or None
    with open(sys.argv[1], "w") as out:
        print(HEAD, file=out)

        def tell(table, size, what, us):
            case = "x".join(map(str, size))
            print(f"{start},{table},{case},{what},{us[0]:.2f},{us[1]:.2f},{us[2]:.2f}", file=out, flush=True)
            print(f"{table:6} {case:18} {what:14} {us[0]:8.2f} us ({us[1]:.2f} to {us[2]:.2f})", flush=True)
        for size in CHAIN:
            for overlap in (False, True):
                tell("chain", size, "overlap" if overlap else "one by one", chain(ctx, row, size, overlap))
        for limit in LIMITS:
            tell("limit", LIMIT, f"{limit or 'all'} SMs", limited(ctx, row, limit))


if __name__ == "__main__":
    main()
