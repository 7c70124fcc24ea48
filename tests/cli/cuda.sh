#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The CUDA back end without a GPU: each thing that may be missing is named in one line; kernels compile ahead of time within what they
# state of themselves.
. "$(dirname "$0")/support"
m=$MOIETY build=$(dirname "$MOIETY") fake=$(dirname "$MOIETY")/tests/fake
export MOI_CACHE="$work/cache"
unset MOI_BACKEND MOI_NVRTC MOI_KERNELS
with() { LD_LIBRARY_PATH="$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"; }

# a driver that is none, old, without a device, with an old device, or good
if ! $m info --backend cuda >/dev/null 2>&1; then
    expect 1 "no NVIDIA driver: libcuda.so.1" $m info --backend cuda
    expect 0 "cpu: " $m info
    [ -s err ] && fail "info complains where there is no GPU"
fi
FAKE_CUDA_VERSION=12040; export FAKE_CUDA_VERSION
expect 1 "the driver is too old: it runs CUDA 12.4 and 12.8 or newer is needed" with $m info --backend cuda
expect 0 "the cuda back end is not used: cuda: the driver is too old" with $m info
unset FAKE_CUDA_VERSION
FAKE_CUDA_DEVICES=0; export FAKE_CUDA_DEVICES
expect 1 "there is a driver but no CUDA device" with $m info --backend cuda
unset FAKE_CUDA_DEVICES
FAKE_CUDA_CAPABILITY=75; export FAKE_CUDA_CAPABILITY
expect 1 "device 0 has compute capability 7.5; 8.0 or newer is needed" with $m info --backend cuda
unset FAKE_CUDA_CAPABILITY
FAKE_CUDA_MEMORY=1000; export FAKE_CUDA_MEMORY
expect 1 "moi_ctx_create: no memory for 65536 bytes on the device" with $m info --backend cuda
expect 0 "the cuda back end is not used: moi_ctx_create: no memory" with $m info
unset FAKE_CUDA_MEMORY
expect 0 "cuda: Fake GPU 0, capability 9.0, 2 SMs" with $m info
expect 0 "quantize_plain" with $m info --json
MOI_BACKEND=cuda; export MOI_BACKEND
expect 1 "runs no models" with $m train --data "$root/tests/cli/support" --out run
expect 1 "of rows of the GPU it times moe_decode, got quantize" with $m bench quantize --quick
unset MOI_BACKEND

# contexts, buffers, capture: the calls that a driver would see
MOIT_GPU=1; export MOIT_GPU
expect 0 "5 test(s)" with "$build/tests/test_cuda_run"
grep -q SKIPPED out err && fail "the tests did not run on the stand-in"
unset MOIT_GPU

# a compiler that is missing or too old
MOI_NVRTC=$work; export MOI_NVRTC
expect 1 "there is no NVRTC 12.8 or newer" $m kernels compile --out kernels
MOI_NVRTC=$fake
expect 1 "libnvrtc.so.12 is version 12.4" $m kernels compile --out kernels
unset MOI_NVRTC

expect 0 "quantize_plain" $m kernels list --arch sm_90a
expect 1 "no kernel is written for 'sm_35'" $m kernels list --arch sm_80,sm_35
expect 2 "compile needs --out" $m kernels compile
expect 2 "list takes no --out" $m kernels list --out kernels
$m kernels list | awk '$1 == "quantize_plain" { n++ } END { exit !(n >= 3) }' || fail "a kernel is not listed for each of its architectures"

expect 2 "--part wants I/N with I from 0 to N - 1, got '4/4'" $m kernels list --part 4/4
expect 2 "got '1/4x'" $m kernels list --part 1/4x
for i in 0 1 2; do $m kernels list --part $i/3; done | sort >parts
$m kernels list | sort | cmp - parts || fail "the parts are not all kernels"

# kernels for every arch that their rows state: no spills, no local memory, registers as stated; all of them take half an hour of one core, so a
# fifth ("kernels compile" without --part: all).  What was compiled before is kept in build/kernels, whose entries are named by their contents.
if $m info --json | grep -q '"nvrtc": "1[2-9]\.'; then
    ahead=$build/../kernels part=$(share 5)/5
    echo "kernels: part $part"
    expect 0 "kernels, " $m kernels compile --part "$part" --out "$ahead"
    grep -q ' [1-9][0-9]* bytes local' out && fail "a kernel uses local memory"
    expect 0 " 0 compiled in" $m kernels compile --part "$part" --out "$ahead"
    touch plain
    expect 1 "cannot write to plain: Not a directory" $m kernels compile --arch sm_90a --out plain
else
    echo "no NVRTC: kernels were not compiled"
fi
exit 0
