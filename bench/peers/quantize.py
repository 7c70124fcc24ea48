#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MXFP8 and blk128 quantisation on the GPU beside torch.compile, torchao's Triton kernels (where it is installed) and the machine's copy, in one
process.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/quantize.py [OUT.csv [CASES]]

CASES: patterns of cases' names, comma-separated; unless given, all.  Bytes: the input read once, codes and scales written once.  Copy: a device-to-device
copy of 4 GiB, bytes read and written; cases named "as many bytes" are copies of the size of that case.  Every result is
compared with plain torch before it is timed; inputs are random; before each timed call L2 is filled by reading something else; events
around one call (about 3 us of a short call are theirs), median of 30 with p10 and p90."""
import ctypes as c
import fnmatch
import sys

import torch

import moiety as m

SHAPES = [(131072, 7168), (16384, 7168)]
HEAD = "commit,date,device,driver,sm_clock,mem_clock,op,row,case,median_us,p10_us,p90_us,gb_s,copy_gb_s,share_of_copy"


def blocks(x, dim):
    """codes and scale codes of blocks of 32 along dim, ratio-ceil: the largest over 448, rounded up to a power of two"""
    amax = x.abs().amax(dim, keepdim=True)
    bits = (amax + 0.0).view(torch.int32)
    e = (((bits + (0x7FFFFF - 0x600000)) >> 23) - 8).clamp(min=0)
    inverse = ((254 - e) << 23).view(torch.float32)
    return (x * inverse).to(torch.float8_e4m3fn), e.to(torch.uint8)


def plain_rows(x):
    r, c = x.shape
    q, e = blocks(x.float().view(r, c // 32, 32), 2)
    return q.view(r, c), e.view(r, c // 32)


def plain_cols(x):
    r, c = x.shape
    q, e = blocks(x.float().view(r // 32, 32, c), 1)
    return q.view(r, c).t().contiguous(), e.view(r // 32, c).t().contiguous()


def plain_both(x):
    return plain_rows(x) + plain_cols(x)


def untiled(scale, rows, nb):
    """tiled scales as [rows, nb]"""
    t = scale.view(-(-rows // 128), -(-nb // 4), 32, 4, 4).permute(0, 3, 2, 1, 4)
    return t.reshape(-(-rows // 128) * 128, -1)[:rows, :nb]


def verify(x, q):
    """The first 256 rows (columns) of what was made, the last, and 256 in the middle, against plain torch."""
    rows, cols = x.shape
    wrong = 0
    for part in (slice(0, 256), slice(rows // 2, rows // 2 + 256), slice(rows - 256, rows)):
        if q.data[0] is not None:
            want, e = plain_rows(x[part])
            wrong += int((q.data[0][part] != want.view(torch.uint8)).sum()) + int((untiled(q.scale[0], rows, cols // 32)[part] != e).sum())
    for part in (slice(0, 256), slice(cols // 2, cols // 2 + 256), slice(cols - 256, cols)):
        if q.data[1] is not None:
            want, e = plain_cols(x[:, part].contiguous())
            wrong += int((q.data[1][part, :rows] != want.view(torch.uint8)).sum()) + int((untiled(q.scale[1], cols, rows // 32)[part] != e).sum())
    return wrong


def zipf(groups, rows):
    w = 1.0 / torch.arange(1, groups + 1, dtype=torch.float64)
    cuts = torch.cumsum(w / w.sum() * rows, 0).long()
    cuts[-1] = rows
    return torch.cat([torch.zeros(1, dtype=torch.int64), cuts]).cuda()


class Bench:
    def __init__(self, out, op="quantize", cases="*"):
        self.timer, self.out, self.op, self.start, self.cases = m.Timer(), out, op, m.machine(), cases.split(",")
        a, b = (torch.empty(1 << 30, dtype=torch.float32, device="cuda") for _ in range(2))
        self.copy = 2 * a.numel() * 4 / self.timer(lambda: b.copy_(a))[0] * 1e-3
        print(self.start, f"copy {self.copy:.0f} GB/s", flush=True)
        print(HEAD, file=out)

    def report(self, row, case, us, nbytes):
        rate = nbytes / us[0] * 1e-3
        print(f"{self.start},{self.op},{row},{case},{us[0]:.2f},{us[1]:.2f},{us[2]:.2f},{rate:.0f},{self.copy:.0f},{rate / self.copy:.3f}", file=self.out, flush=True)
        print(f"{row:16} {case:44} {us[0]:9.1f} us {rate:6.0f} GB/s {rate / self.copy:6.3f} of copy", flush=True)

    def skips(self, name):
        return not any(fnmatch.fnmatch(name, c) for c in self.cases)

    def copied(self, name, nbytes):
        """A copy that reads and writes as many bytes in all, timed as everything else is."""
        if self.skips(name):
            return
        a, b = (torch.empty(nbytes // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
        self.report("copy", name, self.timer(lambda: b.copy_(a)), nbytes // 2 * 2)

    def ours(self, ctx, name, x, fmt, want, **more):
        if self.skips(name):
            return
        q = m.Quantize(ctx, x, fmt, want, **more)
        q()
        torch.cuda.synchronize()
        free = not more.get("mx") and not more.get("col_mx")
        if fmt.recipe == m.RECIPE_MX32 and fmt.elem == m.E4M3 and fmt.layout == m.TILED and x.dtype == torch.bfloat16 and free:
            wrong = verify(x, q)
            if wrong:
                print(f"WRONG: {name}: {wrong} codes and scales differ", flush=True)
        self.report(q.row, name, self.timer(q), q.bytes)
        q.free()

    def torch_compile(self, name, x, fn, factor):
        if self.skips("torch " + name):
            return
        torch._dynamo.reset()
        g = torch.compile(fn, dynamic=False)
        g(x)
        self.report("torch.compile", name, self.timer(lambda: g(x)), int(x.numel() * factor))

    def torchao(self, name, x, kernel):
        if self.skips("torchao " + name):
            return
        try:
            self.report("torchao", name, self.timer(lambda: kernel(x, 32, "floor")), int(x.numel() * (3 + 1 / 32)))
        except Exception as e:
            print(f"torchao {name}: {type(e).__name__}: {str(e)[:200]}", flush=True)


def torchao_kernels():
    """torchao's kernels along rows and down columns.  They are kept from cards before Blackwell, whose instruction they round scales up with; with
    scales rounded down they are the same work without it."""
    try:
        import torchao.utils
        torchao.utils.is_sm_at_least_100 = lambda: True
        from torchao.prototype.mx_formats import kernels
        for k in (kernels.to_mxfp8_dim0_kernel, kernels.to_mxfp8_dim1_kernel):  # not all 24: each compiles for seconds
            k.configs = [c for c in k.configs if c.kwargs["COL_TILE_SIZE"] == 128 and c.kwargs["ROW_TILE_SIZE"] <= 256 and c.num_stages == 2]
        return kernels.triton_to_mxfp8_dim0, kernels.triton_to_mxfp8_dim1
    except Exception as e:
        print("no torchao:", type(e).__name__, str(e)[:200])
        return ()


def main():
    ctx, theirs = m.context(), torchao_kernels()
    print(m.lib.moi_ctx_describe(ctx).decode())
    with open(sys.argv[1] if len(sys.argv) > 1 else "/dev/null", "w") as out:
        b = Bench(out, cases=sys.argv[2] if len(sys.argv) > 2 else "*")
        for rows, cols in SHAPES:
            x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
            size = f"{rows}x{cols}"
            mx, e5 = m.Format(m.RECIPE_MX32, m.E4M3, layout=m.TILED), m.Format(m.RECIPE_MX32, m.E5M2, layout=m.TILED)
            plain, col = m.Format(m.RECIPE_MX32, m.E4M3), m.Format(m.RECIPE_MX32, m.E4M3, layout=m.COL)
            blk = m.Format(m.RECIPE_BLK128, m.E4M3, layout=m.COL)
            for want, side in ((1, "rows"), (2, "columns"), (3, "both")):
                b.ours(ctx, f"{size} bf16>mxfp8 tiled {side}", x, mx, want)
                b.ours(ctx, f"{size} bf16>mxfp8 row-major {side}", x, plain, want)
                b.ours(ctx, f"{size} bf16>mx e5m2 tiled {side}", x, e5, want)
                b.ours(ctx, f"{size} bf16>blk128 {side}", x, blk, want)
                if want & m.ROWWISE:
                    b.ours(ctx, f"{size} bf16>mxfp8 tiled {side} rebased to 128", x, mx, want, mx=1)
                if want == m.ROWWISE:
                    for fmt, layout in ((mx, "tiled"), (plain, "row-major"), (col, "column-major")):
                        b.ours(ctx, f"{size} bf16>mxfp8 {layout} {side} rebased to the row", x, fmt, want, mx=2)
                ways = {"mx": 1 if want & m.ROWWISE else 0, "col_mx": 1}
                if want & m.COLWISE:
                    b.ours(ctx, f"{size} bf16>mxfp8 tiled {side} rebased to 128 each way", x, mx, want, **ways)
                b.ours(ctx, f"{size} bf16>mxfp8 column-major {side}", x, col, want)
                if want == m.COLWISE:
                    b.ours(ctx, f"{size} bf16>mxfp8 column-major {side} rebased to the column", x, col, want, col_mx=2)
                if want == 3 and m.lib.moi_colwise_ld(c.byref(mx), rows, 0) != rows:
                    spread = "both columns as moi_colwise_ld says"
                    b.ours(ctx, f"{size} bf16>mxfp8 tiled {spread}", x, mx, want, spread=True)
                    b.ours(ctx, f"{size} bf16>mx e5m2 tiled {spread}", x, e5, want, spread=True)
                    b.ours(ctx, f"{size} bf16>mxfp8 tiled {spread} rebased to 128", x, mx, want, spread=True, mx=1)
                    b.ours(ctx, f"{size} bf16>blk128 {spread}", x, blk, want, spread=True)
                for groups in (8, 32, 128) if want & m.COLWISE else ():
                    for fmt, layout in ((plain, "row-major"), (col, "column-major")):
                        b.ours(ctx, f"{size} bf16>mxfp8 {layout} {side} {groups} groups", x, fmt, want, groups=groups, offsets=zipf(groups, rows))
                    b.ours(ctx, f"{size} bf16>mxfp8 column-major {side} {groups} groups rebased to 128 each way", x, col, want, groups=groups,
                           offsets=zipf(groups, rows), **ways)
                    if want == m.COLWISE:
                        b.ours(ctx, f"{size} bf16>mxfp8 column-major {side} {groups} groups rebased to the group's column", x, col, want, groups=groups,
                               offsets=zipf(groups, rows), col_mx=2)
            for side, fn, factor in (("rows", plain_rows, 3 + 1 / 32), ("columns", plain_cols, 3 + 1 / 32), ("both", plain_both, 4 + 2 / 32)):
                b.torch_compile(f"{size} bf16>mxfp8 row-major {side}", x, fn, factor)
                b.copied(f"{size} as many bytes as {side}", int(x.numel() * factor))
            for side, kernel in zip(("rows", "columns"), theirs):
                b.torchao(f"{size} bf16>mxfp8 row-major {side} scales rounded down", x, kernel)
            if rows < 100000:
                b.ours(ctx, f"{size} f32>mxfp8 tiled both", x.float(), mx, 3)
                b.ours(ctx, f"{size} f32>mxfp8 tiled rows rebased to the row", x.float(), mx, m.ROWWISE, mx=2)
            del x
        for rows in (1, 8, 64):
            name = f"{rows}x7168 bf16>mxfp8 tiled rows one of 20 in a graph"
            if b.skips(name):
                continue
            x = torch.randn(rows, 7168, device="cuda", dtype=torch.bfloat16)
            q = m.Quantize(ctx, x, m.Format(m.RECIPE_MX32, m.E4M3, layout=m.TILED), m.ROWWISE)
            q()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(20):
                    q()
            us = [t / 20 for t in b.timer(graph.replay)]
            b.report(q.row, name, us, q.bytes)


if __name__ == "__main__":
    main()
