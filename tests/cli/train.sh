#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training learns, saves, stops on Ctrl-C, goes on with the same bits, and survives kill -9.
. "$(dirname "$0")/support"
m=$MOIETY
i=0
while [ $i -lt 600 ]; do echo "line $((i % 7)) of a small text that repeats itself"; i=$((i + 1)); done >text
small="--layers 1 --hidden 64 --width 64 --experts 2 --top-k 1 --heads 2 --kv-heads 1 --batch 4 --seq 64 --eval-batches 1 --threads 1"
train() { # train DIR OPTIONS...
    dir=$1
    shift
    # shellcheck disable=SC2086
    $m train --data text --out "$dir" $small "$@"
}
train_behind() { # the same, replacing the shell that & starts, so that $! is the program
    dir=$1
    shift
    # shellcheck disable=SC2086
    exec $m train --data text --out "$dir" $small "$@"
}
value() { sed -n "s/.*\"$2\": \\([^,]*\\).*/\\1/p" "$1"; }
steps_in() { tail -1 "$1/losses.csv" | cut -d, -f1; }
wait_for() { # wait_for DIR STEP: until the losses have reached it
    n=0
    until [ -s "$1/losses.csv" ] && [ "$(steps_in "$1" | tr -cd 0-9)" -ge "$2" ] 2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 1200 ] || fail "step $2 was not reached"
        sleep 0.1
    done
}
# usage and input errors
expect 2 "--out is missing" $m train --data text
expect 2 "--data is missing" $m train --out d
expect 2 "--recipe must be one of" train d --recipe fp1
expect 2 "--steps must be from 1" train d --steps 0
expect 2 "--lr cannot change with --resume" $m train --resume --data text --out d --lr 1
expect 1 "trainer.json" $m train --resume --data text --out d
expect 1 "none" $m train --data none --out d
: >plain
expect 1 "plain/run" train plain/run --steps 1
[ ! -e d ] || fail "a failed start left a folder"
expect 1 "is no number" train wild --steps 60 --lr 10 --weight-decay 10 --warmup 0 --recipe f32
# it learns, in each recipe, and says so
for recipe in f32 bf16 mx32 blk128; do
    train $recipe --recipe $recipe --steps 12 --eval-every 4 --json >$recipe.json 2>err || { cat err; fail "training in $recipe"; }
    awk -v a="$(value $recipe.json first_validation_loss)" -v b="$(value $recipe.json last_validation_loss)" 'BEGIN { exit !(b < a) }' ||
        fail "the validation loss of $recipe did not fall"
    [ "$(value $recipe.json recipe)" = "\"$recipe\"" ] || fail "the summary names another recipe"
    [ "$(wc -l <$recipe/losses.csv)" -eq 14 ] || fail "$recipe/losses.csv does not have one line a step"
done
expect 1 "holds a run already" train f32 --steps 12
# Ctrl-C: the step is finished, saved, and the exit code is 130; --resume goes on with the same bits as a run without a break
train whole --steps 400 --eval-every 0 2>err || { cat err; fail "the whole run"; }
train_behind broken --steps 400 --eval-every 0 --save-every 0 2>err &
pid=$!
wait_for broken 5
kill -INT $pid
wait $pid
[ $? -eq 130 ] || { cat err; fail "Ctrl-C did not end with 130"; }
grep -q "resume goes on" err || fail "Ctrl-C did not say how to go on"
at=$(steps_in broken)
[ "$at" -lt 400 ] || fail "the run ended before it was stopped"
expect 0 "broken: 400 steps" $m train --resume --data text --out broken --threads 1 --eval-every 0 --eval-batches 1
[ "$(steps_in broken)" -eq 400 ] || fail "the resumed run did not end at step 400"
cut -d, -f1-3 whole/losses.csv >w
cut -d, -f1-3 broken/losses.csv >b
cmp -s w b || { diff w b | head; fail "the resumed run differs from the whole one"; }
cmp -s whole/model.safetensors broken/model.safetensors || fail "the weights of the resumed run differ"
# kill -9 loses nothing but the steps since the last save
train_behind killed --steps 400 --eval-every 0 --save-every 20 2>/dev/null &
pid=$!
wait_for killed 30
kill -9 $pid
wait $pid 2>/dev/null
expect 0 "killed: 400 steps" $m train --resume --data text --out killed --threads 1 --eval-every 0 --eval-batches 1
cut -d, -f1-3 killed/losses.csv >k
cmp -s w k || { diff w k | head; fail "the run after kill -9 differs from the whole one"; }
cmp -s whole/model.safetensors killed/model.safetensors || fail "the weights after kill -9 differ"
exit 0
