#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate, perplexity, diff and the example on folders that have a tokeniser.
. "$(dirname "$0")/support"
MOI_CPU_THREADS=1; export MOI_CPU_THREADS # threads that wait for each other are slow where others want the cores
m=$MOIETY
folder=$(dirname "$MOIETY")/tests/cli_folder example=$(dirname "$MOIETY")/examples/generate
# tokenizer FOLDER MERGES ADDED: byte-level BPE; ids 0 to 255 are the bytes, 256 on the merged tokens, then the added ones
tokenizer() {
    awk -v merges="$2" -v added="$3" 'BEGIN {
        printf "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        printf "\"\\\\s*\\\\p{L}+|\\\\s+|.\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        printf "\"trim_offsets\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
        for (b = 0; b < 256; b++) {
            printed = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
            printf "%s\"\\u%04x\":%d", (b ? "," : ""), (printed ? b : 256 + other++), b
        }
        n = split(merges, merge, ";")
        for (i = 1; i <= n; i++) { whole = merge[i]; gsub(" ", "", whole); printf ",\"%s\":%d", whole, 255 + i }
        printf "},\"merges\":["
        for (i = 1; i <= n; i++) printf "%s\"%s\"", (i > 1 ? "," : ""), merge[i]
        printf "]},\"added_tokens\":["
        k = split(added, name, ";")
        for (i = 1; i <= k; i++) printf "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false}", (i > 1 ? "," : ""), 255 + n + i, name[i]
        printf "]}\n"
    }' >"$1/tokenizer.json"
}
i=0
while [ $i -lt 600 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
$m train --data text --out bytes --layers 1 --hidden 32 --width 32 --experts 2 --top-k 1 --heads 2 --kv-heads 1 --batch 2 --seq 64 \
    --eval-batches 1 --threads 1 --lr 0.01 --steps 100 2>err || { cat err; fail "training"; }
# a tokeniser whose tokens are the bytes changes nothing
cp -r bytes tokens && tokenizer tokens "" ""
for how in "--temperature 0" "--seed 4" "--temperature 0 --stop small" "--prompts lines" "--json --print-ids --temperature 0 --tokens 3"; do
    printf 'line 1\nsmall\n' >lines
    case $how in --prompts*) prompt= ;; *) prompt=--prompt=line ;; esac
    # shellcheck disable=SC2086
    for f in bytes tokens; do $m generate $f $prompt --tokens 40 $how 2>err | grep -v second >$f.out || { cat err; fail "generate $how"; }; done
    cmp -s bytes.out tokens.out || { diff bytes.out tokens.out; fail "a tokeniser of bytes generates other text: $how"; }
done
for f in bytes tokens; do $m perplexity $f --data text --limit 300 --window 64 --stride 32 --json --quiet | grep -v second >$f.out; done
cmp -s bytes.out tokens.out || { diff bytes.out tokens.out; fail "a tokeniser of bytes scores otherwise"; }
expect 0 "KL(A||B) 0 nats" $m diff bytes tokens --data text --limit 100
# the example prints what the program prints
for f in bytes tokens; do
    $m generate $f --prompt "line 1" --temperature 0 --tokens 40 >cli.out 2>err || fail "generate $f"
    "$example" $f "line 1" 40 >example.out || fail "the example on $f"
    cmp -s cli.out example.out || { cat cli.out example.out; fail "the example prints something else"; }
