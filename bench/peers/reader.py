# SPDX-License-Identifier: Apache-2.0
"""The limit of memory: stream.cu, a plain streaming read of as many bytes, the best of its launch shapes."""
import ctypes
import os
import statistics
import subprocess
import time

import torch

import moiety as m

SHAPES = ((132 * 2, 1024), (132 * 4, 512), (132 * 8, 256), (132 * 16, 256), (132 * 32, 512))


TURNS, REPS, WARM, PAUSE = 5, 8, 0.02, 0.06


def captured(calls):
    """A graph of the calls, and how many they are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph, len(calls)


def one_turn(graph, calls, cool):
    """Behind work of another kind a card is slower for some hundredths of a second, which does not count; cool: behind a pause, then, and two replays, for many
    tokens bring a card to its limit of power within a second."""
    if cool:
        time.sleep(PAUSE)
    start, warm = time.perf_counter(), 0
    while warm < 2 if cool else time.perf_counter() - start < WARM:
        graph.replay()
        torch.cuda.synchronize()
        warm += 1
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPS)]
    for a, b in events:
        a.record()
        graph.replay()
        b.record()
    torch.cuda.synchronize()
    return [1e3 * a.elapsed_time(b) / calls for a, b in events]


def in_turns(graphs, turns=TURNS, cool=False):
    """Microseconds of one call of each graph: median, p10, p90.  They take turns, there and back, so that what slows the card down meets all of them."""
    us = [[] for _ in graphs]
    for turn in range(turns):
        for i in range(len(graphs))[::-1 if turn % 2 else 1]:
            us[i] += one_turn(*graphs[i], cool)
    return [(statistics.median(v), sorted(v)[len(v) // 10], sorted(v)[-1 - len(v) // 10]) for v in us]


def graph_time(calls, turns=TURNS):
    return in_turns([captured(calls)], turns)[0]


class Reader:
    def __init__(self, room):
        here = os.path.dirname(os.path.abspath(__file__))
        so = "/tmp/libstream.so"
        subprocess.check_call(["nvcc", "-O3", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC", "-o", so, os.path.join(here, "stream.cu")])
        self.lib = ctypes.CDLL(so)
        self.lib.stream_launch.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        self.buffer = torch.randint(-2**31, 2**31 - 1, (room // 4,), dtype=torch.int32, device="cuda")
        self.sink = torch.zeros(4, dtype=torch.int32, device="cuda")

    def one(self, at, size, blocks, threads):
        m.check(self.lib.stream_launch(self.buffer.data_ptr() + at, size, self.sink.data_ptr(), blocks, threads, m.stream()))

    def reads(self, size, times):
        """A graph of so many reads, by the launch shape that is fastest: each of bytes of its own, or where these are more than there is room for, in turn."""
        size = size // 16 * 16
        gap = -(-size // 256) * 256
        places = self.buffer.numel() * 4 // gap
        assert places > 1 or times == 1, f"no room for two reads of {size} bytes"
        graphs = [captured([lambda i=i: self.one(i % places * gap, size, *shape) for i in range(times)]) for shape in SHAPES]
        us = [us[0] for us in in_turns(graphs, 2)]
        return graphs[us.index(min(us))]

    def call(self, size, timer):
        """One such read as a call, by the launch shape that `timer` finds fastest with a cold L2."""
        calls = [lambda shape=shape: self.one(0, size // 16 * 16, *shape) for shape in SHAPES]
        return min(calls, key=lambda call: timer(call)[0])
