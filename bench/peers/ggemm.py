#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grouped products beside DeepGEMM and torch, in one process, on the same numbers.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/ggemm.py OUT.csv --tables contig,kgroup --protocols cool

Tables  contig   rows cut into equal groups, blk128 (1x128 by 128x128), D BF16   DeepGEMM, torch row-wise FP8, our dense product
        zipf     the same with 8, 32, 128 groups of Zipf's sizes; DeepGEMM gets each group padded to 128 rows
        models   contig and zipf with experts of public models                   the same
        gather   as contig; rows_of_a names the rows, each token's in 8 groups       our product of rows copied before
        scatter  as contig; rows times weights, written where a list says           our plain product alone, and with torch's lines for the rest
        swiglu   as contig, gate and up; SwiGLU of it in 8 bits                      our plain product and our SwiGLU, one after the other
        masked   few rows of 4096 that each group's matrix has (MOI_GROUP_MASKED); DeepGEMM too
        vmasked  masked with 1x128 scales of B, too, 64 to 1024 rows
        kgroup   D_g FP32 added to, reduction cut into equal groups (1x128 both)  DeepGEMM, torch BF16
        mx       contig and zipf's shapes in MXFP8                               torch._grouped_mm BF16, DeepGEMM BF16
        few      1x32 scales, from 8 to 512 rows of each group                   torch._grouped_mm BF16, a plain read of as many bytes
        alone    the same with a in BF16: weights alone in 8 bits                the same
        bf16     contig in BF16                                                  torch._grouped_mm, DeepGEMM BF16
        bf16k    kgroup in BF16, operands as they lie (reduction outermost)      torch._grouped_mm
        mxk      kgroup in MXFP8, exact                                          torch._grouped_mm
        mx128    mx, the scales of each 128 equal                                as mx, and our exact product of the same
        mxk128   mxk, the scales of each 128 equal                               torch._grouped_mm, DeepGEMM (FP8, its own scales), our exact product
        mxrow    mx, one scale a row                                             torch._grouped_mm, DeepGEMM (FP8, its own scales), our dense product
        mxkrow   mxk, one scale for a group's part of a row                      torch._grouped_mm, DeepGEMM (FP8, its own scales)
        large    contig, 131072 rows in 8, 32, 128 groups, equal and Zipf's      DeepGEMM, our dense product
        largerow the same in MXFP8, one scale a row                              our dense product
