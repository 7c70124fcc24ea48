# SPDX-License-Identifier: Apache-2.0
"""libmoiety through ctypes, on torch tensors: what the benches of this folder share.

MOIETY_LIB names the library (build/gpu/libmoiety.so of `make gpu-bundle`)."""
import ctypes as c
import os
import statistics
import subprocess
import time

import torch

F32, F16, BF16, E4M3, E5M2, E2M1 = 1, 2, 3, 4, 5, 8
RECIPE_BF16, RECIPE_MX32, RECIPE_BLK128 = 1, 2, 3
VECTOR, SQUARE = 0, 1
K_MAJOR, MN_MAJOR = 0, 1
GROUP_M, GROUP_K, GROUP_MASKED = 0, 1, 2
ROWWISE, COLWISE = 1, 2
ROW, TILED, COL = 0, 1, 2
BACKEND_CUDA = 2


class Format(c.Structure):
    _fields_ = [("recipe", c.c_int), ("elem", c.c_int), ("block", c.c_int), ("round", c.c_int), ("layout", c.c_int), ("flags", c.c_uint32)]


class Operand(c.Structure):
    _fields_ = [("data", c.c_void_p), ("scale", c.c_void_p), ("ld", c.c_int64)]


class CtxConfig(c.Structure):
    _fields_ = [("size", c.c_uint32), ("backend", c.c_int), ("threads", c.c_int32), ("reference_only", c.c_bool), ("log", c.c_void_p),
                ("log_user", c.c_void_p), ("device", c.c_int32)]


class QuantizeDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("input", c.c_int), ("rowwise", Format), ("colwise", Format), ("want", c.c_uint32),
                ("max_rows", c.c_int64), ("cols", c.c_int64), ("batch", c.c_int64), ("groups", c.c_int64), ("rowwise_mx", c.c_int),
                ("colwise_mx", c.c_int)]


class QuantizeArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("rows", c.c_int64), ("input", Operand), ("rowwise", Operand), ("colwise", Operand), ("offsets", c.c_void_p)]


class SwigluDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("input", Format), ("out", c.c_int), ("rowwise", Format), ("colwise", Format),
                ("want", c.c_uint32), ("max_rows", c.c_int64), ("width", c.c_int64), ("groups", c.c_int64), ("rowwise_mx", c.c_int),
                ("colwise_mx", c.c_int)]


class SwigluArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("rows", c.c_int64), ("gate_up", Operand), ("plain", c.c_void_p), ("rowwise", Operand), ("colwise", Operand),
                ("d_act", c.c_void_p), ("offsets", c.c_void_p)]


class GemmDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("a", Format), ("b", Format), ("a_order", c.c_int), ("b_order", c.c_int), ("out", c.c_int),
                ("accumulate", c.c_bool), ("max_m", c.c_int64), ("n", c.c_int64), ("k", c.c_int64), ("mx", c.c_int), ("sm_limit", c.c_int32),
                ("overlap", c.c_bool)]


class GemmArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("m", c.c_int64), ("a", Operand), ("b", Operand), ("d", c.c_void_p), ("ldd", c.c_int64)]


class GgemmDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("grouping", c.c_int), ("a", Format), ("b", Format), ("a_order", c.c_int),
                ("b_order", c.c_int), ("out", c.c_int), ("accumulate", c.c_bool), ("groups", c.c_int64), ("max_rows", c.c_int64), ("m", c.c_int64),
                ("n", c.c_int64), ("k", c.c_int64), ("mx", c.c_int), ("expected_rows", c.c_int64), ("sm_limit", c.c_int32), ("overlap", c.c_bool),
                ("gather_rows", c.c_int64), ("scatter_rows", c.c_int64), ("weighted", c.c_bool), ("swiglu", c.c_bool), ("rowwise", Format),
                ("rowwise_mx", c.c_int)]


class RebaseDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("format", Format), ("group", c.c_int64), ("max_rows", c.c_int64), ("cols", c.c_int64)]


class RebaseArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("rows", c.c_int64), ("input", Operand), ("out", Operand), ("max_shift", c.c_void_p), ("bound", c.c_void_p)]


class GgemmArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("rows", c.c_int64), ("offsets", c.c_void_p), ("a", Operand), ("b", Operand), ("d", c.c_void_p),
                ("ldd", c.c_int64), ("counts", c.c_void_p), ("rows_of_a", c.c_void_p), ("a_rows", c.c_int64),
                ("rows_of_d", c.c_void_p), ("d_rows", c.c_int64), ("row_weight", c.c_void_p), ("rowwise", Operand)]


class DecodeDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("weights", Format), ("x", c.c_int), ("out", c.c_int), ("max_tokens", c.c_int64),
                ("hidden", c.c_int64), ("width", c.c_int64), ("experts", c.c_int64), ("top_k", c.c_int64), ("from_logits", c.c_bool),
                ("renormalize", c.c_bool), ("grouped_from", c.c_int64)]


class DecodeArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("tokens", c.c_int64), ("x", c.c_void_p), ("ids", c.c_void_p), ("weights", c.c_void_p), ("gate_up", Operand),
                ("down", Operand), ("y", c.c_void_p), ("apart", c.c_void_p), ("logits", c.c_void_p), ("ids_out", c.c_void_p), ("weights_out", c.c_void_p)]


class PermuteDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("dtype", c.c_int), ("max_tokens", c.c_int64), ("hidden", c.c_int64), ("experts", c.c_int64),
                ("top_k", c.c_int64)]


class CombineArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("tokens", c.c_int64), ("row_of", c.c_void_p), ("weights", c.c_void_p), ("y_sorted", c.c_void_p), ("y", c.c_void_p),
                ("d_y", c.c_void_p), ("d_y_sorted", c.c_void_p), ("d_weights", c.c_void_p)]


class RouteDesc(c.Structure):
    _fields_ = [("size", c.c_uint32), ("row", c.c_char_p), ("max_tokens", c.c_int64), ("experts", c.c_int64), ("top_k", c.c_int64),
                ("renormalize", c.c_bool), ("aux_coef", c.c_float)]


class RouteArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("tokens", c.c_int64), ("logits", c.c_void_p), ("probs", c.c_void_p), ("ids", c.c_void_p), ("weights", c.c_void_p),
                ("aux_loss", c.c_void_p), ("d_weights", c.c_void_p), ("d_logits", c.c_void_p)]


lib = c.CDLL(os.environ.get("MOIETY_LIB", "build/gpu/libmoiety.so"))
lib.moi_last_error.restype = c.c_char_p
lib.moi_plan_row.restype = c.c_char_p
lib.moi_ctx_describe.restype = c.c_char_p
lib.moi_scale_bytes.restype = c.c_int64
lib.moi_scale_bytes.argtypes = [c.c_void_p, c.c_int64, c.c_int64, c.c_int64]
lib.moi_ragged_cols.restype = c.c_int64
lib.moi_ragged_cols.argtypes = [c.c_void_p, c.c_int64, c.c_int64]
lib.moi_colwise_ld.restype = c.c_int64
lib.moi_colwise_ld.argtypes = [c.c_void_p, c.c_int64, c.c_int64]
lib.moi_plan_workspace_bytes.restype = c.c_int64
lib.moi_moe_decode_grouped_from.restype = c.c_int64
lib.moi_moe_decode_grouped_from.argtypes = [c.c_void_p]
lib.moi_quantize_run.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_void_p]
lib.moi_route_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_moe_decode_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_combine_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_swiglu_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_swiglu_backward_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_rebase_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_gemm_run.argtypes = lib.moi_quantize_run.argtypes
lib.moi_ggemm_run.argtypes = lib.moi_quantize_run.argtypes
for f in ("moi_plan_row", "moi_plan_workspace_bytes", "moi_plan_free", "moi_ctx_free", "moi_ctx_describe"):
    getattr(lib, f).argtypes = [c.c_void_p]


def check(status):
    if status:
        raise RuntimeError(lib.moi_last_error().decode())