done
expect 1 "none" "$example" none text
expect 2 "usage:" "$example"
# a vocabulary with merged and special tokens
"$folder" make big 300 1 || fail "no folder was made"
tokenizer big "l i;li n;lin e" "<|endoftext|>;<|im_start|>;<|im_end|>"
prompt_ids() { # prompt_ids OPTIONS...: the ids of the prompt
    $m generate big --tokens 1 --print-ids --json "$@" 2>err | tr -d ' \n' | sed 's/.*"prompt_ids":\[\([0-9,]*\)\].*/\1/'
}
same() { [ "$1" = "$2" ] || { cat err; fail "wanted ids $2, got $1"; }; }
same "$(prompt_ids --prompt "line li")" "258,32,256"
same "$(prompt_ids --prompt "<|im_start|>a")" "260,97"
same "$(prompt_ids --prompt "$(printf '\346\227\245\377')")" "230,151,165,239,191,189" # what is no UTF-8 becomes U+FFFD
same "$(prompt_ids --ids 258)" "258"
expect 1 "big" $m generate big --chat --prompt a # it has no template
echo '{"chat_template": "<|im_start|>{{role}}<|im_end|>"}' >big/tokenizer_config.json
same "$(prompt_ids --chat --prompt li)" "260,117,115,101,114,10,256,261,10,260,97,115,115,105,115,116,97,110,116,10"
same "$(prompt_ids --chat --prompt li --system a)" "260,115,121,115,116,101,109,10,97,261,10,260,117,115,101,114,10,256,261,10,260,97,115,115,105,115,116,97,110,116,10"
printf 'li\nline\n' >lines
expect 0 "==> 2 of 2 <==" $m generate big --chat --prompts lines --tokens 3 --temperature 0
grep -q im_start out && fail "--chat prints the template"
expect 1 "enable_thinking" $m generate big --chat --prompt a --no-thinking
expect 1 "the prompt is empty" $m generate big
expect 1 "the prompt is empty" $m generate big --prompt ""
# the reference's ids: a line of tests/golden, a conversation
"$folder" make golden 3072 1 || fail "no folder was made"
cp "$root"/tests/golden/tokenizer/tokenizer.json "$root"/tests/golden/tokenizer/tokenizer_config.json "$root"/tests/golden/tokenizer/generation_config.json golden
line="Hello, world! The model's weights are 8 bits wide; don't panic."
ids=39,68,75,295,11,1213,769,0,1214,1097,812,1233,881,220,23,969,311,758,26,303,269,6,83,323,281,339,13
expect 0 '"prompt"' $m generate golden --prompt "$line" --tokens 1 --print-ids --json
tr -d ' \n' <out | grep -qF "\"prompt_ids\":[$ids]" || { cat out; fail "other ids than the reference"; }
printf '%s' "$line" >line
expect 0 '"tokens": 26' $m perplexity golden --data line --json
cp out by_text
expect 0 '"tokens": 26' $m perplexity golden --ids "$ids" --json
[ "$(grep '"loss"' out)" = "$(grep '"loss"' by_text)" ] || fail "text and its ids have different losses"
$m generate golden --prompt "$line" --temperature 0 --tokens 20 --print-ids --ignore-eos >by_text 2>err
$m generate golden --ids "$ids" --temperature 0 --tokens 20 --print-ids --ignore-eos 2>err | cmp -s - by_text || fail "text and its ids are continued differently"
expect 0 '"ended"' $m generate golden --chat --no-thinking --prompt Hi --tokens 2 --json
# text of tokens that are no whole characters is still UTF-8; ids of special tokens and nobody's ids are no text
if command -v iconv >/dev/null; then
    for f in big golden; do
        $m generate $f --prompt line --temperature 5 --ignore-eos 2>err | iconv -f UTF-8 -t UTF-8 >/dev/null || fail "the output is no UTF-8"
    done
fi
# it ends at the end token of the folder, wherever that is written
id=$($m generate big --prompt line --temperature 0 --tokens 1 --print-ids 2>err)
echo "{\"eos_token_id\": $id}" >big/generation_config.json
expect 0 '"ended": "eos"' $m generate big --prompt line --temperature 0 --tokens 9 --json
expect 0 '"tokens": 1' $m generate big --prompt line --temperature 0 --tokens 9 --json
expect 0 '"ended": "length"' $m generate big --prompt line --temperature 0 --tokens 9 --json --ignore-eos
rm big/generation_config.json
# bits per byte count the bytes of the tokens that were scored: "line" is one token of four bytes
printf 'xline li' >few
expect 0 '"tokens": 3' $m perplexity big --data few --json
awk -v l="$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)" -v b="$(sed -n 's/.*"bits_per_byte": \([0-9.]*\).*/\1/p' out)" \
    'BEGIN { d = b / (l * 3 / log(2) / 7) - 1; exit !(d < 1e-6 && d > -1e-6) }' || { cat out; fail "bits per byte"; }
expect 0 "3 tokens" $m diff big big --data few
: >empty
expect 1 "empty has 0 bytes, 0 tokens; at least 2 are needed" $m perplexity big --data empty
exit 0