Cases (zipf's begin with that word): GROUPSxROWSxNxK with the rows of one group (contig, masked, vmasked), of all groups (zipf); kgroup: GROUPSxMxNxK, K of one group.
Otherwise as gemm.py; operations and bytes are those of the rows that are there."""
import torch

import moiety as m
import products as p
import protocols
from quantize import zipf
from reader import Reader

CONTIG = [(4, 8192, 4096, 7168), (4, 8192, 7168, 2048), (8, 4096, 4096, 7168), (8, 4096, 7168, 2048)]
MANY = [(g, 32768 // g, n, k) for g in (32, 128) for n, k in ((4096, 7168), (7168, 2048))]
ZIPF = [(g, 32768, n, k) for g in (8, 32, 128) for n, k in ((4096, 7168), (7168, 2048))]
LARGE = [(g, 131072 // g, n, k) for g in (8, 32, 128) for n, k in ((4096, 7168), (7168, 2048))]
LARGE_ZIPF = [(g, 131072, n, k) for g in (8, 32, 128) for n, k in ((4096, 7168), (7168, 2048))]
MODELS = [(128, rows, n, k) for n, k in ((1536, 2048), (2048, 768), (3072, 4096), (4096, 1536)) for rows in (128, 256, 512)] \
    + [(64, rows, n, k) for n, k in ((2048, 2048), (2048, 1024)) for rows in (256, 1024)] + [(8, 256, 28672, 4096), (8, 1024, 4096, 14336)]
MODELS_ZIPF = [(128, 16384, 1536, 2048), (128, 65536, 1536, 2048), (128, 32768, 2048, 768), (128, 65536, 2048, 768)]
KGROUP = [(4, 4096, 7168, 8192), (4, 7168, 2048, 8192), (8, 4096, 7168, 4096), (8, 7168, 2048, 4096)]
FEW = [(128, rows, 1536, 2048) for rows in (8, 32, 64, 128, 512)] + [(8, rows, 4096, 7168) for rows in (8, 64, 128, 512)] + [(128, 8, 3072, 4096)]
TABLES = {
    "contig": CONTIG + MANY,
    "zipf": ZIPF,
    "models": MODELS + MODELS_ZIPF,
    "gather": [(g, 32768 // g, n, k) for g in (8, 32, 128) for n, k in ((4096, 7168), (7168, 2048))],
    "scatter": [(g, 32768 // g, 7168, 2048) for g in (8, 32, 128)],
    "swiglu": [(g, 32768 // g, 4096, 7168) for g in (8, 32)] + [(128, 256, 1536, 2048)],
    "masked": [(g, r, n, k) for g, r in ((1, 1024), (2, 512), (4, 256)) for n, k in ((4096, 7168), (7168, 2048))],
    "vmasked": [(g, r, n, k) for g, r in ((8, 64), (8, 128), (8, 512), (8, 1024), (32, 192)) for n, k in ((4096, 7168), (7168, 2048))],
    "kgroup": KGROUP + [(32, 4096, 7168, 4096), (32, 7168, 2048, 4096), (128, 4096, 1536, 1024), (128, 3072, 4096, 1024)],
    "mx": CONTIG + ZIPF,
    "few": FEW,
    "alone": FEW,
    "bf16": CONTIG + ZIPF,
    "bf16k": KGROUP + [(32, 7168, 2048, 4096), (128, 4096, 1536, 1024)],
    "mxk": KGROUP + [(32, 7168, 2048, 4096), (128, 4096, 1536, 1024)],
    "mx128": CONTIG + ZIPF,
    "mxk128": KGROUP + [(32, 7168, 2048, 4096), (128, 4096, 1536, 1024)],
    "mxrow": CONTIG + MANY + ZIPF,
    "mxkrow": KGROUP + [(32, 4096, 7168, 4096), (32, 7168, 2048, 4096), (128, 4096, 1536, 1024), (128, 3072, 4096, 1024)],
    "large": LARGE + LARGE_ZIPF,
    "largerow": LARGE + LARGE_ZIPF,
}
TOP_K = 8
BF16, F32 = torch.bfloat16, torch.float32
MASKED_ROWS = 4096


def even(groups, rows):
    return torch.arange(groups + 1, dtype=torch.int64).mul(rows).cuda()


class Grouped(protocols.Contest):
    """rows cut into groups, each with its own B"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        self.groups, rows, self.n, self.k = size
        ragged = is_zipf(size)
        self.offsets = zipf(self.groups, rows) if ragged else even(self.groups, rows)
        self.cuts = self.offsets.tolist()
        self.rows = self.cuts[-1]
        self.x = torch.randn(self.rows, self.k, device="cuda", dtype=BF16)
        self.y = torch.randn(self.groups, self.n, self.k, device="cuda", dtype=BF16)
        if table == "swiglu":  # gates about as large as those of models: beyond 86 SwiGLU takes longer
            self.y *= 2.0 / self.k ** 0.5
        act, mx = p.act(protocols.LAYOUT[opt.layout]), p.mx(protocols.LAYOUT[opt.mx_layout])
        plain = p.PLAIN_BF16, p.PLAIN_BF16
        self.small = table in ("few", "alone")
        self.mx, self.others = {"mx128": 1, "mxrow": 2, "largerow": 2}.get(table, 0), table in ("mx", "mx128", "bf16")
        a, b = (mx, mx) if self.mx or table in ("mx", "few") else (p.PLAIN_BF16, mx) if table == "alone" else plain if table == "bf16" else (act, p.weight())
        self.a, self.b = p.quantized(ctx, self.x, a, mx=self.mx), p.quantized(ctx, self.y, b, mx=self.mx)
        self.blk = [p.quantized(ctx, t, f) for t, f in ((self.x, act), (self.y, p.weight()))] if table == "mxrow" else (self.a, self.b)
        if table.startswith("large"): # what is left of the card's memory is the peers'
            self.x = self.y = None
        self.d = torch.empty(self.rows, self.n, device="cuda", dtype=BF16)
        self.flop, self.bytes = 2.0 * self.rows * self.n * self.k, self.a.bytes + self.b.bytes + 2 * self.d.numel()

    def check(self, get=None, plain=False, codes=False, of=None):
        """get(g): group g's rows of the result"""
        get = get or (lambda g: self.d[self.cuts[g]:self.cuts[g + 1]])
        a, b = (p.Matrix(p.PLAIN_BF16, t.view(-1, self.k), None, t.shape[-2], self.k, n) for t, n in ((self.x, 1), (self.y, self.groups))) \
            if plain else of or (self.a, self.b)
        parts = [(g, o, e) for g, (o, e) in enumerate(zip(self.cuts, self.cuts[1:])) if e > o]
        return lambda: max(p.verify(get(g), a, b, (o, e), g, codes) for g, o, e in parts)

    def ours(self, row, mx=None):
        return m.Ggemm(self.ctx, m.GROUP_M, self.a, self.b, p.poison(self.d), self.offsets, row=row, mx=self.mx if mx is None else mx), self.check()

    def dense(self):
        """one product of the same size, our own"""
        b = self.b.part(0)
        row = b"gemm_sm90" if "ggemm_sm90" in self.opt.rows else None
        return m.Gemm(self.ctx, self.a, b, p.poison(self.d), row=row, mx=self.mx), lambda: p.verify(self.d, self.a, b)

    def padded(self):
        """for each row of the padded matrix its row here (or -1) and its group (or -1); where each group begins"""
        source, owner, start = [], [], []
        for g, (o, e) in enumerate(zip(self.cuts, self.cuts[1:])):
            pad = -(e - o) % 128
            start.append(sum(t.numel() for t in source))
            source += [torch.arange(o, e), torch.full((pad,), -1)]
            owner += [torch.full((e - o,), g), torch.full((pad,), -1)]
        return torch.cat(source).cuda(), torch.cat(owner).int().cuda(), start

    def scattered(self, t, source):
        """rows of t (of any type), zero where there is none"""
        out = t.view(torch.uint8) if t.dtype == torch.float8_e4m3fn else t
        out = torch.where((source >= 0)[:, None], out[source.clamp(min=0)], torch.zeros((), dtype=out.dtype, device=out.device))
        return out.view(t.dtype)

    def deepgemm(self):
        source, owner, start = self.padded()
        d = p.poison(torch.empty(source.numel(), self.n, device="cuda", dtype=BF16))
        check = self.check(lambda g: d[start[g]:start[g] + self.cuts[g + 1] - self.cuts[g]], plain=self.table in ("mx", "mx128"), of=self.blk)
        if self.others:
            a = self.scattered(self.x, source)
            return lambda: self.dg.m_grouped_bf16_gemm_nt_contiguous(a, self.y, d, owner), check
        a = self.scattered(self.blk[0].codes(), source), p.mn_major(self.scattered(self.blk[0].scales(), source))
        b = p.peer_weight(self.blk[1])
        b = b if self.groups > 1 else (b[0][None], b[1][None])
        return lambda: self.dg.m_grouped_fp8_gemm_nt_contiguous(a, b, d, owner, disable_ue8m0_cast=True), check

    def keeps(self, call, **how):
        last = [None]

        def run():
            last[0] = call()
        return run, self.check(lambda g: last[0][self.cuts[g]:self.cuts[g + 1]], **how) if how else None

    def torch_bf16(self):
        ends, b = self.offsets[1:].int(), self.y.transpose(-2, -1)
        return self.keeps(lambda: torch._grouped_mm(self.x, b, offs=ends), plain=True)

    def torch_row_wise(self):
        """other scales, so only its time counts"""
        ends, a, b = self.offsets[1:].int(), self.a.codes(), self.b.codes().view(self.groups, self.n, self.k).transpose(-2, -1)
        sa, sb = torch.rand(self.rows, device="cuda") + 0.5, torch.rand(self.groups, self.n, device="cuda") + 0.5
        return self.keeps(lambda: torch._scaled_grouped_mm(a, b, sa, sb, offs=ends, out_dtype=BF16, use_fast_accum=True))

    def plain_read(self):
        return Reader(self.bytes).call(self.bytes, m.Timer()), None

    def peers(self):
        if self.small:
            return [("torch-bf16", self.torch_bf16), ("plain-read", self.plain_read)]
        if self.table.startswith("large"):
            return [("dense", self.dense)] if self.mx else [("dense", self.dense), ("deepgemm", self.deepgemm)]
        if self.mx == 2:
            return [("dense", self.dense), ("deepgemm", self.deepgemm), ("torch-bf16", self.torch_bf16)]
        if self.others:
            exact = [("exact", lambda: self.ours(None, mx=0))] if self.mx else []
            return [("dense", self.dense), ("torch-bf16", self.torch_bf16), ("deepgemm-bf16", self.deepgemm)] + exact
        return [("dense", self.dense), ("deepgemm", self.deepgemm), ("torch-row-wise", self.torch_row_wise)]


class Gathered(Grouped):
    """each token goes to TOP_K groups; the product takes its rows where they lie"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        tokens = self.rows // TOP_K
        order = torch.rand(self.rows, device="cuda").argsort() // TOP_K
        self.index = order.int().contiguous()
        self.copied, self.x = self.a, self.x[:tokens].contiguous()
        self.a = p.quantized(ctx, self.x, self.copied.fmt)
        self.bytes = self.a.bytes + self.b.bytes + 2 * self.d.numel()

    def check(self):
        order = self.index.long()
        rows = p.Matrix(self.a.fmt, self.a.data.view(-1, self.k)[order], self.regathered(order), self.rows, self.k)
        parts = [(g, o, e) for g, (o, e) in enumerate(zip(self.cuts, self.cuts[1:])) if e > o]
        return lambda: max(p.verify(self.d[o:e], rows, self.b, (o, e), g) for g, o, e in parts)

    def regathered(self, order):
        s = self.a.scales()[order]
        return (s.t() if self.a.fmt.layout == m.COL else s).contiguous().view(torch.uint8).view(-1)

    def ours(self, row):
        return m.Ggemm(self.ctx, m.GROUP_M, self.a, self.b, p.poison(self.d), self.offsets, row=row, rows_of_a=self.index), self.check()

    def in_order(self, row):
        """the same product of rows that somebody copied before, which is not timed"""
        return m.Ggemm(self.ctx, m.GROUP_M, self.copied, self.b, p.poison(self.d), self.offsets, row=row), None

    def peers(self):
        rows = [r.encode() or None for r in self.opt.rows.split(",")]
        return [("in-order", lambda: self.in_order(rows[0]))]


class Scattered(Grouped):
    """every row of the product has a weight and a place"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        self.place = torch.randperm(self.rows, device="cuda").int()
        self.weight = torch.rand(self.rows, device="cuda") + 0.5
        self.plain = torch.empty_like(self.d)
        self.y = [torch.empty(self.rows // TOP_K, self.n, device="cuda", dtype=BF16) for _ in range(2)]

    def weighted(self, g):
        """group g's rows, each over its weight"""
        rows = slice(self.cuts[g], self.cuts[g + 1])
        return self.d[self.place[rows].long()].double() / self.weight[rows].double()[:, None]

    def ours(self, row):
        return m.Ggemm(self.ctx, m.GROUP_M, self.a, self.b, p.poison(self.d), self.offsets, row=row, rows_of_d=self.place,
                       row_weight=self.weight), self.check(self.weighted)

    def in_order(self, row):
        """the same product alone"""
        return m.Ggemm(self.ctx, m.GROUP_M, self.a, self.b, self.plain, self.offsets, row=row), None

    def then_torch(self, row):
        """and weights and places by torch, which rounds once more"""
        plan, at, w = self.in_order(row)[0], self.place.long(), self.weight[:, None]

        def run():
            plan()
            self.d[at] = (self.plain * w).to(BF16)
        return run, None

    def combined(self, row):
        """behind it, each token's rows are added as they lie"""
        plan, combine = self.ours(row)[0], m.Combine(self.ctx, self.d, self.y[0], TOP_K)

        def run():
            plan()
            combine()
        return run, None

    def then_combine(self, row):
        """the same product alone, and each token's rows are looked up, weighted and added"""
        plan = self.in_order(row)[0]
        row_of = torch.empty_like(self.place)
        row_of[self.place.long()] = torch.arange(self.rows, device="cuda").int()
        combine = m.Combine(self.ctx, self.plain, self.y[1], TOP_K, row_of, self.weight[row_of.long()].contiguous())

        def run():
            plan()
            combine()

        def check():
            """what both ways give: here a sum of rounded rows is rounded, there rows are also rounded behind their weights"""
            self.combined(row)[0]()
            run()
            torch.cuda.synchronize()
            a, b = (t.double() for t in self.y)
            error = float((a - b).norm() / b.norm())
            if not error < 2 ** -7:
                raise p.Wrong(f"sums differ by {error}")
            return error
        return run, check

    def peers(self):
        row = self.opt.rows.split(",")[0].encode() or None
        return [("in-order", lambda: self.in_order(row)), ("combined", lambda: self.combined(row)), ("then-combine", lambda: self.then_combine(row)),
                ("then-torch", lambda: self.then_torch(row))]


class Activated(Grouped):
    """the first product of a layer: what leaves it is the second one's operand"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        self.fmt = p.act(protocols.LAYOUT[opt.layout])
        self.bytes = self.a.bytes + self.b.bytes + self.d.numel() // 2
        self.apart = None

    def one_by_one(self, row):
        product = m.Ggemm(self.ctx, m.GROUP_M, self.a, self.b, self.d, self.offsets, row=row)
        swiglu = m.Swiglu(self.ctx, self.d, self.fmt, m.ROWWISE)

        def run():
            product()
            swiglu()
        self.apart = swiglu
        return run, None

    def ours(self, row):
        plan = m.Activated(self.ctx, self.a, self.b, self.rows, self.offsets, self.fmt, row=row)

        def same():
            """bit for bit, as sums are made in one order"""
            self.one_by_one(row)[0]()
            torch.cuda.synchronize()
            bad = int((plan.data != self.apart.data[0]).sum()) + int((plan.scale != self.apart.scale[0]).sum())
            if bad:
                raise p.Wrong(f"{bad} codes and scales are not those of the product and SwiGLU apart")
            return 0.0
        return plan, same

    def peers(self):
        row = self.opt.rows.split(",")[0].encode() or None
        return [("apart", lambda: self.one_by_one(row))]


class Masked(protocols.Contest):
    """a matrix for each group, of whose rows few are there"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        self.groups, self.rows, self.n, self.k = size
        x = torch.randn(self.groups, MASKED_ROWS, self.k, device="cuda", dtype=BF16)
        y = torch.randn(self.groups, self.n, self.k, device="cuda", dtype=BF16)
        act = p.act(protocols.LAYOUT[opt.layout])
        self.a, self.b = p.quantized(ctx, x, act), p.quantized(ctx, y, act if table == "vmasked" else p.weight())
        self.d = torch.empty(self.groups, MASKED_ROWS, self.n, device="cuda", dtype=BF16)
        there = self.groups * self.rows
        self.flop, self.bytes = 2.0 * there * self.n * self.k, there * (self.k + self.k // 32 + 2 * self.n) + self.b.bytes
        self.small = table == "masked" or self.rows <= 256

    def check(self):
        """also that rows which are not there are not written"""
        def one(g):
            if int((self.d[g, self.rows:].view(torch.int16) != -1).sum()):
                raise p.Wrong("rows behind the last were written")
            return p.verify(self.d[g, :self.rows], self.a.part(g), self.b, (0, self.rows), g)
        return lambda: max(one(g) for g in range(self.groups))

    def ours(self, row):
        counts = torch.full((self.groups,), self.rows, device="cuda", dtype=torch.int64)
        return m.Masked(self.ctx, self.a, self.b, p.poison(self.d), counts, self.groups * self.rows, row=row), self.check()

    def deepgemm(self):
        s = torch.stack([self.a.scales(g) for g in range(self.groups)])
        a, b = (self.a.codes().view(self.groups, MASKED_ROWS, self.k), p.mn_major(s)), p.peer_weight(self.b)
        b = b if self.groups > 1 else (b[0][None], b[1][None])
        valid = torch.full((self.groups,), self.rows, device="cuda", dtype=torch.int32)
        d = p.poison(self.d)
        return lambda: self.dg.m_grouped_fp8_gemm_nt_masked(a, b, d, valid, self.rows, disable_ue8m0_cast=True), self.check()

    def peers(self):
        return [("deepgemm", self.deepgemm)] if self.table == "masked" else []


class Reduced(protocols.Contest):
    """the reduction cut into groups, each with its own D"""

    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        self.groups, self.m, self.n, self.k = size
        self.offsets = even(self.groups, self.k)
        rows = self.groups * self.k
        self.x, self.y = (torch.randn(rows, c, device="cuda", dtype=BF16) for c in (self.m, self.n))
        self.plain = table == "bf16k"
        act, self.mx = p.act(protocols.LAYOUT[opt.layout]), {"mxk128": 1, "mxkrow": 2}.get(table, 0)
        fmt = p.PLAIN_BF16 if self.plain else p.mx(m.COL) if table.startswith("mxk") else act
        self.a, self.b = (p.quantized(ctx, t, fmt, self.offsets, colwise=True, mx=self.mx) for t in (self.x, self.y))
        self.blk = [p.quantized(ctx, t, act, self.offsets, colwise=True) for t in (self.x, self.y)] if self.mx else (self.a, self.b)
        self.d = torch.empty(self.groups, self.m, self.n, device="cuda", dtype=F32)
        self.flop, self.bytes = 2.0 * rows * self.m * self.n, self.a.bytes + self.b.bytes + 8 * self.d.numel()
        self.small = False

    def exact(self, g, t, q):
        """group g's operand as one matrix, float64, behind an object that verify understands"""
        o, e = g * self.k, (g + 1) * self.k
        x = t[o:e].t().double() if q is None or self.plain else q.exact()[:, o:e]
        return Whole(x)

    def check(self, get=None, plain=False, of=None):
        """the first and the last group: the whole of each"""
        get = get or (lambda g: self.d[g])
        qa, qb = (None, None) if plain else of or (self.a, self.b)
        return lambda: max(p.verify(get(g), self.exact(g, self.x, qa), self.exact(g, self.y, qb)) for g in {0, self.groups - 1})

    def ours(self, row, mx=None):
        order = m.MN_MAJOR if self.plain else m.K_MAJOR
        return m.Ggemm(self.ctx, m.GROUP_K, self.a, self.b, self.d.zero_(), self.offsets, row=row, accumulate=True, a_order=order,
                       b_order=order, mx=self.mx if mx is None else mx), self.check()

    def deepgemm(self):
        a, b, d, ks = p.peer_ragged(self.blk[0]), p.peer_ragged(self.blk[1]), self.d.zero_(), [self.k] * self.groups
        on_gpu = torch.tensor(ks, device="cuda", dtype=torch.int32)
        return lambda: self.dg.k_grouped_fp8_gemm_nt_contiguous(a, b, d, ks, on_gpu, d, recipe=(1, 1, 128)), self.check(of=self.blk)

    def torch_bf16(self):
        """BF16 results, not added to"""
        ends, last = self.offsets[1:].int(), [None]

        def run():
            last[0] = torch._grouped_mm(self.x.t(), self.y, offs=ends)
        return run, self.check(lambda g: last[0][g], plain=True)

    def peers(self):
        torch_bf16 = [("torch-bf16", self.torch_bf16)]
        if self.mx:
            exact = [("exact", lambda: self.ours(None, mx=0))] if self.mx == 1 else []
            return [("deepgemm", self.deepgemm)] + torch_bf16 + exact
        return [("deepgemm", self.deepgemm)] + torch_bf16 if self.table == "kgroup" else torch_bf16


class Whole:
    def __init__(self, x):
        self.x, self.rows = x, x.shape[0]

    def exact(self, first=0, last=None, i=0):
        return self.x[first:last]


def is_zipf(size):
    return size in ZIPF or size in LARGE_ZIPF or size in MODELS_ZIPF


def name_of(size):
    return ("zipf" if is_zipf(size) else "") + "x".join(map(str, size))


if __name__ == "__main__":
    kinds = {"masked": Masked, "vmasked": Masked, "gather": Gathered, "scatter": Scattered, "swiglu": Activated, "kgroup": Reduced, "bf16k": Reduced, "mxk": Reduced,
             "mxk128": Reduced, "mxkrow": Reduced}
    protocols.main(__doc__, TABLES, name_of, lambda table: kinds.get(table, Grouped))