def context():
    torch.zeros(1, device="cuda")  # the context that both share
    ctx = c.c_void_p()
    config = CtxConfig(size=c.sizeof(CtxConfig), backend=BACKEND_CUDA, device=-1)
    check(lib.moi_ctx_create(c.byref(ctx), c.byref(config)))
    return ctx


def stream():
    return c.c_void_p(torch.cuda.current_stream().cuda_stream)


class Quantize:
    """A plan with its results' tensors; x [rows, cols], or several matrices [batch, rows, cols].  spread: columns of the column-wise result
    as far apart as moi_colwise_ld says."""

    def __init__(self, ctx, x, fmt, want, groups=0, offsets=None, row=None, mx=0, col_mx=0, spread=False):
        rows, cols = x.shape[-2:]
        batch = x.shape[0] if x.dim() == 3 else 1
        self.x, self.offsets, self.want = x, offsets, want
        desc = QuantizeDesc(size=c.sizeof(QuantizeDesc), row=row, input=BF16 if x.dtype == torch.bfloat16 else F32, rowwise=fmt, colwise=fmt,
                            want=want, max_rows=rows, cols=cols, batch=batch, groups=groups, rowwise_mx=mx, colwise_mx=col_mx)
        self.plan = c.c_void_p()
        check(lib.moi_quantize_plan_create(c.byref(self.plan), ctx, c.byref(desc)))
        self.row = lib.moi_plan_row(self.plan).decode()
        self.workspace = torch.empty(lib.moi_plan_workspace_bytes(self.plan), dtype=torch.uint8, device="cuda")
        sizes = [lib.moi_scale_bytes(c.byref(fmt), rows, cols, 0), lib.moi_scale_bytes(c.byref(fmt), cols, rows, groups)]
        ld = (lib.moi_colwise_ld if spread else lib.moi_ragged_cols)(c.byref(fmt), rows, groups)
        self.data = [torch.empty(batch * rows, cols, dtype=torch.uint8, device="cuda") if want & ROWWISE else None,
                     torch.empty(batch * cols, ld, dtype=torch.uint8, device="cuda")
                     if want & COLWISE else None]
        self.scale = [torch.empty(batch * s, dtype=torch.uint8, device="cuda") if d is not None else None for s, d in zip(sizes, self.data)]
        codes = sum(batch * rows * cols for d in self.data if d is not None)  # not what lies between groups
        self.bytes = x.numel() * x.element_size() + codes + sum(t.numel() for t in self.scale if t is not None)
        ptr = lambda t: None if t is None else t.data_ptr()
        self.args = QuantizeArgs(size=c.sizeof(QuantizeArgs), rows=rows, input=Operand(x.data_ptr(), None, 0),
                                 rowwise=Operand(ptr(self.data[0]), ptr(self.scale[0]), 0), colwise=Operand(ptr(self.data[1]), ptr(self.scale[1]), ld if spread else 0),
                                 offsets=ptr(offsets))

    def __call__(self):
        check(lib.moi_quantize_run(self.plan, c.byref(self.args), self.workspace.data_ptr() or None, self.workspace.numel(), stream()))

    def free(self):
        lib.moi_plan_free(self.plan)


def pointer(t):
    return None if t is None else t.data_ptr()


