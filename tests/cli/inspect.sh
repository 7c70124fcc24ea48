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
expect 1 "./model.safetensors: No such file" $m inspect .
# a folder: its index and shards, or its one file
mkdir folder
cp in folder/model-1.safetensors
cp nan folder/other.safetensors
file folder/model-2.safetensors "{$(tensor b.norm.weight BF16 1,32 0 64)}" 64 377
index() { printf '{"weight_map": {"a.q_proj.weight": "%s", "b.norm.weight": "model-2.safetensors"}}' "$1" >folder/model.safetensors.index.json; }
index model-1.safetensors
expect 0 "4 of 4 tensors in 2 files" $m inspect folder
grep -q "b.norm.weight" out && grep -q "a.q_proj.weight" out || fail "a tensor of a folder is missing"
expect 0 "1 of 4 tensors in 2 files" $m inspect folder --tensor q_proj --error mxfp8
expect 0 '"file": "folder/model-2.safetensors"' $m inspect folder --tensor b.norm --json
expect 0 '"tensors_in_folder": 4' $m inspect folder --json
expect 1 "no tensor of folder has 'zzz'" $m inspect folder --tensor zzz
for name in ../in /etc/passwd ..; do
    index "$name"
    expect 1 "wanted plain names of files in this folder" $m inspect folder
done
index gone.safetensors
expect 1 "gone.safetensors: No such file" $m inspect folder
echo '{"weight_map": 7}' >folder/model.safetensors.index.json
expect 1 '"weight_map": wanted an object' $m inspect folder
head -c 20 folder/model-1.safetensors >folder/model.safetensors.index.json
expect 1 "model.safetensors.index.json" $m inspect folder
rm folder/model.safetensors.index.json
cp in folder/model.safetensors
expect 0 "3 of 3 tensors in 1 files" $m inspect folder
head -c 100 in >cut
expect 1 "truncated?" $m inspect cut
printf 'hello world, this is no such file' >text
expect 1 "not a safetensors file?" $m inspect text
expect 2 "FILE" $m inspect
expect 2 "mxfp9" $m inspect in --error mxfp9
exit 0
