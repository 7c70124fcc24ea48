#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generating is a function of the seed, prints whole characters, ends where it should, and stops on Ctrl-C.
. "$(dirname "$0")/support"
MOI_CPU_THREADS=1; export MOI_CPU_THREADS # threads that wait for each other are slow where others want the cores
m=$MOIETY
i=0
while [ $i -lt 600 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
$m train --data text --out run --layers 1 --hidden 32 --width 32 --experts 2 --top-k 1 --heads 2 --kv-heads 1 --batch 2 --seq 64 \
    --eval-batches 1 --threads 1 --lr 0.01 --steps 100 2>err || { cat err; fail "training"; }
# prompt first; the same seed, the same text
expect 0 "line" $m generate run --prompt line --tokens 20 --seed 7
cp out first
expect 0 "line" $m generate ./run --prompt line --tokens 20 --seed 7
cmp -s out first || fail "the same seed gives another text"
grep -q "20 tokens" err || fail "the speed is not shown"
expect 0 "" $m generate run --prompt line --tokens 20 --seed 8
cmp -s out first && fail "another seed gives the same text"
[ "$($m generate run --prompt line --tokens 20 --seed 7 --print-ids 2>err | wc -w)" -eq 20 ] || fail "--print-ids does not print 20 ids"
expect 0 '"prompt": "line"' $m generate run --prompt line --tokens 5 --json
expect 0 "" $m generate run --tokens 3
for r in f32 bf16 mx32 blk128; do expect 0 "line" $m generate run --prompt line --tokens 8 --temperature 0 --recipe $r; done
expect 1 "none" $m generate none
expect 2 "MODEL is missing" $m generate
expect 2 "--top-p must be from" $m generate run --top-p 2
mkdir bad && echo '{' >bad/config.json
expect 1 "bad/config.json" $m generate bad
expect 2 "only one of --prompt, --prompts and --ids" $m generate run --prompt a --ids 1
expect 2 "--chat needs text" $m generate run --chat --ids 1
expect 2 "--chat needs a message" $m generate run --chat
expect 2 "--system needs --chat" $m generate run --prompt a --system b
expect 2 "--no-thinking needs --chat" $m generate run --prompt a --no-thinking
expect 2 "--stop must not be empty" $m generate run --stop ""
expect 2 "--stop must not be text that is no UTF-8" $m generate run --stop "$(printf '\303')"
expect 2 "--stop needs a value" $m generate run --stop
expect 1 "run has no tokenizer.json, so no chat template either" $m generate run --chat --prompt hello
# ids: those of the bytes give the same text; what is printed are the ids of what would have been
greedy="--temperature 0 --tokens 12"
# shellcheck disable=SC2086
{
$m generate run --prompt line $greedy 2>err | tail -c +5 >by_text
$m generate run --ids "108, 105 110,,101" $greedy 2>err >by_ids
cmp -s by_text by_ids || fail "--ids gives another text"
$m generate run --prompt line $greedy --print-ids 2>err >ids
[ "$(wc -w <ids)" -eq 12 ] && [ "$(wc -l <ids)" -eq 1 ] || fail "--print-ids does not print 12 ids in a line"
expect 0 '"ids": [' $m generate run --prompt line $greedy --print-ids --json
tr -d ' \n' <out | grep -qF "\"ids\":[$(tr ' ' , <ids)]" || fail "JSON has other ids"
# several prompts: each as if it were alone, sampled too
printf 'line 1\n\nsmall text\r\nitself' >prompts
for how in "$greedy" "--tokens 12 --seed 5"; do
    expect 0 "==> 3 of 3 <==" $m generate run --prompts prompts $how
    $m generate run --prompts prompts $how --print-ids >all 2>err || { cat err; fail "--prompts"; }
    for p in "line 1" "small text" "itself"; do $m generate run --prompt "$p" $how --print-ids; done >alone 2>err
    cmp -s all alone || { diff all alone; fail "prompts of a file are not continued as they are alone"; }
done
expect 0 '"prompt": "small text"' $m generate run --prompts prompts $greedy --json
[ "$(grep -c '"ended": "length"' out)" -eq 3 ] || fail "JSON does not have three results"
printf '108 105 110 101 32 49\n\n115,109,97\n' >idfile
expect 0 "==> 2 of 2 <==" $m generate run --ids @idfile $greedy
# stop strings: of the text that would have come, all before the first of them
$m generate run --prompt "line 1" --temperature 0 --tokens 40 2>err | tail -c +7 >whole
stop=$(cut -c 7-10 whole | head -1)
expect 0 "" $m generate run --prompt "line 1" --temperature 0 --tokens 40 --stop never --stop "$stop" --json
grep -qF '"ended": "stop"' out || fail "the stop string \"$stop\" was not found"
$m generate run --prompt "line 1" --temperature 0 --tokens 40 --stop "$stop" 2>err | tail -c +7 >stopped
awk -v stop="$stop" 'NR == 1 { print substr($0, 1, index($0, stop) - 1) }' whole | cmp -s - stopped || { cat whole stopped; fail "a stop string cuts elsewhere"; }
expect 0 '"ended": "length"' $m generate run --prompt "line 1" --temperature 0 --tokens 12 --stop never --json
}
# end tokens and sampling of generation_config.json
cp -r run ended
first=$(cut -d' ' -f1 ids) later=$(cut -d' ' -f1-12 ids | tr ' ' '\n' | awk -v f="$first" '$1 != f { print; exit }')
echo "{\"eos_token_id\": [$later, 300], \"do_sample\": false}" >ended/generation_config.json
expect 0 '"ended": "eos"' $m generate ended --prompt line --json
$m generate ended --prompt line --print-ids 2>err >eos
[ "$(tr ' ' '\n' <eos | tail -1)" -eq "$later" ] || fail "it did not end at the end token"
[ "$(grep -c . eos)" -eq 1 ] && grep -q "^$(cat eos)" ids || fail "do_sample false is not greedy"
$m generate ended --prompt line --tokens 12 --ignore-eos --print-ids 2>err | cmp -s - ids || fail "--ignore-eos does not go on"
echo '{"temperature": 0.5, "top_k": 1}' >ended/generation_config.json
$m generate ended --prompt line --tokens 12 --print-ids 2>err | cmp -s - ids || fail "top_k of the folder is not used"
$m generate ended --prompt line --tokens 12 --print-ids --top-k 0 --temperature 5 2>err | cmp -s - ids && fail "the command line does not come first"
echo '{"temperature": "warm"}' >ended/generation_config.json
expect 1 "ended/generation_config.json: temperature must be a number from 0 to 100" $m generate ended --prompt line
echo '{"eos_token_id": [1, "x"]}' >ended/generation_config.json
expect 1 "ended/generation_config.json: eos_token_id must be a token id or a list of them" $m generate ended --prompt line
echo '{' >ended/generation_config.json
expect 1 "ended/generation_config.json: line" $m generate ended --prompt line
# whatever bytes the model makes, and whatever the prompt was, the output is UTF-8 (iconv refuses what is not)
if command -v iconv >/dev/null; then
    $m generate run --tokens 400 --temperature 20 --seed 3 2>err | iconv -f UTF-8 -t UTF-8 >/dev/null || fail "the output is no UTF-8"
    $m generate run --prompt "$(printf 'a\377b')" --tokens 5 --json 2>err | iconv -f UTF-8 -t UTF-8 >/dev/null || fail "the JSON is no UTF-8"
fi
# a vocabulary that is not the bytes, without a tokeniser
folder=$(dirname "$MOIETY")/tests/cli_folder
"$folder" make big 300 1 || fail "no folder was made"
expect 1 "big has no tokenizer.json, and its vocabulary of 300 tokens is not the 256 bytes; give token ids with --ids" $m generate big --prompt a
expect 1 "give token ids with --ids" $m generate big
expect 1 "give token ids with --ids" $m generate big --ids 1 --stop a
expect 1 "--ids: token id 300 is outside the vocabulary of 300 tokens" $m generate big --ids "299 300"
expect 1 "--ids: 'x' is no token id" $m generate big --ids "1 x"
expect 1 "--ids: '-1' is no token id" $m generate big --ids=-1
expect 1 "--ids: no token id in it" $m generate big --ids " , "
printf '1 2\n3 4.5\n' >idfile
expect 1 "idfile: line 2: '4.5' is no token id" $m generate big --ids @idfile
: >empty
expect 1 "empty has no prompts" $m generate big --ids @empty
expect 1 "empty has no prompts" $m generate run --prompts empty
expect 1 "none: No such file" $m generate big --ids @none
expect 1 "none: No such file" $m generate run --prompts none
$m generate big --ids "1 299" --tokens 30 --temperature 0 >ids 2>err || { cat err; fail "--ids"; }
[ "$(wc -w <ids)" -eq 30 ] || fail "a folder without text prints ids"
grep -q "30 tokens" err || fail "the speed is not shown"
# as many as the model has positions for, unless another number was asked for
[ "$($m generate big --ids "1 299" 2>err | wc -w)" -eq 62 ] || fail "64 positions take 62 tokens behind 2"
expect 1 "max_position_embeddings" $m generate big --ids "1 299" --tokens 63
# Ctrl-C
$m generate run --tokens 4000 >long 2>err &
pid=$!
n=0
until [ -s long ]; do n=$((n + 1)); [ $n -lt 300 ] || { kill $pid; fail "nothing was generated"; }; sleep 0.1; done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "Ctrl-C did not end with 130"
exit 0
