#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moiety inspect: ranges, filters, errors, quantised files, hostile files.
. "$(dirname "$0")/support"
. "$(dirname "$0")/files_support"
m=$MOIETY
# BF16 0xBFBF is -1.4921875
file in "{$(tensor model.norm.weight U8 64 0 64),$(tensor a.q_proj.weight BF16 32,32 64 2112),$(tensor empty F32 0,3 2112 2112)}" 2112 277
expect 0 "3 of 3 tensors" $m inspect in
expect 0 "-1.492       -1.492        1.492        2.227         0         0           0" $m inspect in --tensor q_proj
expect 0 "  -         0         0           0" $m inspect in --tensor empty
expect 0 "mxfp8 error" $m inspect in --error mxfp8
expect 0 '"mean_square": 2.22662354' $m inspect in --json
expect 0 '"min": null' $m inspect in --json
for f in mxfp8 mxfp4 mxfp6 fp8-block; do
    expect 0 '"relative_error": 0.0' $m inspect in --error $f --json
    $m quantize in q --format $f --quiet >/dev/null
    expect 0 "moiety.format $f" $m inspect q
    expect 0 "its values" $m inspect q
    expect 0 '"dequantized": {' $m inspect q --json --tensor q_proj
done
# NaN (0xFFFF) and zeros
file nan "{$(tensor a.q_proj.weight BF16 1,32 0 64)}" 64 377
expect 0 '"nan": 32' $m inspect nan --json --error mxfp8
file zero "{$(tensor a.q_proj.weight F16 1,32 0 64)}" 64 000
expect 0 '"zeros": 32' $m inspect zero --json --error mxfp4
# names a terminal would obey
file evil "{$(tensor '\u001b[2Jx' U8 1 0 1)}" 1 001
expect 0 "?[2Jx" $m inspect evil
expect 1 "no tensor of in has 'zzz'" $m inspect in --tensor zzz
expect 1 "none: No such file" $m inspect none
expect 1 "no regular file" $m inspect .
head -c 100 in >cut
expect 1 "truncated?" $m inspect cut
printf 'hello world, this is no such file' >text
expect 1 "not a safetensors file?" $m inspect text
expect 2 "FILE" $m inspect
expect 2 "mxfp9" $m inspect in --error mxfp9
exit 0
