#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One MoE decode layer with MXFP8 and block-FP8 weights on the GPU, beside a plain read of as many bytes, in one process.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/decode.py [OUT.csv]

CUDA graphs of several layers, each with weights and routing of its own, so that nothing of a layer is left in L2, and one workspace.  Time: a graph's replay
between two events, divided by the layers; median of 40 with p10 and p90, in five turns with what it is compared with; once more behind pauses ("cool").
Bytes: the chosen experts' three matrices with their scales, each expert once.  The plain read is stream.cu over as many bytes, in graphs of as many reads; the
best of its launch shapes counts.
DECODE_ROW names a row other than the default, DECODE_SHAPES and DECODE_FORMATS a selection."""
import ctypes
import os
import sys

import torch

import moiety as m
from reader import Reader, captured, graph_time, in_turns

SHAPES = {"qwen3-30b-a3b": (2048, 768, 128, 8, 8), "qwen3-235b-a22b": (4096, 1536, 128, 8, 4), "e256-i512-h2048": (2048, 512, 256, 8, 8)}
BATCHES = {"qwen3-30b-a3b": [1, 2, 4, 8, 16, 32, 64, 128], "qwen3-235b-a22b": [1, 2, 4, 8, 16, 32, 64, 128], "e256-i512-h2048": [1, 2, 4, 8]}
HEAD = "commit,date,device,driver,sm_clock,mem_clock,op,row,case,batch,distinct,bytes,median_us,p10_us,p90_us,gb_s,read_us,share_of_read,error,error_mxfp8_x,one_minus_cosine"
MX, SQUARES = m.Format(m.RECIPE_MX32, m.E4M3), m.Format(m.RECIPE_BLK128, m.E4M3, m.SQUARE)
PLAIN, FOURS = m.Format(m.RECIPE_BF16, m.BF16), m.Format(m.RECIPE_MX32, m.E2M1)
# and bytes of a code with its part of a scale
FORMATS = {"mxfp8": (MX, 33 / 32), "block-fp8": (SQUARES, 1 + 4 / 128 ** 2), "bf16": (PLAIN, 2), "mxfp4": (FOURS, 17 / 32)}
ROW = os.environ["DECODE_ROW"].encode() if "DECODE_ROW" in os.environ else None


def quantised_as(formats, experts, rows, cols, generator):
    """The same random weights in each of formats: codes and scales."""
    codes = [torch.empty(experts, rows, cols, dtype=torch.uint8, device="cuda") for _ in formats]
    scales = [torch.empty(experts, m.lib.moi_scale_bytes(ctypes.byref(f), rows, cols, 0), dtype=torch.uint8, device="cuda") for f in formats]
    step = min(16, experts)
    for e in range(0, experts, step):
        x = torch.randn(min(step, experts - e) * rows, cols, device="cuda", dtype=torch.bfloat16, generator=generator) * 0.02
        for f, c, s in zip(formats, codes, scales):
            q = m.Quantize(CTX, x, f, m.ROWWISE)
            q()
            c[e:e + step] = q.data[0].view(-1, rows, cols)
            s[e:e + step] = q.scale[0].view(x.shape[0] // rows, -1)
            torch.cuda.synchronize()
            q.free()
    return list(zip(codes, scales))


def plain_weights(experts, rows, cols, generator):
    return torch.randn(experts, rows, cols, device="cuda", dtype=torch.bfloat16, generator=generator) * 0.02


def fours_weights(experts, rows, cols, generator):
    """Random codes of E2M1, and scales from 2^-8 to 2^-6."""
    draw = lambda low, high, *shape: torch.randint(low, high, shape, device="cuda", dtype=torch.uint8, generator=generator)
    return draw(0, 256, experts, rows, cols // 2), draw(119, 122, experts, rows * cols // 32)


def quantised(fmt, experts, rows, cols, generator):
    codes, scales = quantised_as([fmt], experts, rows, cols, generator)[0]
    return codes, scales.view(torch.float32).view(experts, rows // 128, cols // 128) if fmt is SQUARES else scales


def dequantised(w, e, rows, cols):
    """Expert e's matrix in float64; scales F32 are those of squares of 128, BF16 has none, and half as many bytes as columns are codes of E2M1."""
    if w[1] is None:
        return w[0][e].double()
    if w[0].shape[-1] * 2 == cols:
        value = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64, device="cuda")
        codes = torch.stack((value[(w[0][e] & 15).long()], value[(w[0][e] >> 4).long()]), -1)
        return (codes.view(rows, cols // 32, 32) * torch.exp2(w[1][e].double().view(rows, cols // 32, 1) - 127)).view(rows, cols)
    codes, scales = w[0][e].view(torch.float8_e4m3fn).to(torch.float64), w[1][e]
    if scales.dtype == torch.float32:
        return (codes.view(rows // 128, 128, cols // 128, 128) * scales.to(torch.float64).view(rows // 128, 1, cols // 128, 1)).view(rows, cols)
    return (codes.view(rows, cols // 32, 32) * torch.exp2(scales.to(torch.float64).view(rows, cols // 32, 1) - 127)).view(rows, cols)


def reference(x, ids, weights, gate_up, down, hidden, width, rounding=lambda v: v):
    y = torch.zeros(x.shape[0], hidden, dtype=torch.float64, device="cuda")
    for e in ids.unique().tolist():
        a, b = dequantised(gate_up, e, 2 * width, hidden), dequantised(down, e, hidden, width)
        t, s = (ids == e).nonzero(as_tuple=True)
        g, u = (rounding(x[t].double()) @ a.T).split(width, 1)
        y.index_add_(0, t, weights[t, s].double()[:, None] * (rounding(torch.nn.functional.silu(g) * u) @ b.T))
    return y


def round_128(v):
    """Rounded to FP8 in blocks of 128 and back."""
    b = v.view(v.shape[0], -1, 128)
    s = b.abs().amax(2, keepdim=True).clamp(min=1e-10) / 448
    return ((b / s).float().to(torch.float8_e4m3fn).double() * s).view(v.shape)


def round_mx(v):
    """Rounded to MXFP8 and back."""
    b = v.view(v.shape[0], -1, 32)
    s = torch.exp2(torch.ceil(torch.log2(b.abs().amax(2, keepdim=True).clamp(min=1e-30) / 448)))
    return ((b / s).float().to(torch.float8_e4m3fn).double() * s).view(v.shape)


def quantised_error(x, ids, weights, layer, hidden, width, want, rounding=round_mx):
    """The error of the same layer whose activations are rounded, to MXFP8 unless said otherwise, before each product, all else exact."""
    got = reference(x, ids, weights, layer[0], layer[1], hidden, width, rounding)
    return float((got - want).norm() / want.norm())


def route(tokens, experts, top_k, generator):
    logits = torch.randn(tokens, experts, device="cuda", generator=generator)
    w, ids = torch.softmax(logits, 1).topk(top_k)
    return logits, ids.int().contiguous(), (w / w.sum(1, keepdim=True)).contiguous()


def errors(y, want):
    """relative error, and the worst token's 1 - cosine"""
    return float((y.double() - want).norm() / want.norm()), 1 - float(torch.nn.functional.cosine_similarity(y.double(), want, dim=1).min())


def report(out, start, row, name, case, batch, distinct, size, us, floor, error, rounded, distance):
    print(f"{start},moe_decode,{row},{name} {case},{batch},{distinct:.2f},{size},{us[0]:.2f},{us[1]:.2f},{us[2]:.2f},"
          f"{size / us[0] * 1e-3:.0f},{floor:.2f},{floor / us[0]:.3f},{error:.2e},{rounded:.2e},{distance:.1e}", file=out, flush=True)
    print(f"{name:16} {case:21} {batch:4} tokens {distinct:6.1f} experts {us[0]:8.2f} us {size / us[0] * 1e-3:5.0f} GB/s; read {floor:7.2f} us: "
          f"{floor / us[0]:.3f}  error {error:.2e}, with quantised x {rounded:.2e}, 1 - cosine {distance:.1e}", flush=True)


def begin(shapes):
    """The context; a line's first columns, the CSV, the plain read, the names of the shapes to go through."""
    global CTX
    CTX = m.context()
    start = m.machine()
    out = open(sys.argv[1] if len(sys.argv) > 1 else "/dev/null", "w")
    print(HEAD, file=out)
    return start, out, Reader(11 << 30), os.environ.get("DECODE_SHAPES", ",".join(shapes)).split(",")


def main():
    start, out, read, names = begin(SHAPES)
    for name, weights in ((n, f) for n in names for f in os.environ.get("DECODE_FORMATS", "mxfp8,block-fp8").split(",")):
        hidden, width, experts, top_k, layers = SHAPES[name]
        fmt, each = FORMATS[weights]
        generator = torch.Generator(device="cuda").manual_seed(1)
        stack = [(quantised(fmt, experts, 2 * width, hidden, generator), quantised(fmt, experts, hidden, width, generator)) for _ in range(layers)]
        for batch in BATCHES[name]:
            routes = [route(batch, experts, top_k, generator) for _ in range(layers)]
            xs = [torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16, generator=generator) for _ in range(layers)]
            distinct = sum(r[1].unique().numel() for r in routes) / layers
            size = int(distinct * 3 * hidden * width * each)
            routers = [m.Route(CTX, r[0], top_k) for r in routes]
            plans = [m.Decode(CTX, fmt, x, (r.ids, r.weights), w[0], w[1], hidden, width, experts, top_k, row=ROW) for x, r, w in zip(xs, routers, stack)]
            whole = [m.Decode(CTX, fmt, x, r[0], w[0], w[1], hidden, width, experts, top_k, row=ROW) for x, r, w in zip(xs, routes, stack)]
            m.share_workspace(plans + whole)
            for r in routers:
                r()
            torch.cuda.synchronize()
            assert all(torch.equal(r.ids, q[1]) for r, q in zip(routers, routes)), "routing differs from torch's"
            want = reference(xs[0], routes[0][1], routes[0][2], stack[0][0], stack[0][1], hidden, width)
            for p in plans + whole:
                p()
            torch.cuda.synchronize()
            assert all(torch.equal(p.y, q.y) for p, q in zip(plans, whole)), "from logits: other bits"
            error, distance = errors(plans[0].y, want)
            peer = quantised_error(xs[0], routes[0][1], routes[0][2], stack[0], hidden, width, want)
            graphs = [read.reads(size, layers), captured(plans), captured(whole)]
            for cool in (False, True):
                floor, *times = in_turns(graphs, cool=cool)
                for case, us in zip(("from ids", "from logits"), times):
                    case = f"{weights} {case}{' cool' * cool}"
                    report(out, start, plans[0].row, name, case, batch, distinct, size, us, floor[0], error, peer, distance)
            for p in plans + whole + routers:
                p.free()
        del stack
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
