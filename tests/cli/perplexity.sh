#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Perplexity is the one of its definition, for any window and stride; the logits it writes give the same number again.
. "$(dirname "$0")/support"
MOI_CPU_THREADS=1; export MOI_CPU_THREADS # threads that wait for each other are slow where others want the cores
m=$MOIETY
folder=$(dirname "$MOIETY")/tests/cli_folder
"$folder" make run 256 1 && "$folder" make big 300 2 || fail "no folders were made"
i=0
while [ $i -lt 40 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1"; }
near() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; exit !(d <= e && -d <= e && a > 0) }'; } # near A B ERROR
# one number for the file, whole or up to a limit, in every recipe
expect 0 "bits per byte" $m perplexity run --data text --window 64
for r in f32 bf16 mx32 blk128; do
    expect 0 '"perplexity"' $m perplexity run --data text --seq 64 --json --quiet --recipe $r
    [ -s err ] && fail "--quiet is not quiet"
    loss out
done >losses
awk 'NR == 1 { a = $1 } { d = $1 / a - 1; if (d < -0.05 || d > 0.05) bad = 1 } END { exit bad || NR != 4 }' losses ||
    { cat losses; fail "the loss of a recipe is far from that of f32"; }
expect 0 "\"tokens\": $(($(wc -c <text) - 1))" $m perplexity run --data text --window 64 --json
awk -v l="$(loss out)" -v b="$(sed -n 's/.*"bits_per_byte": \([0-9.]*\).*/\1/p' out)" 'BEGIN { d = l / log(2) / b - 1; exit !(d < 1e-6 && d > -1e-6) }' ||
    fail "a byte is a token: bits per byte are the loss"
expect 0 '"tokens": 100' $m perplexity run --data text --limit 100 --window 64 --json
# each window and stride against the definition, and the same again from the logits written
ids=$(awk 'BEGIN { x = 7; for (i = 0; i < 60; i++) { printf "%d ", x; x = (x * 31 + 11) % 300 } }')
echo "$ids" | tr ' ' '\n' >idfile
for ws in "8 8" "8 3" "16 1" "64 64" "64 5" "5 4" "59 20" "1 1"; do
    window=${ws% *} stride=${ws#* }
    # shellcheck disable=SC2086
    "$folder" slow big "$window" "$stride" $ids >slow || fail "the definition"
    expect 0 '"tokens": 59' $m perplexity big --ids "$ids" --window "$window" --stride "$stride" --recipe f32 --json --dump-logits dump
    defined=$(sed 's/.* //' slow)
    # FP32 sums in another order: some units of 2^-24 of logits below 100
    near "$(loss out)" "$defined" 2e-5 || { cat slow out; fail "window $window, stride $stride"; }
    "$folder" read dump >dumped || fail "the dump cannot be read"
    grep -q "^59 tokens, 300, " dumped || { cat dumped; fail "the dump has another shape"; }
    near "$(sed 's/.* //' dumped)" "$(loss out)" 1e-7 || { cat dumped out; fail "the dumped logits have another loss"; }
    expect 0 '"tokens": 59' $m perplexity big --ids @idfile --window "$window" --stride "$stride" --recipe f32 --json
    near "$(loss out)" "$defined" 2e-5 || { cat slow out; fail "window $window, stride $stride from a file"; }
done
# more than a window's logits are never held: 300 predictions take several pieces
"$folder" make wide 300 3 400 || fail "no folder was made"
many=$(awk 'BEGIN { x = 7; for (i = 0; i < 301; i++) { printf "%d ", x; x = (x * 31 + i) % 300 } }')
for ws in "300 300" "150 140"; do
    window=${ws% *} stride=${ws#* }
    # shellcheck disable=SC2086
    "$folder" slow wide "$window" "$stride" $many >slow || fail "the definition"
    expect 0 '"tokens": 300' $m perplexity wide --ids "$many" --window "$window" --stride "$stride" --recipe f32 --json --dump-logits dump
    near "$(loss out)" "$(sed 's/.* //' slow)" 2e-5 || { cat slow out; fail "window $window, stride $stride"; }
    near "$("$folder" read dump | sed 's/.* //')" "$(loss out)" 1e-7 || fail "the dumped logits of several pieces have another loss"
done
grep -q bits_per_byte out && fail "ids without text have no bytes"
expect 0 "11 tokens" $m perplexity big --ids "$ids" --limit 11 --dump-logits dump
"$folder" read dump | grep -q "^11 tokens" || fail "--limit does not limit the dump"
expect 0 "1 tokens" $m perplexity big --ids "0 299"
# what is wrong is said
expect 1 "big has no tokenizer.json, and its vocabulary of 300 tokens is not the 256 bytes; give token ids with --ids" $m perplexity big --data text
: >empty
expect 1 "at least 2 are needed" $m perplexity run --data empty
printf x >one
expect 1 "one has 1 bytes, 1 tokens; at least 2 are needed" $m perplexity run --data one
expect 1 "--ids has 1 token; at least 2 are needed" $m perplexity big --ids 1
expect 1 "empty: no token id in it" $m perplexity big --ids @empty
expect 1 "--ids: token id 300 is outside the vocabulary of 300 tokens" $m perplexity big --ids "1 300"
expect 1 "none: No such file" $m perplexity run --data none
expect 1 "none" $m perplexity none --data text
expect 2 "--data or --ids is missing" $m perplexity run
expect 2 "--data and --ids cannot both be given" $m perplexity run --data text --ids 1
expect 2 "--stride must not be larger than the window" $m perplexity run --data text --window 8 --stride 9
expect 1 "max_position_embeddings" $m perplexity run --data text --window 65
expect 1 "missing/dump" $m perplexity big --ids "1 2 3" --dump-logits missing/dump
# text that is no UTF-8 is bytes like others
printf 'a\377\376b\000c' >binary
expect 0 "5 tokens" $m perplexity run --data binary
# Ctrl-C shows what was scored so far, and leaves no half a file
i=0
while [ $i -lt 10 ]; do cat text text text text; i=$((i + 1)); done >long
rm -f dump dumped
$m perplexity run --data long --window 64 --stride 1 --dump-logits dump >partly 2>progress &
pid=$!
n=0
until grep -qs "  token " progress; do n=$((n + 1)); [ $n -lt 300 ] || { kill $pid; fail "nothing was scored"; }; sleep 0.1; done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || { cat partly progress; fail "Ctrl-C did not end with 130"; }
grep -q perplexity partly || fail "Ctrl-C does not show what was scored"
grep -q "dump was not written" progress || fail "Ctrl-C does not tell of the dump"
[ -e dump ] && fail "Ctrl-C left a file"
[ "$(find . -name '*dump*' | wc -l)" -eq 0 ] || fail "Ctrl-C left a temporary file"
exit 0
