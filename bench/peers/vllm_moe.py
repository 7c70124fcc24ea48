# SPDX-License-Identifier: Apache-2.0
"""A MoE layer with block-FP8 or BF16 weights on vLLM's Triton kernel, which is read from a folder that holds vLLM's fused_moe.py: vLLM need not be there.

What vLLM 0.33 does at such a layer: 1x128 quantisation of x, product, SiLU and quantisation in one, product with the routing weights, sum; beside BF16
nothing is quantised.  All but the products, CUDA code there, are small Triton kernels here.  As there, up to experts / (4 top_k) tokens every row of a
product is a block of its own, and tiles of fewer than 64 rows of 8 bits are turned round (SWAP_AB), where the kernel has these."""
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import multiprocessing
import os
import sys
import types

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


def config(n, warps, stages, k=128, m=16, group=1):
    return dict(BLOCK_SIZE_M=m, BLOCK_SIZE_N=n, BLOCK_SIZE_K=k, GROUP_SIZE_M=group, num_warps=warps, num_stages=stages)


# what vLLM ships for E=128, N=768 on an H200, or near it: of FP8, of BF16
CONFIGS = {True: [config(64, 4, 3), config(64, 4, 5), config(128, 4, 3), config(128, 4, 4)],
           False: [config(64, 4, 5, 64), config(64, 4, 3), config(64, 4, 4), config(128, 4, 3), config(64, 4, 2, 256)]}
# of more than so many tokens these, too
FEW = 128
MANY_CONFIGS = {True: [config(128, 4, 4, m=32, group=16), config(128, 4, 3, m=64, group=16), config(128, 4, 4, m=64, group=16), config(128, 8, 4, m=128, group=16)],
                False: [config(256, 4, 2, m=32, group=16), config(128, 4, 3, 64, m=64), config(128, 4, 4, 64, m=64, group=16), config(256, 8, 4, 64, m=128, group=16)]}


def configs_for(fp8, tokens):
    return CONFIGS[fp8] + (MANY_CONFIGS[fp8] if tokens > FEW else [])


# ---- vLLM's file without vLLM ----

