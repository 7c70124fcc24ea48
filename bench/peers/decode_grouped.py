#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where grouped products overtake the decode rows: one layer from router logits, by moe_decode plans that take them always, never, and from where the plan
itself expects them to be faster, in one process.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/decode_grouped.py [OUT.csv]

Weights in MXFP8, in FP8 with a scale for each square of 128, in BF16, and in MXFP4.  Beside FP8 grouped products round x and u as the weights are (blocks in
vectors); the decode rows never do.  Otherwise as decode.py, columns too; error_mxfp8_x: the error of the layer whose x and u are rounded.
DECODE_BATCHES, DECODE_SHAPES, DECODE_FORMATS: a selection."""
import os

import torch

import decode as d
import moiety as m

ROUNDING = {"mxfp8": d.round_mx, "block-fp8": d.round_128, "bf16": lambda v: v, "mxfp4": lambda v: v}  # of x and u
# hidden or width no multiples of 128: not block FP8; then few experts, which many tokens share early
SHAPES = {**d.SHAPES, "e128-i736-h2080": (2080, 736, 128, 8, 8), "e128-i2880-h2880": (2880, 2880, 128, 4, 4), "e128-i192-h2048": (2048, 192, 128, 8, 8),
          "e64-i1408-h2048": (2048, 1408, 64, 6, 8), "e16-i6400-h4096": (4096, 6400, 16, 2, 4), "e16-i8192-h5120": (5120, 8192, 16, 1, 4),
          "e8-i14336-h4096": (4096, 14336, 8, 2, 4)}
ROOM = 11 << 30  # bytes of weights at most, of all layers
BATCHES = [int(b) for b in os.environ.get("DECODE_BATCHES", "32,64,128,129,192,256,257,384,512,1024").split(",")]


def weights_of(name, experts, rows, cols, generator):
    if name == "mxfp4":
        return d.fours_weights(experts, rows, cols, generator)
    if name == "bf16":
        return d.plain_weights(experts, rows, cols, generator), None
    return d.quantised(d.FORMATS[name][0], experts, rows, cols, generator)


def main():
    start, out, read, names = d.begin(SHAPES)
    for shape, name in ((s, f) for s in names for f in os.environ.get("DECODE_FORMATS", ",".join(d.FORMATS)).split(",")):
        hidden, width, experts, top_k, layers = SHAPES[shape]
        if (hidden % 128 or width % 128) and name == "block-fp8":
            continue
        fmt, each = d.FORMATS[name]
        layers = min(layers, int(ROOM / (experts * 3 * hidden * width * each)))
        generator = torch.Generator(device="cuda").manual_seed(1)
        stack = [(weights_of(name, experts, 2 * width, hidden, generator), weights_of(name, experts, hidden, width, generator)) for _ in range(layers)]
        for batch in BATCHES:
            routes = [d.route(batch, experts, top_k, generator) for _ in range(layers)]
            xs = [torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16, generator=generator) for _ in range(layers)]
            distinct = sum(r[1].unique().numel() for r in routes) / layers
            size = int(distinct * 3 * hidden * width * each)
            want = d.reference(xs[0], *routes[0][1:], *stack[0], hidden, width)
            rounded = d.quantised_error(xs[0], *routes[0][1:], stack[0], hidden, width, want, ROUNDING[name])
            floor = d.in_turns([read.reads(size, layers)])[0][0]
            for case, grouped_from in (("never", 0), ("always", 1), ("auto", -1)):
                plans = [m.Decode(d.CTX, fmt, x, r[0], *w, hidden, width, experts, top_k, grouped_from=grouped_from) for x, r, w in zip(xs, routes, stack)]
                m.share_workspace(plans)
                plans[0]()
                takes = 0 < plans[0].grouped_from <= batch
                error, distance = d.errors(plans[0].y, want)
                assert error < (1.25 * rounded if takes and name == "block-fp8" else 0) + 1e-2, f"{name} {case}: off by {error}"
                row = "grouped products" if takes else plans[0].row
                d.report(out, start, row, shape, f"{name} grouped {case}", batch, distinct, size, d.graph_time(plans), floor, error, rounded, distance)
                for plan in plans:
                    plan.free()
        del stack
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
