#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moiety tokenize: lines, JSON, back again, conversations, folders without a tokeniser.
. "$(dirname "$0")/support"
m=$MOIETY
golden=$root/tests/golden/tokenizer
printf 'Hello, world!\n\n  int x;\t\n<|im_end|>' >text
expect 0 "" $m tokenize "$golden" text
[ "$(wc -l <out)" -eq 4 ] || fail "4 lines of text gave $(wc -l <out) lines of ids"
[ "$(sed -n 4p out)" = 3002 ] || fail "<|im_end|> is $(sed -n 4p out)"
[ -z "$(sed -n 2p out)" ] || fail "an empty line has ids"
cp out ids
$m tokenize "$golden" <text | cmp -s - ids || fail "standard input gives other ids"
$m tokenize "$golden" - <text | cmp -s - ids || fail "- gives other ids"
expect 0 "" $m tokenize "$golden" ids --decode
printf '\n' >>text
cmp -s out text || fail "back again, the text is another"
expect 0 "" $m tokenize "$golden" text --plain
grep -q 3002 out && fail "--plain does not"
# one text, exactly
expect 0 '"ids":[3002],"pieces":["<|im_end|>"]' sh -c "printf '<|im_end|>' | $m tokenize $golden --json"
printf 'a\000\n\r\n\tb\343\201\202 \360\237\221\215\n\n' >exact
expect 0 '"pieces":["a"' $m tokenize "$golden" exact --json
cp out back
expect 0 '{"text":"a\u0000\n\r\n\tbあ 👍\n\n"}' $m tokenize "$golden" back --json --decode
expect 0 '{"text":""}' sh -c "echo '[]' | $m tokenize $golden --json --decode"
expect 0 '{"hex":"' sh -c "echo '[133]' | $m tokenize $golden --json --decode"
# a conversation
printf 'Hi\n' >hi
expect 0 "3001 " $m tokenize "$golden" hi --chat
expect 0 '"<|im_end|>","Ċ","<|im_start|>"' $m tokenize "$golden" hi --chat --json
expect 0 '"<think>"' $m tokenize "$golden" hi --chat --no-thinking --json
# bytes
mkdir bytes other empty
echo '{"vocab_size": 256}' >bytes/config.json
echo '{"vocab_size": 300}' >other/config.json
expect 0 "97 0 98 255" sh -c "printf 'a\\000b\\377' | $m tokenize bytes"
expect 0 '{"ids":[97]}' sh -c "printf a | $m tokenize bytes --json"
expect 0 "abc" sh -c "echo '97,98 99' | $m tokenize bytes --decode"
expect 1 "no chat template" $m tokenize bytes hi --chat
expect 1 "a vocabulary of 300 tokens needs" $m tokenize other hi
expect 1 "--ids" $m tokenize other hi
expect 1 "no tokenizer.json" $m tokenize empty hi
expect 1 "none" $m tokenize none hi
# what is wrong
cp "$golden/tokenizer.json" other
head -c 5000 "$golden/tokenizer.json" >empty/tokenizer.json
expect 1 "empty/tokenizer.json: not valid JSON" $m tokenize empty hi
expect 1 "line 2: wanted ids, got 'x'" sh -c "printf '1\\nx' | $m tokenize $golden --decode"
expect 1 "wanted ids, got '-1'" sh -c "echo -1 | $m tokenize $golden --decode"
expect 1 "wanted ids, got '99999999999'" sh -c "echo 99999999999 | $m tokenize $golden --decode"
expect 1 "wanted a JSON list of ids" sh -c "echo 7 | $m tokenize $golden --decode --json"
expect 1 "ids[1]: wanted an id" sh -c "echo '[1,true]' | $m tokenize $golden --decode --json"
expect 1 "nofile: No such file" $m tokenize "$golden" nofile
expect 1 "cannot be read to its end" $m tokenize "$golden" .
expect 2 "MODEL is missing" $m tokenize
expect 2 "one argument too many" $m tokenize "$golden" a b
expect 2 "--no-thinking needs --chat" $m tokenize "$golden" hi --no-thinking
expect 2 "--decode goes with neither" $m tokenize "$golden" hi --decode --chat
exit 0