class Stub(type):
    """Classes that stand for whatever is imported: a decorator, a base, a type."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **named):
        return args[0] if args and callable(args[0]) else cls

    def __getitem__(cls, key):
        return cls


Nothing = Stub("Nothing", (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "vllm" else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.triton, module.tl = triton, tl
        module.__getattr__ = lambda name: getattr(Nothing, name)
        return module

    def exec_module(self, module):
        pass


def load(folder):
    """fused_moe_kernel of FOLDER/fused_moe.py"""
    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        spec = importlib.util.spec_from_file_location("peer_fused_moe", os.path.join(folder, "fused_moe.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.meta_path.remove(finder)
    return module.fused_moe_kernel


# ---- the rest of the layer ----

@triton.jit
def quantise(x, codes, scales, BLOCKS: tl.constexpr):
    at = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    i = at[:, None] * 128 + tl.arange(0, 128)[None, :]
    v = tl.load(x + i).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v), 1), 1e-10) / 448.0
    tl.store(codes + i, (v / s[:, None]).to(codes.dtype.element_ty))
    tl.store(scales + at, s)


@triton.jit
def activate(gate_up, codes, scales, width, BLOCKS: tl.constexpr):
    at = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    c = tl.arange(0, 128)
    row, col = at // (width // 128), at % (width // 128) * 128
    i = (row * 2 * width + col)[:, None] + c[None, :]
    g, u = tl.load(gate_up + i).to(tl.float32), tl.load(gate_up + i + width).to(tl.float32)
    v = g / (1 + tl.exp(-g)) * u
    s = tl.maximum(tl.max(tl.abs(v), 1), 1e-10) / 448.0
    tl.store(codes + at[:, None] * 128 + c[None, :], (v / s[:, None]).to(codes.dtype.element_ty))
    tl.store(scales + at, s)


@triton.jit
def activate_plain(gate_up, u, width, COLS: tl.constexpr):
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    i = tl.program_id(0) * 2 * width + c
    g, v = tl.load(gate_up + i).to(tl.float32), tl.load(gate_up + i + width).to(tl.float32)
    tl.store(u + tl.program_id(0) * width + c, (g / (1 + tl.exp(-g)) * v).to(u.dtype.element_ty))


@triton.jit
def combine(rows, y, hidden, TOP_K: tl.constexpr, COLS: tl.constexpr):
    t, c = tl.program_id(0), tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((COLS,), tl.float32)
    for s in tl.static_range(TOP_K):
        total += tl.load(rows + (t * TOP_K + s) * hidden + c).to(tl.float32)
    tl.store(y + t * hidden + c, total.to(y.dtype.element_ty))


def align(ids, experts, block):
    """slots by expert, each expert's filled up to whole blocks; the expert of each block; how many there are"""
    flat, slots = ids.flatten().long(), ids.numel()
    counts = torch.bincount(flat, minlength=experts)
    padded = -(-counts // block) * block
    order = flat.argsort(stable=True)
    mine = flat[order]
    place = padded.cumsum(0)[mine] - padded[mine] + torch.arange(slots, device=DEVICE) - (counts.cumsum(0)[mine] - counts[mine])
    most = min(slots * block, -(-(slots + experts * (block - 1)) // block) * block)
    sorted_slots = torch.full((most,), slots, device=DEVICE, dtype=torch.int32)
    sorted_slots[place] = order.int()
    owner = torch.zeros(most // block, device=DEVICE, dtype=torch.int32)
    used = int(padded.sum())
    owner[:used // block] = torch.arange(experts, device=DEVICE).repeat_interleave(padded // block).int()
    return sorted_slots, owner, torch.tensor([used], device=DEVICE, dtype=torch.int32)


class Layer:
    """gate_up, down: (codes E4M3 [e, n, k], scales F32 [e, n / 128, k / 128]), or (BF16, None).  Where slots go is found here, outside of what is timed."""

    def __init__(self, kernel, x, ids, weights, gate_up, down):
        self.kernel, self.x, self.weights, self.gate_up, self.down = kernel, x, weights, gate_up, down
        (self.tokens, self.hidden), self.top_k = x.shape, ids.shape[1]
        experts, self.width = gate_up[0].shape[0], down[0].shape[2]
        self.slots = self.tokens * self.top_k
        self.takes = inspect.signature(kernel.fn).parameters
        self.apart = "naive_block_assignment" in self.takes and self.slots * 4 <= experts
        one_each = None, ids.flatten().contiguous(), torch.tensor([self.slots * 16], device=DEVICE, dtype=torch.int32)
        self.ids, self.experts, self.places = ids, experts, {16: one_each} if self.apart else {}
        new = lambda *shape, t=torch.bfloat16: torch.empty(*shape, device=DEVICE, dtype=t)
        self.fp8 = gate_up[1] is not None
        codes = lambda rows, cols: (new(rows, cols, t=torch.float8_e4m3fn), new(rows, cols // 128, t=torch.float32))
        self.xq = codes(self.tokens, self.hidden) if self.fp8 else (x, None)
        self.uq = codes(self.slots, self.width) if self.fp8 else (new(self.slots, self.width), None)
        self.mid, self.rows, self.y = new(self.slots, 2 * self.width), new(self.slots, self.hidden), new(self.tokens, self.hidden)
        self.configs = (CONFIGS[self.fp8][0],) * 2
        self.place(self.configs)

    def place(self, configs):
        """where slots go by tiles of these configurations"""
        for rows in {c["BLOCK_SIZE_M"] for c in configs} - self.places.keys():
            self.places[rows] = align(self.ids, self.experts, rows)

    def share_room(self, other):
        """What lies between the kernels in the room of a layer that runs before or behind."""
        self.uq, self.mid, self.rows = other.uq, other.mid, other.rows
        if self.fp8:
            self.xq = other.xq

    def product(self, second, config):
        (a, sa), (b, sb), d = (self.uq, self.down, self.rows) if second else (self.xq, self.gate_up, self.mid)
        n, k, bm, bn = b.shape[1], b.shape[2], config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]
        slots, owner, used = self.places[bm]
        em = self.slots * bm if slots is None else slots.numel()
        strides = (lambda s: s.stride()) if self.fp8 else lambda s: (0, 0, 0)
        block = 128 if self.fp8 else 0
        if a.shape[0] < bm:  # no expert has more rows than there are tokens
            em = min(em, self.slots * bm)
        known = dict(a_ptr=a, b_ptr=b, c_ptr=d, b_bias_ptr=None, a_scale_ptr=sa, b_scale_ptr=sb, topk_weights_ptr=self.weights, sorted_token_ids_ptr=slots,
                     expert_ids_ptr=owner, num_tokens_post_padded_ptr=used, N=n, K=k, EM=em, num_valid_tokens=self.slots, stride_am=k, stride_ak=1,
                     stride_be=n * k, stride_bk=1, stride_bn=k, stride_cm=n, stride_cn=1, stride_asm=strides(sa)[0], stride_ask=strides(sa)[1],
                     stride_bse=strides(sb)[0], stride_bsk=strides(sb)[2], stride_bsn=strides(sb)[1], stride_bbe=0, stride_bbn=0, group_n=block, group_k=block,
                     naive_block_assignment=self.apart, SPLIT_K=1, MUL_ROUTED_WEIGHT=second, top_k=1 if second else self.top_k, compute_type=tl.bfloat16,
                     use_fp8_w8a8=self.fp8, use_int8_w8a8=False, use_int8_w8a16=False, per_channel_quant=False, HAS_BIAS=False,
                     SWAP_AB=self.fp8 and bm < 64 <= bn, USE_TD=False, **config)
        strange = [p for p in self.takes if p not in known]
        assert not strange, f"this fused_moe_kernel takes {strange}"
        own = ("num_warps", "num_stages")
        self.kernel[(triton.cdiv(em, bm) * triton.cdiv(n, bn),)](**{p: v for p, v in known.items() if p in self.takes or p in own})

    def quantise(self):
        if self.fp8:
            quantise[(self.xq[1].numel() // 4,)](self.x, *self.xq, BLOCKS=4)

    def activate(self):
        if self.fp8:
            activate[(self.uq[1].numel() // 4,)](self.mid, *self.uq, self.width, BLOCKS=4)
        else:
            activate_plain[(self.slots, self.width // 256)](self.mid, self.uq[0], self.width, COLS=256)

    def __call__(self):
        self.quantise()
        self.product(False, self.configs[0])
        self.activate()
        self.product(True, self.configs[1])
        combine[(self.tokens, self.hidden // 512)](self.rows, self.y, self.hidden, TOP_K=self.top_k, COLS=512)


def small(kernel, tokens, fp8, top_k=8, hidden=2048, width=768):
    """a layer of random codes, to compile for: 4 * top_k experts and 1 or 2 tokens have rows apart"""
    experts = 4 * top_k * min(tokens, 2)
    ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)]).int().to(DEVICE)
    codes = lambda n, k: torch.randint(0, 64, (experts, n, k), dtype=torch.uint8, device=DEVICE)
    weight = lambda n, k: (codes(n, k).view(torch.float8_e4m3fn), torch.ones(experts, n // 128, k // 128, device=DEVICE)) if fp8 else (codes(n, k).bfloat16(), None)
    x = torch.randn(tokens, hidden, device=DEVICE, dtype=torch.bfloat16)
    return Layer(kernel, x, ids, torch.rand(tokens, top_k, device=DEVICE), weight(2 * width, hidden), weight(hidden, width))


def compile_one(job):
    folder, second, (fp8, chosen), tokens = job
    layer = small(load(folder), tokens, fp8)
    layer.place([chosen])
    layer.product(second, chosen)
    torch.cuda.synchronize()


def compile_all(folder, batches, processes=12):
    """Every configuration of both products into Triton's cache: forms for 1 token, for few, for many, by size and strides alike for all shapes.
    Processes are forked, so before CUDA starts here."""
    few = [(fp8, c) for fp8 in CONFIGS for c in CONFIGS[fp8]]
    many = [(fp8, c) for fp8 in CONFIGS for c in MANY_CONFIGS[fp8] if max(batches) > FEW]
    jobs = [(folder, *job) for job in [*itertools.product((False, True), few, (1, 2, 8)), *itertools.product((False, True), many, (8,))]]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        try:
            pool.map_async(compile_one, jobs, chunksize=1).get(120)
        except multiprocessing.TimeoutError:
            print("compiling side by side took too long: what is missing is compiled when it is first called", flush=True)
