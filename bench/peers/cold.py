#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first quantisation of a process, with an empty cache of kernels and then with a warm one.

    MOIETY_LIB=build/gpu/libmoiety.so python3 bench/peers/cold.py [OUT.csv]

The compiler's own cache counts too and begins empty.  Timed in a new process each: context, plan and the first run until it has ended, behind the driver's own context and the tensors."""
import os
import subprocess
import sys
import tempfile
import time


def first(want):
    import torch

    import moiety as m

    x = torch.randn(1024, 7168, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    start = time.perf_counter()
    q = m.Quantize(m.context(), x, m.Format(m.RECIPE_MX32, m.E4M3, layout=m.TILED), want)
    q()
    torch.cuda.synchronize()
    print(1e3 * (time.perf_counter() - start))


def main():
    import moiety as m

    with open(sys.argv[1] if len(sys.argv) > 1 else "/dev/null", "w") as out:
        print("commit,date,device,driver,sm_clock,mem_clock,op,case,cache,ms", file=out)
        for want, side in ((1, "rows"), (2, "columns"), (3, "both")):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("empty", "warm"):
                    run = subprocess.run([sys.executable, __file__, "--first", str(want)], env=dict(os.environ, MOI_CACHE=cache, CUDA_CACHE_PATH=os.path.join(cache, "cuda")),
                                         capture_output=True, text=True, check=True)
                    ms = float(run.stdout.split()[-1])
                    print(f"{m.machine()},quantize,1024x7168 bf16>mxfp8 tiled {side},{state},{ms:.1f}", file=out, flush=True)
                    print(f"{side:8} {state:6} {ms:8.1f} ms", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        first(int(sys.argv[2]))
    else:
        main()