class Swiglu:
    """A plan with its results' tensors; backward where d_act is given.  keep: also the plain result."""

    def __init__(self, ctx, gate_up, fmt, want, d_act=None, groups=0, offsets=None, row=None, keep=False, mx=0, col_mx=0):
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        cols = width if d_act is None else 2 * width
        self.gate_up, self.d_act, self.offsets = gate_up, d_act, offsets
        plain = Format(1, BF16)  # MOI_RECIPE_BF16
        desc = SwigluDesc(size=c.sizeof(SwigluDesc), row=row, input=plain, out=BF16, rowwise=fmt, colwise=fmt, want=want, max_rows=rows,
                          width=width, groups=groups, rowwise_mx=mx, colwise_mx=col_mx)
        self.plan = c.c_void_p()
        check(lib.moi_swiglu_plan_create(c.byref(self.plan), ctx, c.byref(desc)))
        self.row = lib.moi_plan_row(self.plan).decode()
        self.run = lib.moi_swiglu_run if d_act is None else lib.moi_swiglu_backward_run
        sizes = [lib.moi_scale_bytes(c.byref(fmt), rows, cols, 0), lib.moi_scale_bytes(c.byref(fmt), cols, rows, groups)]
        self.data = [torch.empty(rows, cols, dtype=torch.uint8, device="cuda") if want & ROWWISE else None,
                     torch.empty(cols, lib.moi_ragged_cols(c.byref(fmt), rows, groups), dtype=torch.uint8, device="cuda") if want & COLWISE else None]
        self.scale = [torch.empty(s, dtype=torch.uint8, device="cuda") if d is not None else None for s, d in zip(sizes, self.data)]
        self.plain = torch.empty(rows, cols, dtype=torch.bfloat16, device="cuda") if keep else None
        self.workspace = torch.empty(lib.moi_plan_workspace_bytes(self.plan), dtype=torch.uint8, device="cuda")
        codes = sum(rows * cols for d in self.data if d is not None)
        self.bytes = codes + sum(t.numel() * t.element_size() for t in [gate_up, d_act, self.plain] + self.scale if t is not None)
        self.args = SwigluArgs(size=c.sizeof(SwigluArgs), rows=rows, gate_up=Operand(gate_up.data_ptr(), None, 0), plain=pointer(self.plain),
                               rowwise=Operand(pointer(self.data[0]), pointer(self.scale[0]), 0),
                               colwise=Operand(pointer(self.data[1]), pointer(self.scale[1]), 0), d_act=pointer(d_act), offsets=pointer(offsets))

    def __call__(self):
        check(self.run(self.plan, c.byref(self.args), self.workspace.data_ptr() or None, self.workspace.numel(), stream()))

    def free(self):
        lib.moi_plan_free(self.plan)


class Plan:
    """A plan with its workspace; args hold its operands' addresses, keep their tensors."""

    def __init__(self, create, run, ctx, desc, args, keep):
        self.plan, self.run, self.args, self.keep = c.c_void_p(), run, args, keep
        check(create(c.byref(self.plan), ctx, c.byref(desc)))
        self.row = lib.moi_plan_row(self.plan).decode()
        self.workspace = torch.empty(lib.moi_plan_workspace_bytes(self.plan), dtype=torch.uint8, device="cuda")

    def __call__(self):
        check(self.run(self.plan, c.byref(self.args), self.workspace.data_ptr() or None, self.workspace.numel(), stream()))

    def free(self):
        lib.moi_plan_free(self.plan)


def share_workspace(plans):
    """One workspace for layers that run one after another, as a model's do."""
    most = max((p.workspace for p in plans), key=torch.Tensor.numel)
    for p in plans:
        p.workspace = most


def Gemm(ctx, a, b, d, row=None, accumulate=False, a_order=K_MAJOR, b_order=K_MAJOR, mx=0, sm_limit=0, overlap=False):
    """D = A B^T; a and b as products.Matrix (fmt, operand(), rows, cols), d a tensor [m, n]."""
    desc = GemmDesc(size=c.sizeof(GemmDesc), row=row, a=a.fmt, b=b.fmt, a_order=a_order, b_order=b_order, out=F32 if d.dtype == torch.float32 else BF16,
                    accumulate=accumulate, max_m=d.shape[0], n=d.shape[1], k=a.cols if a_order == K_MAJOR else a.rows, mx=mx,
                    sm_limit=sm_limit, overlap=overlap)
    args = GemmArgs(size=c.sizeof(GemmArgs), m=d.shape[0], a=a.operand(), b=b.operand(), d=d.data_ptr())
    return Plan(lib.moi_gemm_plan_create, lib.moi_gemm_run, ctx, desc, args, (a, b, d))


