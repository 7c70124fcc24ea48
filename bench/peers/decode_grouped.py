#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where grouped products overtake the decode layer: both with the same MXFP8 weights as they lie, in one process.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/decode_grouped.py [OUT.csv]

The layer of grouped products: x in MXFP8; gate and up of rows that are gathered, with SwiGLU in MXFP8; down, rows times their weights, written where
their slots are; the sum of each token's rows.  Which rows each expert has is found before and not timed; the decode layer, from ids, finds it itself.
Otherwise as decode.py, columns too.  DECODE_BATCHES: others than the default."""
import os

import torch

import decode as d
import moiety as m
import products as p

SHAPES = ("qwen3-30b-a3b", "qwen3-235b-a22b")
BATCHES = [int(b) for b in os.environ.get("DECODE_BATCHES", "64,128,256,512").split(",")]


class Grouped:
    def __init__(self, x, ids, weights, gate_up, down, hidden, width, experts):
        tokens, top_k = ids.shape
        slots, flat = tokens * top_k, ids.flatten()
        slot_of = flat.argsort(stable=True)
        offsets = torch.cat([flat.new_zeros(1, dtype=torch.int64), torch.bincount(flat, minlength=experts).cumsum(0)])
        rows = torch.empty(slots, hidden, device="cuda", dtype=torch.bfloat16)
        self.y = torch.empty(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        first = m.Quantize(d.CTX, x, d.MX, m.ROWWISE)
        up = m.Activated(d.CTX, p.Matrix(d.MX, first.data[0], first.scale[0], tokens, hidden), p.Matrix(d.MX, *gate_up, 2 * width, hidden, experts), slots,
                         offsets, d.MX, rows_of_a=(slot_of // top_k).int())
        last = m.Ggemm(d.CTX, m.GROUP_M, p.Matrix(d.MX, up.data, up.scale, slots, width), p.Matrix(d.MX, *down, hidden, width, experts), p.poison(rows),
                       offsets, rows_of_d=slot_of.int(), row_weight=weights.flatten()[slot_of].contiguous())
        self.parts = first, up, last, m.Combine(d.CTX, rows, self.y, top_k)
        self.row = "+".join(dict.fromkeys(part.row for part in self.parts))

    def __call__(self):
        for part in self.parts:
            part()

    def free(self):
        for part in self.parts:
            part.free()


def main():
    start, out, read, names = d.begin(SHAPES)
    for name in names:
        hidden, width, experts, top_k, layers = d.SHAPES[name]
        generator = torch.Generator(device="cuda").manual_seed(1)
        stack = [(d.quantised(experts, 2 * width, hidden, generator), d.quantised(experts, hidden, width, generator)) for _ in range(layers)]
        for batch in BATCHES:
            routes = [d.route(batch, experts, top_k, generator)[1:] for _ in range(layers)]
            xs = [torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16, generator=generator) for _ in range(layers)]
            distinct = sum(r[0].unique().numel() for r in routes) / layers
            size = int(distinct * 3 * hidden * width * 33 / 32)
            plans = [m.Decode(d.CTX, d.MX, x, r, *w, hidden, width, experts, top_k, row=d.ROW) for x, r, w in zip(xs, routes, stack)]
            grouped = [Grouped(x, *r, *w, hidden, width, experts) for x, r, w in zip(xs, routes, stack)]
            plans[0](), grouped[0]()
            want = d.reference(xs[0], *routes[0], *stack[0], hidden, width)
            rounded = d.quantised_error(xs[0], *routes[0], stack[0], hidden, width, want)
            floor = read(size, layers)[0]
            for case, calls, most in (("from ids", plans, 1e-2), ("grouped products", grouped, 1.25 * rounded)):
                error, distance = d.errors(calls[0].y, want)
                assert error < most, f"{case}: off by {error}"
                d.report(out, start, calls[0].row, name, "mxfp8 " + case, batch, distinct, size, d.graph_time(calls), floor, error, rounded, distance)
            for call in plans + grouped:
                call.free()
        del stack
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
