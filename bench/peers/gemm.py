#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dense products beside DeepGEMM, cuBLASLt and cuBLAS, in one process, on the same numbers.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/gemm.py OUT.csv --tables dense --cases '64x*' --protocols kernel

Tables  dense    D[m,n] BF16 = A B^T, blk128: A in 1x128, B in 128x128          DeepGEMM; cuBLASLt block-wise, tensor-wise, BF16; up to 128 rows
                                                                                a plain read of as many bytes
        models   dense with 16 to 2048 rows of layers of public models, and      DeepGEMM
                 256 to 2048 rows of the dense table's columns and reductions
        vectors  D FP32 added to, blk128: A and B in 1x128                      DeepGEMM
        mx       MXFP8, D BF16                                                  cuBLAS BF16, B as either major; FP8 tensor-wise
        bf16     BF16 throughout                                                cuBLAS, DeepGEMM
Cases are named MxNxK.  Peers that cannot be imported are left out.  Before anything is timed its result is compared, element by
element, with the float64 product of the dequantised operands.  Bytes: operands and scales read once, D written once."""
import torch

import moiety as m
import products as p
import protocols
from reader import Reader

NK = [(2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
LARGE = [(4096, n, k) for n, k in NK]
MODELS = [(1536, 2048), (2048, 4096), (4096, 2048), (6144, 4096), (9216, 4096), (28672, 4096), (4096, 14336), (5120, 5120)]
TABLES = {
    "dense": [(rows, n, k) for n, k in NK for rows in (64, 128, 4096)],
    "models": [(rows, n, k) for n, k in MODELS for rows in (16, 64, 256, 512, 1024, 2048)] + [(rows, n, k) for n, k in NK for rows in (256, 512, 1024, 2048)],
    "vectors": LARGE,
    "mx": [(8192, 8192, 8192), (131072, 2048, 7168)] + LARGE,
    "bf16": LARGE + [(8192, 8192, 8192)],
}
BF16, F32 = torch.bfloat16, torch.float32


class Dense(protocols.Contest):
    def __init__(self, ctx, opt, dg, table, size):
        super().__init__(ctx, opt, dg, table, size)
        rows, n, k = size
        self.small = rows <= 128
        self.x, self.y = (torch.randn(r, k, device="cuda", dtype=BF16) for r in (rows, n))
        act, mx = p.act(protocols.LAYOUT[opt.layout]), p.mx(protocols.LAYOUT[opt.mx_layout])
        formats = {"dense": (act, p.weight()), "models": (act, p.weight()), "vectors": (act, act), "mx": (mx, mx), "bf16": (p.PLAIN_BF16, p.PLAIN_BF16)}[table]
        self.a, self.b = (p.quantized(ctx, t, f) for t, f in zip((self.x, self.y), formats))
        self.add = table == "vectors"
        self.d = torch.empty(rows, n, device="cuda", dtype=F32 if self.add else BF16)
        self.flop = 2.0 * rows * n * k
        self.bytes = self.a.bytes + self.b.bytes + self.d.numel() * self.d.element_size() * (2 if self.add else 1)
        self.one = torch.ones((), device="cuda")

    def fresh(self):
        return self.d.zero_() if self.add else p.poison(self.d)

    def check(self):
        return lambda: p.verify(self.d, self.a, self.b)

    def ours(self, row):
        return m.Gemm(self.ctx, self.a, self.b, self.fresh(), row=row, accumulate=self.add), self.check()

    def rebased(self):
        """operands re-expressed on one scale a row beforehand; the result is held to the product of those with 1x32 scales"""
        a, b = p.rebased(self.ctx, self.a), p.rebased(self.ctx, self.b)
        return m.Gemm(self.ctx, a, b, self.fresh(), mx=2), self.check()

    def keeps(self, call, plain=False, **how):
        """for calls that return their result: the check looks at what the last one gave"""
        last = [None]

        def run():
            last[0] = call()
        a, b = (p.Matrix(p.PLAIN_BF16, t, None, *t.shape) for t in (self.x, self.y)) if plain else (self.a, self.b)
        return run, lambda: p.verify(last[0], a, b, **how)

    def deepgemm(self):
        a, b = p.peer_act(self.a), p.peer_act(self.b) if self.add else p.peer_weight(self.b)
        d = self.fresh()
        if self.add:
            return lambda: self.dg.fp8_gemm_nt(a, b, d, c=d, recipe=(1, 1, 128), disable_ue8m0_cast=True), self.check()
        return lambda: self.dg.fp8_gemm_nt(a, b, d, disable_ue8m0_cast=True), self.check()

    def deepgemm_bf16(self):
        d = self.fresh()
        return lambda: self.dg.bf16_gemm_nt(self.x, self.y, d), self.check()

    def block_wise(self):
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm
        (a, sa), (b, sb) = p.peer_act(self.a), p.peer_weight(self.b)
        sb = torch.nn.functional.pad(sb, (0, -sb.shape[1] % 4)).contiguous().t()
        return self.keeps(lambda: scaled_mm(a, b.t(), sa, ScalingType.BlockWise1x128, sb, ScalingType.BlockWise128x128,
                                            swizzle_a=SwizzleType.NO_SWIZZLE, swizzle_b=SwizzleType.NO_SWIZZLE, output_dtype=BF16))

    def tensor_wise(self):
        """no scales inside, and nothing promoted: the chip's accumulators keep 13 bits over all of k, hence the wide room"""
        a, b = self.a.codes(), self.b.codes()
        return self.keeps(lambda: torch._scaled_mm(a, b.t(), scale_a=self.one, scale_b=self.one, out_dtype=BF16, use_fast_accum=True),
                          codes=True, room_bits=2)

    def cublas(self):
        return self.keeps(lambda: torch.mm(self.x, self.y.t()), plain=True)

    def cublas_nn(self):
        z = self.y.t().contiguous()
        return self.keeps(lambda: torch.mm(self.x, z), plain=True)

    def plain_read(self):
        return Reader(self.bytes).call(self.bytes, m.Timer()), None

    def peers(self):
        peers = {"dense": [("deepgemm", self.deepgemm), ("cublaslt-block", self.block_wise), ("cublaslt-tensor", self.tensor_wise)],
                 "models": [("deepgemm", self.deepgemm)], "vectors": [("deepgemm", self.deepgemm)],
                 "mx": [("ours-rebased", self.rebased), ("cublas-bf16", self.cublas), ("cublas-bf16-nn", self.cublas_nn), ("cublaslt-tensor", self.tensor_wise)],
                 "bf16": [("cublas-bf16", self.cublas), ("cublas-bf16-nn", self.cublas_nn), ("deepgemm-bf16", self.deepgemm_bf16)]}[self.table]
        more = [("plain-read", self.plain_read)] if self.small else [("cublas-bf16", self.cublas)]
        return peers + more if self.table == "dense" else peers


if __name__ == "__main__":
    protocols.main(__doc__, TABLES, lambda size: "x".join(map(str, size)), lambda table: Dense)