def Ggemm(ctx, grouping, a, b, d, offsets, row=None, accumulate=False, a_order=K_MAJOR, b_order=K_MAJOR, rows_of_a=None, rows_of_d=None, row_weight=None,
          mx=0):
    """GROUP_M: d [rows, n] = A [rows, k] B_g [n, k]^T.  GROUP_K: d [groups, m, n] = A_g B_g^T of a [m, rows] and b [n, rows]."""
    groups, by_k = offsets.numel() - 1, grouping == GROUP_K
    rows = d.shape[0] if not by_k else a.cols if a_order == K_MAJOR else a.rows
    desc = GgemmDesc(size=c.sizeof(GgemmDesc), row=row, grouping=grouping, a=a.fmt, b=b.fmt, a_order=a_order, b_order=b_order,
                     out=F32 if d.dtype == torch.float32 else BF16, accumulate=accumulate, groups=groups, max_rows=rows,
                     m=d.shape[1] if by_k else 0, n=d.shape[-1], k=0 if by_k else a.cols, mx=mx, gather_rows=0 if rows_of_a is None else a.rows,
                     scatter_rows=0 if rows_of_d is None else d.shape[0], weighted=row_weight is not None)
    args = GgemmArgs(size=c.sizeof(GgemmArgs), rows=rows, offsets=offsets.data_ptr(), a=a.operand(), b=b.operand(), d=d.data_ptr(),
                     rows_of_a=pointer(rows_of_a), a_rows=0 if rows_of_a is None else a.rows,
                     rows_of_d=pointer(rows_of_d), d_rows=0 if rows_of_d is None else d.shape[0], row_weight=pointer(row_weight))
    return Plan(lib.moi_ggemm_plan_create, lib.moi_ggemm_run, ctx, desc, args, (a, b, d, offsets, rows_of_a, rows_of_d, row_weight))


def Combine(ctx, y_sorted, y, top_k, row_of=None, weights=None, row=b"combine_plain"):
    """y [t, h] = sums of top_k rows of y_sorted each"""
    tokens, hidden = y.shape
    desc = PermuteDesc(size=c.sizeof(PermuteDesc), row=row, dtype=F32 if y.dtype == torch.float32 else BF16, max_tokens=tokens, hidden=hidden, experts=1,
                       top_k=top_k)
    args = CombineArgs(size=c.sizeof(CombineArgs), tokens=tokens, row_of=pointer(row_of), weights=pointer(weights), y_sorted=y_sorted.data_ptr(),
                       y=y.data_ptr())
    return Plan(lib.moi_combine_plan_create, lib.moi_combine_run, ctx, desc, args, (y_sorted, y, row_of, weights))


