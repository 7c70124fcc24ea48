# SPDX-License-Identifier: Apache-2.0
"""Operands of the products' benches: made by moi_quantize on the GPU, read back as float64, handed to the peers in their layouts."""
import math

import torch

import moiety as m

ELEM = {m.E4M3: torch.float8_e4m3fn, m.E5M2: torch.float8_e5m2, m.BF16: torch.bfloat16, m.F32: torch.float32}
PLAIN_BF16 = m.Format(m.RECIPE_BF16, m.BF16)


def act(layout=m.COL):
    return m.Format(m.RECIPE_BLK128, m.E4M3, layout=layout)


def weight():
    return m.Format(m.RECIPE_BLK128, m.E4M3, m.SQUARE)


def mx(layout=m.TILED, elem=m.E4M3):
    return m.Format(m.RECIPE_MX32, elem, layout=layout)


class Matrix:
    """[batch,] rows x cols with blocks along cols; cuts: the row offsets (a list) of ragged groups along cols, or None."""

    def __init__(self, fmt, data, scale, rows, cols, batch=1, cuts=None):
        self.fmt, self.data, self.scale, self.rows, self.cols, self.batch, self.cuts = fmt, data, scale, rows, cols, batch, cuts
        self.bytes = data.numel() * data.element_size() + (scale.numel() if scale is not None else 0)

    def operand(self):
        return m.Operand(self.data.data_ptr(), m.pointer(self.scale), 0)

    def codes(self):
        """[batch * rows, cols] in the element's own type"""
        if self.cuts is None:
            return self.data.view(ELEM[self.fmt.elem]).view(-1, self.cols)
        size, start = 128 if self.fmt.recipe == m.RECIPE_BLK128 else 32, torch.tensor(self.cuts, device=self.data.device)
        t = torch.arange(self.cols, device=self.data.device)
        g = torch.searchsorted(start, t, right=True) - 1
        place = (start[g] // size + g) * size + t - start[g]
        return self.data.view(self.rows, -1)[:, place].view(ELEM[self.fmt.elem])

    def block_of(self):
        """which scale of a row each column takes"""
        size = 128 if self.fmt.recipe == m.RECIPE_BLK128 else 32
        t = torch.arange(self.cols, device=self.data.device)
        if self.cuts is None:
            return t // size
        start = torch.tensor(self.cuts, device=t.device)
        g = torch.searchsorted(start, t, right=True) - 1
        return (t - start[g]) // size + start[g] // size + g

    def part(self, i):
        """matrix i alone"""
        scale = self.scale.view(self.batch, -1)[i] if self.scale is not None else None
        return Matrix(self.fmt, self.data[i * self.rows:(i + 1) * self.rows], scale, self.rows, self.cols)

    def scales(self, i=0):
        """matrix i's scales [rows (or rows / 128), blocks] as they are stored, in the order that the format's layout says"""
        size = 128 if self.fmt.recipe == m.RECIPE_BLK128 else 32
        blocks = self.cols // size + len(self.cuts) - 1 if self.cuts else -(-self.cols // size)
        rows = -(-self.rows // 128) if self.fmt.block == m.SQUARE else self.rows
        s = self.scale.view(self.batch, -1)[i]
        s = s.view(torch.float32) if self.fmt.recipe == m.RECIPE_BLK128 else s
        if self.fmt.layout == m.ROW:
            return s.view(rows, blocks)
        if self.fmt.layout == m.COL:
            return s.view(blocks, -1)[:, :rows].t()
        t = s.view(-(-rows // 128), -(-blocks // 4), 32, 4, 4).permute(0, 3, 2, 1, 4)
        return t.reshape(-(-rows // 128) * 128, -1)[:rows, :blocks]

    def exact(self, first=0, last=None, i=0):
        """rows first..last of matrix i, dequantised, float64"""
        last = self.rows if last is None else last
        q = self.codes()[i * self.rows + first:i * self.rows + last].double()
        if self.scale is None:
            return q
        s = self.scales(i)
        s = torch.exp2(s.double() - 127) if s.dtype == torch.uint8 else s.double()
        if self.fmt.block == m.SQUARE:
            s = s[torch.arange(first, last, device=s.device) // 128]
        else:
            s = s[first:last]
        return q * s[:, self.block_of()]


def quantized(ctx, x, fmt, offsets=None, colwise=False, mx=0):
    """x [batch,] rows x cols in fmt; colwise: the transposed matrix, blocks along rows, cut at offsets if given; mx: which of its scales are equal."""
    rows, cols = x.shape[-2:]
    batch = x.shape[0] if x.dim() == 3 else 1
    if fmt.recipe == m.RECIPE_BF16:
        return Matrix(fmt, x.view(-1, cols), None, rows, cols, batch)
    groups = offsets.numel() - 1 if offsets is not None and colwise else 0
    q = m.Quantize(ctx, x, fmt, m.COLWISE if colwise else m.ROWWISE, groups=groups, offsets=offsets if groups else None,
                   mx=0 if colwise else mx, col_mx=mx if colwise else 0)
    q()
    torch.cuda.synchronize()
    side = 1 if colwise else 0
    made = Matrix(fmt, q.data[side], q.scale[side], cols if colwise else rows, rows if colwise else cols, batch, offsets.tolist() if groups else None)
    q.free()
    return made


def rebased(ctx, a):
    """a, mx32, with one scale for each row"""
    out = Matrix(a.fmt, torch.empty_like(a.data), torch.empty_like(a.scale), a.rows, a.cols, a.batch)
    desc = m.RebaseDesc(size=m.c.sizeof(m.RebaseDesc), format=a.fmt, group=0, max_rows=a.rows, cols=a.cols)
    plan = m.c.c_void_p()
    m.check(m.lib.moi_rebase_plan_create(m.c.byref(plan), ctx, m.c.byref(desc)))
    args = m.RebaseArgs(size=m.c.sizeof(m.RebaseArgs), rows=a.rows, input=a.operand(), out=out.operand())
    m.check(m.lib.moi_rebase_run(plan, m.c.byref(args), None, 0, m.stream()))
    torch.cuda.synchronize()
    m.lib.moi_plan_free(plan)
    return out


def poison(d):
    """so that an element nobody writes is found"""
    d.view(torch.uint8).fill_(0xFF)
    return d


class Wrong(RuntimeError):
    pass


def verify(d, a, b, rows_a=(0, None), i=0, codes=False, room_bits=6):
    """d [m, n] against A B_i^T in float64.  Returns the relative error (Frobenius); raises where an element is further off than its
    rounding to BF16 plus 2^-6 |A_r| |B_c| / sqrt(k): far more than the error of promoted accumulators, far less than a wrong tile's."""
    first, last = rows_a[0], a.rows if rows_a[1] is None else rows_a[1]
    y = b.codes()[i * b.rows:(i + 1) * b.rows].double() if codes else b.exact(i=i)
    width, k, bad, err, ref = y.norm(dim=1), max(1, y.shape[1]), 0, 0.0, 0.0
    for r in range(first, last, 4096):
        e = min(last, r + 4096)
        x = a.codes()[r:e].double() if codes else a.exact(r, e)
        want = x @ y.t()
        off = (d[r - first:e - first].double() - want).abs()
        room = want.abs() * 2.0 ** -8 + x.norm(dim=1)[:, None] * width[None] * (2.0 ** -room_bits / math.sqrt(k))
        bad += int((~(off <= room)).sum())
        err += float((off * off).sum())
        ref += float((want * want).sum())
    if bad:
        raise Wrong(f"{bad} of {(last - first) * b.rows} elements are wrong")
    return math.sqrt(err / ref) if ref else 0.0


# ---- in the peers' layouts, the same numbers ----

def mn_major(s):
    """scales [..., rows, blocks] stored column by column, each padded to 16 bytes"""
    rows = s.shape[-2]
    out = torch.zeros(*s.shape[:-2], s.shape[-1], -(-rows // 4) * 4, device=s.device)
    out[..., :rows] = s.transpose(-1, -2)
    return out[..., :rows].transpose(-1, -2)


def peer_act(a):
    return a.codes(), mn_major(a.scales())


def peer_weight(b):
    s = torch.stack([b.scales(i) for i in range(b.batch)]).contiguous()
    return (b.codes(), s[0]) if b.batch == 1 else (b.codes().view(b.batch, b.rows, b.cols), s)


def peer_ragged(a):
    """a column-cut matrix as groups one behind the other, each [rows, its columns] dense, and the scales [rows, blocks]"""
    cuts = a.cuts
    data = torch.cat([a.codes()[:, o:e].reshape(-1).view(torch.uint8) for o, e in zip(cuts, cuts[1:])]).view(torch.float8_e4m3fn)
    blocks = [o // 128 + g + j for g, (o, e) in enumerate(zip(cuts, cuts[1:])) for j in range(-(-(e - o) // 128))]
    return data, mn_major(a.scales()[:, torch.tensor(blocks, device=data.device)])
