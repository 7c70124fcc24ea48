#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# diff: a model is no distance from itself, the perplexities are those of `moiety perplexity`, and the two sides are told apart.
. "$(dirname "$0")/support"
MOI_CPU_THREADS=1; export MOI_CPU_THREADS # threads that wait for each other are slow where others want the cores
m=$MOIETY
folder=$(dirname "$MOIETY")/tests/cli_folder
"$folder" make a 300 1 && "$folder" make b 300 2 && "$folder" make other 301 1 && "$folder" make bytes 256 1 || fail "no folders were made"
ids=$(awk 'BEGIN { x = 7; for (i = 0; i < 60; i++) { printf "%d ", x; x = (x * 31 + 11) % 300 } }')
field() { sed -n "s/.*\"$2\": \\(-\\{0,1\\}[0-9.e+-]*\\).*/\\1/p" "$1"; }
expect 0 "the same likeliest token 100.00 %; perplexity +0.0000 %; 59 tokens" $m diff a a --ids "$ids"
grep -q "KL(A||B) 0 nats per token, at most 0;" out || { cat out; fail "a model differs from itself"; }
expect 0 '"kl": 0.0,' $m diff a a --ids "$ids" --window 16 --stride 5 --json --quiet
[ -s err ] && fail "--quiet is not quiet"
# two models, both ways round
expect 0 '"tokens": 59' $m diff a b --ids "$ids" --window 16 --stride 5 --recipe f32 --json
cp out ab
expect 0 '"tokens": 59' $m diff b a --ids "$ids" --window 16 --stride 5 --recipe f32 --json
cp out ba
for x in a b; do
    expect 0 '"tokens": 59' $m perplexity $x --ids "$ids" --window 16 --stride 5 --recipe f32 --json
    [ "$(field out perplexity)" = "$(field ab perplexity_$x)" ] || { cat ab out; fail "diff has another perplexity of $x"; }
done
[ "$(field ab perplexity_a)" = "$(field ba perplexity_b)" ] && [ "$(field ab perplexity_b)" = "$(field ba perplexity_a)" ] || fail "the sides are mixed up"
[ "$(field ab top1_agreement)" = "$(field ba top1_agreement)" ] || fail "agreement is the same both ways"
[ "$(field ab kl)" != "$(field ba kl)" ] || fail "KL is not symmetric"
awk -v a="$(field ab kl)" -v b="$(field ba kl)" -v c="$(field ab perplexity_change)" -v d="$(field ba perplexity_change)" \
    'BEGIN { exit !(a > 0 && b > 0 && c + d < 1e-5 && c + d > -1e-5) }' || { cat ab ba; fail "divergences are above 0, changes are opposite"; }
awk -v a="$(field ab perplexity_a)" -v b="$(field ab perplexity_b)" -v p="$(field ab perplexity_change_percent)" \
    'BEGIN { d = 100 * (b / a - 1) - p; exit !(d < 1e-3 && d > -1e-3) }' || { cat ab; fail "the change in percent"; }
# the same folder in two recipes: near, not the same
expect 0 '"recipe_b": "mx32"' $m diff a a --ids "$ids" --recipe f32 --recipe-b mx32 --json
awk -v k="$(field out kl)" 'BEGIN { exit !(k > 0 && k < 1) }' || { cat out; fail "MXFP8 is not near FP32"; }
# what conversion costs
for format in mxfp8 fp8-block mxfp4; do
    $m quantize a a-$format --format $format >out 2>&1 || { cat out; fail "quantising to $format"; }
    expect 0 '"tokens": 59' $m diff a a-$format --ids "$ids" --json
    field out kl >$format
    expect 0 "KL(A||B) 0 nats" $m diff a-$format a-$format --ids "$ids"
done
awk -v b="$(cat fp8-block)" -v m="$(cat mxfp8)" -v f="$(cat mxfp4)" 'BEGIN { exit !(b > 0 && m > 0 && f > b && f > m) }' ||
    { cat fp8-block mxfp8 mxfp4; fail "4 bits must cost more than 8, and both something"; }
expect 0 '"tokens": 20' $m diff a b --ids "$ids" --limit 20 --json
printf 'some text\n' >text
expect 0 "9 tokens" $m diff bytes bytes --data text
# a window of several pieces of logits
"$folder" make wa 300 1 400 && "$folder" make wb 300 2 400 || fail "no folders were made"
many=$(awk 'BEGIN { x = 7; for (i = 0; i < 301; i++) { printf "%d ", x; x = (x * 31 + i) % 300 } }')
for x in wa wb; do
    expect 0 '"tokens": 300' $m perplexity $x --ids "$many" --window 300 --json
    field out perplexity
done >alone
expect 0 '"tokens": 300' $m diff wa wb --ids "$many" --window 300 --json
{ field out perplexity_a; field out perplexity_b; } | cmp -s - alone || { cat out alone; fail "perplexities of several pieces"; }
expect 1 "the vocabularies differ: a has 300 tokens, other has 301" $m diff a other --ids "$ids"
expect 1 "give token ids with --ids" $m diff a b --data text
expect 1 "none" $m diff a none --ids "$ids"
expect 1 "--ids: token id 300 is outside" $m diff a b --ids "1 300"
expect 2 "MODEL_B is missing" $m diff a --ids "$ids"
expect 2 "--data or --ids is missing" $m diff a b
expect 2 "--stride must not be larger" $m diff a b --ids "1 2" --window 2 --stride 3
exit 0