class Activated(Plan):
    """SwiGLU of d [rows, n] = A [rows, k] B_g [n, k]^T, row-wise in fmt, d seen by nobody; data and scale are its results."""

    def __init__(self, ctx, a, b, rows, offsets, fmt, row=None, rows_of_a=None):
        n, groups = b.rows, offsets.numel() - 1
        self.data = torch.empty(rows, n // 2, dtype=torch.uint8, device="cuda")
        self.scale = torch.empty(lib.moi_scale_bytes(c.byref(fmt), rows, n // 2, 0), dtype=torch.uint8, device="cuda")
        desc = GgemmDesc(size=c.sizeof(GgemmDesc), row=row, grouping=GROUP_M, a=a.fmt, b=b.fmt, out=BF16, groups=groups, max_rows=rows, n=n, k=a.cols,
                         gather_rows=0 if rows_of_a is None else a.rows, swiglu=True, rowwise=fmt)
        args = GgemmArgs(size=c.sizeof(GgemmArgs), rows=rows, offsets=offsets.data_ptr(), a=a.operand(), b=b.operand(), rows_of_a=pointer(rows_of_a),
                         a_rows=0 if rows_of_a is None else a.rows, rowwise=Operand(self.data.data_ptr(), self.scale.data_ptr(), 0))
        super().__init__(lib.moi_ggemm_plan_create, lib.moi_ggemm_run, ctx, desc, args, (a, b, offsets, rows_of_a))


def Masked(ctx, a, b, d, counts, expected=0, row=None):
    """d [groups, rows, n] = A_g [rows, k] B_g [n, k]^T, of which counts[g] rows are there; a.batch is groups."""
    desc = GgemmDesc(size=c.sizeof(GgemmDesc), row=row, grouping=GROUP_MASKED, a=a.fmt, b=b.fmt, out=F32 if d.dtype == torch.float32 else BF16,
                     groups=d.shape[0], max_rows=d.shape[1], n=d.shape[2], k=a.cols, expected_rows=expected)
    args = GgemmArgs(size=c.sizeof(GgemmArgs), rows=d.shape[1], counts=counts.data_ptr(), a=a.operand(), b=b.operand(), d=d.data_ptr())
    return Plan(lib.moi_ggemm_plan_create, lib.moi_ggemm_run, ctx, desc, args, (a, b, d, counts))


class Route(Plan):
    """A plan that routes; ids and weights are its results."""

    def __init__(self, ctx, logits, top_k, row=None):
        tokens, experts = logits.shape
        desc = RouteDesc(size=c.sizeof(RouteDesc), row=row, max_tokens=tokens, experts=experts, top_k=top_k, renormalize=True)
        self.probs = torch.empty_like(logits)
        self.ids = torch.empty(tokens, top_k, dtype=torch.int32, device="cuda")
        self.weights = torch.empty(tokens, top_k, dtype=torch.float32, device="cuda")
        args = RouteArgs(size=c.sizeof(RouteArgs), tokens=tokens, logits=logits.data_ptr(), probs=self.probs.data_ptr(), ids=self.ids.data_ptr(),
                         weights=self.weights.data_ptr())
        super().__init__(lib.moi_route_plan_create, lib.moi_route_run, ctx, desc, args, (logits,))


class Decode(Plan):
    """A plan for one decode layer, from (ids, weights) or, where `routing` is one tensor, from logits.  gate_up, down: (codes, scales) as
    moi_moe_decode_args has them.  grouped_from: as moi_moe_decode_desc, and that of the plan."""

    def __init__(self, ctx, fmt, x, routing, gate_up, down, hidden, width, experts, top_k, row=None, grouped_from=0, max_tokens=0):
        tokens, logits = x.shape[0], routing if isinstance(routing, torch.Tensor) else None
        ids, weights = (None, None) if logits is not None else routing
        desc = DecodeDesc(size=c.sizeof(DecodeDesc), row=row, weights=fmt, x=BF16, out=BF16, max_tokens=max(max_tokens, tokens), hidden=hidden, width=width,
                          experts=experts, top_k=top_k, from_logits=logits is not None, renormalize=logits is not None, grouped_from=grouped_from)
        self.y = torch.empty(tokens, hidden, dtype=torch.bfloat16, device="cuda")
        args = DecodeArgs(size=c.sizeof(DecodeArgs), tokens=tokens, x=x.data_ptr(), ids=pointer(ids), weights=pointer(weights), logits=pointer(logits),
                          gate_up=Operand(pointer(gate_up[0]), pointer(gate_up[1]), 0), down=Operand(pointer(down[0]), pointer(down[1]), 0),
                          y=self.y.data_ptr())
        super().__init__(lib.moi_moe_decode_plan_create, lib.moi_moe_decode_run, ctx, desc, args, (x, routing, gate_up, down))
        self.grouped_from = lib.moi_moe_decode_grouped_from(self.plan)


# ---- timing: events around one call, L2 full of clean lines of something else ----

class Timer:
    def __init__(self):
        self.flush = torch.ones(256 << 20, dtype=torch.int16, device="cuda")
        self.sink = torch.zeros(1, dtype=torch.int64, device="cuda")

    def cold(self):
        self.sink += self.flush.view(torch.int64).sum()

    def __call__(self, call, times=30):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        us = []
        for _ in range(times):
            self.cold()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            call()
            b.record()
            torch.cuda.synchronize()
            us.append(1e3 * a.elapsed_time(b))
        us.sort()
        return statistics.median(us), us[len(us) // 10], us[-1 - len(us) // 10]


def machine():
    """commit, date, device, driver, clocks as a CSV line begins"""
    try:
        smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"], capture_output=True,
                             text=True).stdout.strip().replace(", ", ",")
    except OSError:
        smi = "?,?,?,?"
    return ",".join([os.environ.get("MOIETY_COMMIT", "unknown"), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), smi])
