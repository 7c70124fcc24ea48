#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One MoE decode layer: ours with MXFP8, with block-FP8 and with BF16 weights from router logits, vLLM's Triton kernels with block-FP8 and BF16 weights
from ids, in one process.

    MOIETY_LIB=build/gpu/libmoiety.so MOI_PEER_VLLM=FOLDER python3 bench/peers/decode_vllm.py [OUT.csv]

FOLDER holds vLLM's fused_moe.py (vllm_moe.py reads it); its name is the row's.  Weights are the same numbers in both 8-bit formats, x and routing the
same.  vLLM's routing and the sorting of its slots are not timed; each product has the fastest of four configurations, of BF16 five, of more than 128 tokens
four more, which the row names: rows of a tile where they are not 16, its N, its K where that is not 128, warps, stages.  Ours takes grouped products from where
the plan expects them to be faster.  All are timed in turns.  Either side's result is compared with float64 of its own weights before it is timed.  Otherwise as
decode.py, columns too: error_mxfp8_x is for vLLM with FP8, and for grouped products with it, the error of the same layer with x and u rounded in blocks of 128.
DECODE_FORMATS, DECODE_BATCHES: a selection."""
import os

import torch

import decode as d
import moiety as m
import vllm_moe

SHAPES = ("qwen3-30b-a3b", "qwen3-235b-a22b", "e256-i512-h2048")
FORMATS = ("mxfp8", "block-fp8", "bf16")


def weights_of(experts, rows, cols, generator):
    ours, (codes, scales) = d.quantised_as([d.MX, d.SQUARES], experts, rows, cols, generator)
    return ours, (codes.view(torch.float8_e4m3fn), scales.view(torch.float32).view(experts, rows // 128, cols // 128))


def stacks_of(formats, shape, generator):
    """All layers' weights in each of formats, as ours and vLLM's take them."""
    hidden, width, experts, top_k, layers = shape
    stacks = {}
    if {"mxfp8", "block-fp8"} & set(formats):
        both = [(weights_of(experts, 2 * width, hidden, generator), weights_of(experts, hidden, width, generator)) for _ in range(layers)]
        stacks = {f: [(up[i], down[i]) for up, down in both] for i, f in enumerate(("mxfp8", "block-fp8")) if f in formats}
    if "bf16" in formats:
        plain = lambda rows, cols: (d.plain_weights(experts, rows, cols, generator), None)
        stacks["bf16"] = [(plain(2 * width, hidden), plain(hidden, width)) for _ in range(layers)]
    return stacks


def tune(layers):
    """the fastest configuration of each product for all layers; how they are called"""
    best, choice = [], vllm_moe.configs_for(layers[0].fp8, layers[0].tokens)
    for layer in layers:
        layer.place(choice)
    for second in (False, True):
        times = [us[0] for us in d.in_turns([d.captured([lambda l=l: l.product(second, c) for l in layers]) for c in choice], 2)]
        best.append(choice[times.index(min(times))])
    for layer in layers:
        layer.configs = tuple(best)
    m = lambda c: "" if c["BLOCK_SIZE_M"] == 16 else f"m{c['BLOCK_SIZE_M']}"
    k = lambda c: "" if c["BLOCK_SIZE_K"] == 128 else f"k{c['BLOCK_SIZE_K']}"
    return "/".join(f"{m(c)}n{c['BLOCK_SIZE_N']}{k(c)}w{c['num_warps']}s{c['num_stages']}" for c in best)


def bytes_of(routes, shape, each):
    hidden, width, *_ = shape
    return int(distinct_of(routes) * 3 * hidden * width * each)


def distinct_of(routes):
    return sum(r[1].unique().numel() for r in routes) / len(routes)


class Case:
    """What is timed, beside a plain read of as many bytes; errors: what its line says of them."""

    def __init__(self, name, row, calls, read, size, errors):
        self.name, self.row, self.calls, self.size, self.errors = name, row, calls, size, errors
        self.graphs = [d.captured(calls), read.reads(size, len(calls))]


def report(out, start, name, batch, distinct, cases):
    times = d.in_turns([g for c in cases for g in c.graphs])
    for c, us, floor in zip(cases, times[::2], times[1::2]):
        d.report(out, start, c.row, name, c.name, batch, distinct, c.size, us, floor[0], *c.errors)


def ours(xs, routes, stack, shape, read, weights):
    hidden, width, experts, top_k, layers = shape
    fmt, each = d.FORMATS[weights]
    plans = [m.Decode(d.CTX, fmt, x, r[0], w[0], w[1], hidden, width, experts, top_k, row=d.ROW, grouped_from=-1) for x, r, w in zip(xs, routes, stack)]
    m.share_workspace(plans)
    plans[0]()
    want = d.reference(xs[0], *routes[0][1:], *stack[0], hidden, width)
    error, distance = d.errors(plans[0].y, want)
    grouped = 0 < plans[0].grouped_from <= xs[0].shape[0]
    in_blocks = grouped and weights == "block-fp8"
    rounded = d.quantised_error(xs[0], *routes[0][1:], stack[0], hidden, width, want, d.round_128 if in_blocks else d.round_mx)
    assert error < 1e-2 + (1.25 * rounded if in_blocks else 0), f"ours is off by {error}"
    return Case(f"{weights} from logits", "grouped products" if grouped else plans[0].row, plans, read, bytes_of(routes, shape, each), (error, rounded, distance))


def vllm(xs, routes, stack, shape, read, kernel, row, weights):
    hidden, width, experts, top_k, layers = shape
    peers = [vllm_moe.Layer(kernel, x, *r[1:], *w) for x, r, w in zip(xs, routes, stack)]
    for p in peers:
        p.share_room(peers[0])
    for p in peers:
        p()
    chosen = tune(peers)
    peers[0].y.fill_(float("nan"))
    peers[0]()
    want = d.reference(xs[0], *routes[0][1:], *stack[0], hidden, width)
    error, distance = d.errors(peers[0].y, want)
    rounded = d.quantised_error(xs[0], *routes[0][1:], stack[0], hidden, width, want, d.round_128 if peers[0].fp8 else lambda v: v)
    assert error < 1.25 * rounded + (0 if peers[0].fp8 else 1e-2), f"vLLM is off by {error}, its rounding by {rounded}"
    return Case(f"{weights} from ids", f"{row} {chosen}", peers, read, bytes_of(routes, shape, d.FORMATS[weights][1]), (error, rounded, distance))


def main():
    folder = os.environ["MOI_PEER_VLLM"]
    batches = [int(b) for b in os.environ.get("DECODE_BATCHES", "").split(",") if b]
    vllm_moe.compile_all(folder, batches or [max(b) for b in d.BATCHES.values()])  # before CUDA starts here
    kernel = vllm_moe.load(folder)
    start, out, read, names = d.begin(SHAPES)
    for name in names:
        hidden, width, experts, top_k, layers = shape = d.SHAPES[name]
        generator = torch.Generator(device="cuda").manual_seed(1)
        stacks = stacks_of(os.environ.get("DECODE_FORMATS", ",".join(FORMATS)).split(","), shape, generator)
        for batch in batches or d.BATCHES[name]:
            routes = [d.route(batch, experts, top_k, generator) for _ in range(layers)]
            xs = [torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16, generator=generator) for _ in range(layers)]
            mine = [ours(xs, routes, stacks[f], shape, read, f) for f in stacks]
            theirs = [vllm(xs, routes, stacks[f], shape, read, kernel, os.path.basename(os.path.normpath(folder)), f) for f in stacks if f != "mxfp8"]
            report(out, start, name, batch, distinct_of(routes), mine + theirs)
            for case in mine:
                for p in case.calls:
                    p.free()
        del stacks, mine, theirs
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
