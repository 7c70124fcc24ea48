#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moiety quantize: what it writes, what it refuses, and that nothing half-written stays.
. "$(dirname "$0")/support"
. "$(dirname "$0")/files_support"
m=$MOIETY
file in "{$(tensor model.norm.weight BF16 32 0 64),$(tensor a.q_proj.weight BF16 32,32 64 2112),$(tensor b.k_proj.weight BF16 4,64 2112 2624)}" 2624 277
size() { wc -c <"$1"; }
nothing_left() { [ -z "$(ls -A | grep '\.part$')" ] || fail "a temporary file is left"; }

expect 0 "made: 2 of 3 tensors as mxfp8" $m quantize in made --format mxfp8 --quiet
grep -q MB err && fail "--quiet is not quiet"
expect 0 "2 of 3 tensors as mxfp4" $m quantize in out4 --format mxfp4 --round floor
grep -q "MB/s" err || fail "no progress on stderr"
expect 0 "2 of 3 tensors as mxfp6" $m quantize in out6 --format mxfp6
expect 0 "2 of 3 tensors as fp8-block" $m quantize in outb --format fp8-block
[ "$(size out4)" -lt "$(size out6)" ] && [ "$(size out6)" -lt "$(size made)" ] && [ "$(size made)" -lt "$(size in)" ] || fail "sizes"
expect 0 "1 of 3 tensors" $m quantize in keep --format mxfp8 --keep k_proj,nothing
expect 0 '"quantized": 2' $m quantize in made --format mxfp8 --json --quiet
expect 0 '"ratio": 0.' $m quantize in made --format mxfp8 --json --quiet
cp made before

expect 2 "--format" $m quantize in made
expect 2 "OUT" $m quantize in --format mxfp8
expect 2 "mxfp9" $m quantize in made --format mxfp9
expect 2 "--round is for the mx formats" $m quantize in made --format fp8-block --round even
expect 1 "none: No such file" $m quantize none out --format mxfp8
expect 1 "the same file" $m quantize in in --format mxfp8
expect 1 "got a file quantised to mxfp8" $m quantize made again --format mxfp4
expect 1 "No such file" $m quantize in none/out --format mxfp8
expect 1 "no regular file" $m quantize in /dev/null --format mxfp8
head -c 200 in >cut
expect 1 "truncated?" $m quantize cut made --format mxfp8
file odd "{$(tensor a.q_proj.weight BF16 2,33 0 132)}" 132 277
expect 1 "multiple of 32, got 33" $m quantize odd made --format mxfp8
file none_linear "{$(tensor a.norm.weight BF16 4 0 8)}" 8 277
expect 0 "0 of 1 tensors" $m quantize none_linear copy --format mxfp8
grep -q "no linear weights" err || fail "no warning"
file large "{$(tensor model.norm.weight U8 2097152 0 2097152)}" 2097152 001
(ulimit -f 1024; $m quantize large made --format mxfp8 --quiet >limit 2>&1); [ $? = 1 ] || fail "a full disk is no error"
cmp -s made before || fail "a failure touched the old file"
nothing_left

# Ctrl-C in the middle of a large (and sparse) file
rows=204800
file big "{$(tensor a.q_proj.weight BF16 $rows,1024 0 $((rows * 2048)))}" 0 0
truncate -s +$((rows * 2048)) big
$m quantize big bigout --format mxfp8 --quiet 2>err &
pid=$!
until ls -A | grep -q '\.part$' || ! kill -0 $pid 2>/dev/null; do :; done
kill -INT $pid
wait $pid
[ $? = 130 ] || fail "Ctrl-C does not end with 130"
grep -q "stopped; bigout was not written" err || fail "Ctrl-C says nothing"
[ ! -e bigout ] || fail "a stopped conversion left its output"
nothing_left
exit 0
