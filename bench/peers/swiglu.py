#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SwiGLU with quantised results on the GPU, forward and backward, beside torch.compile and the machine's copy, in one process.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/swiglu.py [OUT.csv [ROW [CASES]]]

ROW names the row (swiglu_sm90); empty: the library's choice.  CASES: as quantize.py's.  Bytes: gate_up (and d_act) in BF16 read once, codes and scales
written once.  Every result is checked before it is timed: the plain one against float64, the codes against plain torch on it.
Copy, timing and columns are those of quantize.py."""
import sys

import torch

import moiety as m
import quantize as peer

SHAPES = [(16384, 2048), (131072, 2048)]


def formula(gate_up, d_act):
    """gate_up and d_act in any float type: the forward result, or with d_act the gradient"""
    gate, up = gate_up.chunk(2, dim=1)
    s = 1 / (1 + torch.exp(-gate))
    if d_act is None:
        return gate * s * up
    return torch.cat([d_act * up * s * (1 + gate * (1 - s)), d_act * gate * s], dim=1)


def plain_forward(gate_up):
    return peer.plain_both(formula(gate_up.float(), None).to(torch.bfloat16))


def plain_backward(gate_up, d_act):
    return peer.plain_both(formula(gate_up.float(), d_act.float()).to(torch.bfloat16))


def far_from_float64(s):
    """How many of the plain results are not within a BF16 rounding of float64; in pieces, for memory."""
    wrong = 0
    for part in torch.arange(s.plain.shape[0], device="cuda").split(4096):
        first, last = int(part[0]), int(part[-1]) + 1
        gate_up = s.gate_up[first:last].double()
        want = formula(gate_up, None if s.d_act is None else s.d_act[first:last].double())
        limit = want.abs() * 2.0**-8
        if s.d_act is not None:  # the terms of d_gate cancel near gate = -1.28
            limit[:, : limit.shape[1] // 2] += 2.0**-18 * (s.d_act[first:last].double() * gate_up.chunk(2, dim=1)[1]).abs()
        wrong += int(((s.plain[first:last].double() - want).abs() > limit + 1e-37).sum())
    return wrong


def verify(ctx, name, gate_up, fmt, d_act, row):
    """Plain result and codes of both directions; fmt: mxfp8, tiled scales."""
    s = m.Swiglu(ctx, gate_up, fmt, m.ROWWISE | m.COLWISE, d_act=d_act, row=row, keep=True)
    s()
    torch.cuda.synchronize()
    wrong = far_from_float64(s)
    if wrong:
        print(f"WRONG: {name}: {wrong} plain results are far from float64", flush=True)
    wrong = peer.verify(s.plain, s)
    if wrong:
        print(f"WRONG: {name}: {wrong} codes and scales differ", flush=True)
    alone = m.Swiglu(ctx, gate_up, fmt, m.ROWWISE | m.COLWISE, d_act=d_act, row=row)
    alone()
    torch.cuda.synchronize()
    if not all(torch.equal(a, b) for a, b in zip(s.data + s.scale, alone.data + alone.scale)):
        print(f"WRONG: {name}: other codes without the plain result", flush=True)
    s.free()
    alone.free()


class Bench(peer.Bench):
    def swiglu(self, ctx, name, gate_up, fmt, want, **more):
        if self.skips(name):
            return
        s = m.Swiglu(ctx, gate_up, fmt, want, **more)
        s()
        torch.cuda.synchronize()
        self.report(s.row, name, self.timer(s), s.bytes)
        s.free()

    def compiled(self, name, fn, inputs, cols):
        if self.skips("torch " + name):
            return
        torch._dynamo.reset()
        g = torch.compile(fn, dynamic=False)
        g(*inputs)
        rows = inputs[0].shape[0]
        nbytes = sum(t.numel() * t.element_size() for t in inputs) + 2 * rows * cols + 2 * rows * cols // 32
        self.report("torch.compile", name, self.timer(lambda: g(*inputs)), nbytes)


def main():
    ctx = m.context()
    print(m.lib.moi_ctx_describe(ctx).decode())
    row = (sys.argv[2] if len(sys.argv) > 2 else "swiglu_sm90").encode() or None
    with open(sys.argv[1] if len(sys.argv) > 1 else "/dev/null", "w") as out:
        b = Bench(out, "swiglu", sys.argv[3] if len(sys.argv) > 3 else "*")
        for rows, width in SHAPES:
            gate_up = 2 * torch.randn(rows, 2 * width, device="cuda", dtype=torch.bfloat16)
            d_act = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
            tiled, e5 = m.Format(m.RECIPE_MX32, m.E4M3, layout=m.TILED), m.Format(m.RECIPE_MX32, m.E5M2, layout=m.TILED)
            col = m.Format(m.RECIPE_MX32, m.E4M3, layout=m.COL)
            plain, blk = m.Format(m.RECIPE_MX32, m.E4M3), m.Format(m.RECIPE_BLK128, m.E4M3, layout=m.COL)
            for way, d in (("forward", None), ("backward", d_act)):
                size = f"{way} {rows}x{width}"
                verify(ctx, size, gate_up, tiled, d, row)
                for want, side in ((1, "rows"), (2, "columns"), (3, "both")):
                    b.swiglu(ctx, f"{size} bf16>mxfp8 tiled {side}", gate_up, tiled, want, d_act=d, row=row)
                    b.swiglu(ctx, f"{size} bf16>blk128 {side}", gate_up, blk, want, d_act=d, row=row)
                b.copied(f"{size} as many bytes as both", int(rows * width * (10 + 1 / 8 if way == "backward" else 6 + 1 / 16)))
                b.swiglu(ctx, f"{size} bf16>mxfp8 tiled both rebased to 128 each way", gate_up, tiled, 3, d_act=d, mx=1, col_mx=1)
                b.swiglu(ctx, f"{size} bf16>mx e5m2 tiled both", gate_up, e5, 3, d_act=d, row=row)
                b.swiglu(ctx, f"{size} bf16>mxfp8 row-major both", gate_up, plain, 3, d_act=d, row=row)
                b.swiglu(ctx, f"{size} bf16>mxfp8 tiled both and bf16", gate_up, tiled, 3, d_act=d, row=row, keep=True)
                for groups in (8, 32, 128):
                    cut = {"groups": groups, "offsets": peer.zipf(groups, rows)}
                    b.swiglu(ctx, f"{size} bf16>mxfp8 row-major both {groups} groups", gate_up, plain, 3, d_act=d, row=row, **cut)
                    b.swiglu(ctx, f"{size} bf16>mxfp8 column-major both {groups} groups", gate_up, col, 3, d_act=d, row=row, **cut)
                    b.swiglu(ctx, f"{size} bf16>mxfp8 column-major both {groups} groups rebased to 128 each way", gate_up, col, 3, d_act=d, mx=1,
                             col_mx=1, **cut)
            b.compiled(f"forward {rows}x{width} bf16>mxfp8 row-major both", plain_forward, (gate_up,), width)
            b.compiled(f"backward {rows}x{width} bf16>mxfp8 row-major both", plain_backward, (gate_up, d_act), 2 * width)
            del gate_up, d_act


if __name__ == "__main__":
    main()
