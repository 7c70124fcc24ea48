#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moiety quantize MODEL OUT: folders, what is refused, and kill -9 at many moments.
. "$(dirname "$0")/support"
. "$(dirname "$0")/files_support"
m=$MOIETY
# four files of a layer each (of zeros, which no disk pays for) and one small one
rows=6144 bytes=$((6144 * 2048))
mkdir model
printf '{"model_type": "qwen3_moe", "rms_norm_eps": 1e-06}\n' >model/config.json
echo '{}' >model/tokenizer.json
map=
for i in 1 2 3 4; do
    name=model-0000$i-of-00005.safetensors
    file model/$name "{$(tensor model.layers.$i.mlp.experts.gate_up_proj BF16 4,$((rows / 4)),1024 0 $bytes)}" 0 0
    truncate -s +$bytes model/$name
    map="$map\"model.layers.$i.mlp.experts.gate_up_proj\": \"$name\", "
done
file model/model-00005-of-00005.safetensors "{$(tensor model.norm.weight BF16 32 0 64),$(tensor lm_head.weight BF16 4,32 64 320)}" 320 277
map="$map\"model.norm.weight\": \"model-00005-of-00005.safetensors\", \"lm_head.weight\": \"model-00005-of-00005.safetensors\""
printf '{"metadata": {"total_size": 1, "made": "by hand"}, "weight_map": {%s}}' "$map" >model/model.safetensors.index.json

for format in mxfp8 mxfp4 fp8-block; do
    expect 0 "whole-$format: 32 weights as $format in 5 files (0 were complete)" $m quantize model whole-$format --format $format
    grep -q "MB/s" err || fail "no progress on stderr"
    [ "$(ls -A whole-$format | wc -l)" = 9 ] || fail "$format: files: $(ls -A whole-$format)"
done
grep -q '"made": "by hand"' whole-mxfp8/model.safetensors.index.json || fail "metadata of the index is lost"
grep -q '"rms_norm_eps": 1e-06' whole-mxfp8/config.json || fail "config.json is written otherwise"
grep -q '"mxfp8-quantized"' whole-mxfp8/config.json || fail "no quantization_config"

# once more: nothing is done, nothing changes
cp -r whole-mxfp8 copy
expect 0 "in 5 files (5 were complete)" $m quantize model whole-mxfp8 --format mxfp8
grep -q "5 of 5 files are complete from an earlier run and stay" err || fail "it does not say what it kept"
diff -r copy whole-mxfp8 || fail "a run over a complete folder changed it"
expect 0 '"files_kept": 5' $m quantize model whole-mxfp8 --format mxfp8 --json --quiet
rm -r copy

expect 1 "begun with format \"mxfp8\", not \"mxfp4\"" $m quantize model whole-mxfp8 --format mxfp4
expect 1 "begun with round \"rceil\", not \"even\"" $m quantize model whole-mxfp8 --format mxfp8 --round even
expect 1 "mxfp6 is for single files" $m quantize model new --format mxfp6
expect 1 "wanted a model that is not quantised, got compressed-tensors" $m quantize whole-mxfp8 new --format mxfp4
expect 1 "out must not be in or inside it" $m quantize model model --format mxfp8
expect 1 "out must not be in or inside it" $m quantize model model/sub/out --format mxfp8
(cd model && $m quantize . sub --format mxfp8) 2>err && fail "out inside . is no error"
grep -q "out must not be in or inside it" err || fail "out inside .: $(cat err)"
expect 1 "cannot make the folder" $m quantize model /proc/none/out --format mxfp8
expect 1 "not a safetensors file" $m quantize model/config.json single --format mxfp8
expect 1 "No such file" $m quantize none new --format mxfp8
[ ! -e new ] || fail "a refusal made a folder"

# a disk that is full: an error, and no model; then it goes on
(ulimit -f 4096; $m quantize model full --format mxfp8 --quiet >limit 2>&1); [ $? = 1 ] || fail "a full disk is no error"
grep -q "cannot write full/model-0000" limit || fail "a full disk is not named: $(cat limit)"
[ ! -e full/config.json ] || fail "a full disk left a model"
expect 0 "in 5 files" $m quantize model full --format mxfp8
diff -r full whole-mxfp8 || fail "after a full disk it differs"

# Ctrl-C
$m quantize model stopped --format mxfp8 --quiet 2>err &
pid=$!
until [ -e stopped/model-00001-of-00005.safetensors ] || ! kill -0 $pid 2>/dev/null; do :; done
kill -INT $pid
wait $pid
[ $? = 130 ] || fail "Ctrl-C does not end with 130"
grep -q "stopped; the same command goes on with stopped" err || fail "Ctrl-C says nothing"
[ ! -e stopped/config.json ] || fail "Ctrl-C left a model"
expect 0 "in 5 files" $m quantize model stopped --format mxfp8
diff -r stopped whole-mxfp8 || fail "after Ctrl-C it differs"

# kill -9, each time a little later, until a run comes through by itself; it is never a model before it is whole
n=0 kills=0
while :; do
    $m quantize model killed --format mxfp8 --quiet >/dev/null 2>&1 &
    pid=$!
    sleep "$(awk -v n=$n 'BEGIN { print 0.01 + 0.013 * n }')"
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
    [ $? = 137 ] || break
    if [ -e killed/config.json ]; then
        for f in whole-mxfp8/model*; do cmp -s $f killed/${f#*/} || fail "config.json came before $f"; done
    fi
    n=$((n + 1))
    [ $((n % 6)) -ne 0 ] || rm -rf killed # a fresh start now and then
done
[ $kills -ge 2 ] || fail "only $kills kills"
diff -r killed whole-mxfp8 || fail "after $kills kills it differs"

# what it writes is a model
i=0
while [ $i -lt 300 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
$m train --data text --out trained --layers 1 --hidden 64 --width 64 --experts 2 --top-k 1 --heads 2 --kv-heads 1 --batch 2 --seq 32 \
    --eval-batches 1 --steps 2 --threads 1 >/dev/null 2>&1 || fail "train"
for format in mxfp8 mxfp4 fp8-block; do
    expect 0 "10 weights as $format in 1 files" $m quantize trained small-$format --format $format
    [ ! -e small-$format/optimizer.safetensors ] && [ ! -e small-$format/trainer.json ] || fail "training state was copied"
    expect 0 "perplexity" $m perplexity small-$format --data text --limit 64
done
exit 0
