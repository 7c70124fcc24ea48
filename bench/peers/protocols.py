# SPDX-License-Identifier: Apache-2.0
"""How the products' benches time, choose and report.

flush      30 calls, before each L2 filled by reading 512 MB; events
cool       20 calls, before each a memset of 8 GB; events
sustained  back to back for 0.8 s, mean of the second half (p10, p90: of its tenths); with --turns, all contenders in turn so often, and of their
           means the median (p10, p90: the least and the most), for at its power limit a card's clock differs by a tenth from one second to the next;
           a window that does not count comes first, since who follows a pause is up to 4 % slower
kernel     as flush under the profiler: the device time of the call's kernels alone, for calls of a few microseconds
once       one call, nothing measured: compiles what the peers compile when they are first called"""
import argparse
import fnmatch
import math
import statistics
import time

import torch

import moiety as m

ORDER = ("flush", "cool", "kernel", "sustained", "once")
HEAD = "commit,date,device,driver,sm_clock,mem_clock,table,case,what,protocol,median_us,p10_us,p90_us,tflops,gb_s,sm_mhz,watt,rel_error"


def spread(us):
    us = sorted(us)
    return statistics.median(us), us[len(us) // 10], us[-1 - len(us) // 10]


def pairs(n):
    return [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]


class Clock:
    def __init__(self):
        self.timer, self.chill = m.Timer(), None
        self.smi = None
        try:
            import pynvml
            pynvml.nvmlInit()
            self.smi, self.gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:
            pass

    def state(self):
        """SM clock and power now"""
        if not self.smi:
            return 0, 0.0
        return self.smi.nvmlDeviceGetClockInfo(self.gpu, self.smi.NVML_CLOCK_SM), self.smi.nvmlDeviceGetPowerUsage(self.gpu) / 1e3

    def each(self, call, before, times):
        for _ in range(3):
            call()
        before()
        torch.cuda.synchronize()
        ev = pairs(times)
        for a, b in ev:
            before()
            a.record()
            call()
            b.record()
        torch.cuda.synchronize()
        return spread([1e3 * a.elapsed_time(b) for a, b in ev])

    def flush(self, call):
        return self.each(call, self.timer.cold, 30) + self.state()

    def cool(self, call):
        if self.chill is None:
            self.chill = torch.empty(2_000_000_000, dtype=torch.int32, device="cuda")
        return self.each(call, self.chill.zero_, 20) + self.state()

    def sustained(self, call):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        a, b = pairs(1)[0]
        a.record()
        for _ in range(3):
            call()
        b.record()
        torch.cuda.synchronize()
        n = max(20, int(0.8e6 / (1e3 * a.elapsed_time(b) / 3)))
        step = max(1, n // 20)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(11)]
        for _ in range(n // 2):
            call()
        marks[0].record()
        for mark in marks[1:]:
            for _ in range(step):
                call()
            mark.record()
        state = self.state()
        while not marks[-1].query():
            state = self.state()
            time.sleep(0.005)
        torch.cuda.synchronize()
        tenths = spread([1e3 * a.elapsed_time(b) / step for a, b in zip(marks, marks[1:])])
        return (1e3 * marks[0].elapsed_time(marks[-1]) / (10 * step),) + tenths[1:] + state

    def kernel(self, call):
        own = set(self.profiled(lambda: None, 2))
        per = {k: v for k, v in self.profiled(call, 20).items() if k not in own}
        if not per:
            raise RuntimeError("the profiler saw no kernel")
        parts = [(spread(v), len(v) / 20) for v in per.values()]
        return tuple(sum(us[i] * share for us, share in parts) for i in range(3)) + self.state()

    def profiled(self, call, times):
        from torch.profiler import ProfilerActivity, profile
        for _ in range(2):
            self.timer.cold()
            call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            for _ in range(times):
                self.timer.cold()
                call()
            torch.cuda.synchronize()
        per = {}
        for e in prof.events():
            if str(e.device_type).endswith("CUDA"):
                per.setdefault(e.name, []).append(e.time_range.elapsed_us())
        return per


def options(doc, tables):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?", default="/dev/null", help="CSV file")
    p.add_argument("--tables", default=",".join(tables), help="some of " + ",".join(tables))
    p.add_argument("--cases", default="*", help="patterns of case names, comma-separated: '64x*,4096x7168x16384'")
    p.add_argument("--protocols", help="some of " + ",".join(ORDER) + "; unless given: flush,kernel up to 128 rows, else flush,cool,sustained")
    p.add_argument("--turns", type=int, default=1, help="how often sustained is timed, all contenders in turn")
    p.add_argument("--peers", default="*", help="patterns of peers' names; none: ours alone")
    p.add_argument("--rows", default="", help="rows of the library to time, comma-separated; unless given: the one it chooses; none: peers alone")
    p.add_argument("--layout", default="col", choices=("col", "row"), help="of the scales of blk128 vectors")
    p.add_argument("--mx-layout", default="tiled", choices=("tiled", "row", "col"))
    p.add_argument("--no-verify", action="store_true")
    p.add_argument("--part", default="0/1", help="i/n: every n-th case from the i-th on")
    opt = p.parse_args()
    if opt.turns < 1:
        p.error(f"argument --turns: at least 1 is wanted, got {opt.turns}")
    return opt


LAYOUT = {"row": m.ROW, "tiled": m.TILED, "col": m.COL}


class Report:
    def __init__(self, opt, tables):
        self.opt, self.clock, self.start, self.ratios, self.count = opt, Clock(), m.machine(), {}, -1
        self.tables = [t for t in tables if t in opt.tables.split(",")]
        self.out = open(opt.out, "w")
        print(HEAD, file=self.out)

    def wanted(self, case):
        if not any(fnmatch.fnmatchcase(case, p) for p in self.opt.cases.split(",")):
            return False
        self.count += 1
        i, n = map(int, self.opt.part.split("/"))
        return self.count % n == i

    def peer(self, name):
        return any(fnmatch.fnmatchcase(name, p) for p in self.opt.peers.split(","))

    def ours(self, make):
        """(name, call, check) of each row asked for; make(row) gives (plan, check)"""
        for row in self.opt.rows.split(","):
            if row != "none":
                yield "ours" + (":" + row if row else ""), lambda row=row: make(row.encode() if row else None)

    def tell(self, name, protocol, us, error):
        table, case, flop, nbytes = self.line
        self.result[name, protocol] = us[0]
        rates = f"{flop / us[0] * 1e-6:.1f},{nbytes / us[0] * 1e-3:.0f}"
        print(f"{self.start},{table},{case},{name},{protocol},{us[0]:.2f},{us[1]:.2f},{us[2]:.2f},{rates},{us[3]},{us[4]:.0f},{error:.2e}",
              file=self.out, flush=True)
        print(f"{table:8} {case:24} {name:22} {protocol:9} {us[0]:9.2f} us {flop / us[0] * 1e-6:7.1f} TFLOPS {nbytes / us[0] * 1e-3:5.0f} GB/s "
              f"{us[3]:4} MHz {us[4]:3.0f} W  error {error:.1e}", flush=True)

    def case(self, table, case, flop, nbytes, small, contenders):
        """contenders: (name, make) with make() -> (call, check); check verifies what one call left and gives its error"""
        names = self.opt.protocols.split(",") if self.opt.protocols else ["flush", "kernel"] if small else ["flush", "cool", "sustained"]
        self.result, self.line = {}, (table, case, flop, nbytes)
        later = []
        for name, make in contenders:
            try:
                call, check = make()
                call()
                torch.cuda.synchronize()
                error = check() if check and not self.opt.no_verify and names != ["once"] else math.nan
                for protocol in [p for p in ORDER if p in names and p != "once" and (p != "sustained" or self.opt.turns == 1)]:
                    time.sleep(0.1 if small else 0.4)
                    self.tell(name, protocol, getattr(self.clock, protocol)(call), error)
                if "sustained" in names and self.opt.turns > 1:
                    later.append((name, call, error, []))
                elif hasattr(call, "free"):
                    call.free()
            except Exception as e:
                print(f"{table:8} {case:24} {name:22} {type(e).__name__}: {str(e)[:300]}", flush=True)
        if later:
            self.clock.sustained(later[0][1])
        for _ in range(self.opt.turns):
            for name, call, error, times in later:
                times.append(self.clock.sustained(call))
        for name, call, error, times in later:
            times.sort()
            middle = times[len(times) // 2]
            self.tell(name, "sustained", (statistics.median(us[0] for us in times), times[0][0], times[-1][0]) + middle[3:], error)
            if hasattr(call, "free"):
                call.free()
        for (name, protocol), us in self.result.items():
            for (other, p), theirs in self.result.items():
                if p == protocol and name.startswith("ours") and not other.startswith("ours"):
                    self.ratios.setdefault((table, name, other, protocol), []).append((theirs / us, case))
        torch.cuda.empty_cache()

    def close(self):
        if self.count < 0:
            print("no case has a name like", self.opt.cases)
        for (table, name, other, protocol), r in self.ratios.items():
            worst = min(r)
            print(f"{table:8} {name} against {other:18} {protocol:9} geometric mean {math.exp(sum(math.log(x) for x, _ in r) / len(r)):.3f} of "
                  f"{len(r)}, least {worst[0]:.3f} at {worst[1]}")
        self.out.close()


class Contest:
    """One case of a table: has opt, ctx, dg (deep_gemm or None), flop, bytes, small; ours(row); peers() as [(name, make)]."""

    def __init__(self, ctx, opt, dg, table, size):
        self.ctx, self.opt, self.dg, self.table, self.size = ctx, opt, dg, table, size

    def contenders(self, report):
        yield from report.ours(self.ours)
        for name, make in self.peers():
            if report.peer(name) and (self.dg or not name.startswith("deepgemm")):
                yield name, make


def main(doc, tables, name_of, kind_of):
    """name_of(size) is a case's name, kind_of(table) its class."""
    opt = options(doc, tables)
    ctx, dg = m.context(), deep_gemm()
    print(m.lib.moi_ctx_describe(ctx).decode())
    report = Report(opt, tables)
    for table in report.tables:
        for size in tables[table]:
            if report.wanted(name_of(size)):
                case = kind_of(table)(ctx, opt, dg, table, size)
                report.case(table, name_of(size), case.flop, case.bytes, case.small, case.contenders(report))
                del case
    report.close()


def deep_gemm():
    try:
        import deep_gemm as found
        return found
    except ImportError as e:
        print("no deep_gemm:", str(e)[:200])
        return None
