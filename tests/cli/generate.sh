#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generating is a function of the seed, stops on Ctrl-C; perplexity does not depend on how a file is cut into batches.
. "$(dirname "$0")/support"
m=$MOIETY
i=0
while [ $i -lt 600 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
$m train --data text --out run --layers 1 --hidden 32 --width 32 --experts 2 --top-k 1 --heads 2 --kv-heads 1 --batch 2 --seq 32 \
    --eval-batches 1 --threads 1 --steps 10 2>err || { cat err; fail "training"; }
# prompt first; the same seed, the same text
expect 0 "line" $m generate run --prompt line --tokens 20 --seed 7
cp out first
expect 0 "line" $m generate ./run --prompt line --tokens 20 --seed 7
cmp -s out first || fail "the same seed gives another text"
grep -q "20 tokens" err || fail "the speed is not shown"
expect 0 "" $m generate run --prompt line --tokens 20 --seed 8
cmp -s out first && fail "another seed gives the same text"
[ "$(wc -c <first)" -eq 25 ] || fail "4 bytes of prompt, 20 of text and a new line make 25, got $(wc -c <first)"
expect 0 '"prompt": "line"' $m generate run --prompt line --tokens 5 --json
expect 0 "" $m generate run --tokens 3
for r in f32 bf16 mx32 blk128; do expect 0 "line" $m generate run --prompt line --tokens 8 --temperature 0 --recipe $r; done
expect 1 "none" $m generate none
expect 2 "MODEL is missing" $m generate
expect 2 "--top-p must be from" $m generate run --top-p 2
mkdir bad && echo '{' >bad/config.json
expect 1 "bad/config.json" $m generate bad
# Ctrl-C
$m generate run --tokens 4000 >long 2>err &
pid=$!
n=0
until [ -s long ]; do n=$((n + 1)); [ $n -lt 300 ] || fail "nothing was generated"; sleep 0.1; done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "Ctrl-C did not end with 130"
# perplexity: one number for the file, whole or up to a limit
expect 0 "bits per byte" $m perplexity run --data text
for r in f32 bf16 mx32 blk128; do
    expect 0 '"perplexity"' $m perplexity run --data text --seq 64 --json --quiet --recipe $r
    [ -s err ] && fail "--quiet is not quiet"
    sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out
done >losses
awk 'NR == 1 { a = $1 } { d = $1 / a - 1; if (d < -0.05 || d > 0.05) bad = 1 } END { exit bad || NR != 4 }' losses ||
    { cat losses; fail "the loss of a recipe is far from that of f32"; }
expect 0 "$(($(wc -c <text) - 1))" $m perplexity run --data text --json
expect 0 '"tokens": 100' $m perplexity run --data text --limit 100 --json
: >empty
expect 1 "at least 2 are needed" $m perplexity run --data empty
expect 1 "none: No such file" $m perplexity run --data none
expect 2 "--data is missing" $m perplexity run
exit 0
