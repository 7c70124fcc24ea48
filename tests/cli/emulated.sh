#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels themselves without a GPU: device code runs on the emulated device, and a selection of the cases that run on a GPU compares what it
# leaves with the reference.
. "$(dirname "$0")/support"
build=$(dirname "$MOIETY")
[ -f "$build/tests/emulator/libemulator.so" ] || { echo "this variant has no emulated device"; exit 0; } # sanitizers do not follow its fibres
fifth=$(share 5) # all of them take half an hour
echo "cases: fifth $fifth"
emulated() { # emulated TEST EVERY PART: a whole test program, some of its cases
    MOIT_EVERY=$2 MOIT_PART=$3 "$root/tests/emulated" "$build" "$build/tests/$1" >"$1.out" 2>&1 || { cat "$1.out"; fail "$1 on the emulated device"; }
    ! grep SKIPPED "$1.out" || fail "$1 skipped what the emulated device can do"
}
checked() { (EMU_CHECK=1; export EMU_CHECK; emulated "$@") || exit 1; } # with the search for races
a_share() { at=$((${at:-0} + 1)); [ $((at % 5)) -ne "$fifth" ] || "$@"; } # every fifth of them
tickets() { with_multiprocessors 132 "$1" test_tensor_tickets 1 "$2/80"; } # so many have the same tiles in turn
with_multiprocessors() { (EMU_MULTIPROCESSORS=$1; export EMU_MULTIPROCESSORS; shift; "$@") || exit 1; }

decode() {
    a_share emulated test_decode 97 0/1
    a_share emulated test_decode_slots 97 0/1
    a_share with_multiprocessors 132 emulated test_decode 98 0/1 # blocks that have nothing to do
    for n in 181 607 623 724 737; do a_share emulated test_decode_sweep $n 0/1; done
    for n in 842 858; do a_share emulated test_decode_sweep $n 0/1; done # wide experts: down in several launches, scales byte by byte
    for n in 147 151 154; do a_share emulated test_decode_logits $n 0/1; done # 151, 154: close logits, more of them than a warp has room for
    a_share emulated test_decode_logits 168 0/1 # close logits of 330 experts, in eights
    a_share emulated test_route 1 0/1
    a_share emulated test_permute 1 0/1
    a_share emulated test_decode_grouped 13 0/1
    a_share checked test_decode_logits 147 0/1
    a_share checked test_decode_logits 97 0/1
    a_share checked test_decode_sweep 737 0/1
    a_share checked test_decode_sweep 881 0/1 # BF16, many tokens
    a_share checked test_decode_sweep 1007 0/1 # MXFP4, many tokens
}
(decode) &
decode=$!

a_share emulated test_quantize 97 0/1
a_share emulated test_quantize_equal 61 0/1
a_share emulated test_quantize_rows 97 0/1
a_share with_multiprocessors 1 emulated test_swiglu 14 0/1 # a few rows are work for many rounds of blocks there
a_share emulated test_dequantize 1 0/1
bench() { "$root/tests/emulated" "$build" "$MOIETY" bench decode --backend cuda --quick "$@"; }
expect 0 "3 timed, 0 refused" bench --csv bench.csv
grep -q ',Fake GPU 0,[0-9]*,capability 9.0,moe_decode,moe_decode_f16_sm90,t9 h512 f128 e8 top2 blk128w,' bench.csv || fail "the bench of rows of the GPU writes other lines"
expect 1 "0 timed, 3 refused" bench --corrupt
a_share emulated test_tensor_products 1 3/997
a_share emulated test_tensor_products 1 34/997 # BF16 in clusters among its products
a_share emulated test_tensor_cases 1 27/80 # FP32 by boxes, a block of rows shared by both warpgroups
a_share emulated test_tensor_cases 1 53/80 # a reduction in groups with one scale for each part of a row
a_share emulated test_tensor_cases 1 9/80 # cut tiles, with the bits of others; few tiles
a_share emulated test_tensor_cases 1 33/80 # tiles drawn by tickets that are added to
a_share emulated test_tensor_cases 1 3/997 # ragged rows that end within 16 bytes, with room behind them
a_share tickets emulated 2 # more groups than are looked at at a time, of few and of many rows
a_share tickets emulated 4 # groups of many rows among empty ones, sums that are added to
a_share tickets emulated 7 # sums of products with one scale a row, groups of many rows among such of few
a_share tickets emulated 3 # groups of which most are empty; one matrix in clusters; masked groups whose scales the tensor cores multiply
a_share tickets emulated 9 # a last tile that is cut; broad tiles of rows with one scale each
a_share tickets emulated 0 # one matrix, masked groups; with a counter that the run clears; with fewer rows than the plan
a_share tickets emulated 1 # sums of one matrix; rows that a list names with a counter that the run clears; ragged ones, fewer
a_share tickets emulated 10 # tiles one below the other in a band
a_share emulated test_tensor_outer 1 0/256 # scales that the tensor cores multiply: how exactly, and with the bits of other blocks
a_share emulated test_tensor_outer 1 2/256 # bytes, those of blocks of zeros
a_share emulated test_tensor_outer 1 4/256 # the bits of masked rows beside scales of rows that do not count
a_share emulated test_tensor_outer 1 37/256 # one matrix
a_share emulated test_tensor_outer 1 197/256 # far ones of one matrix
a_share emulated test_tensor_outer 1 113/256 # bytes among them that are too large for them, the last stage of a group not a whole one
a_share emulated test_ggemm_swiglu 1 3/97
a_share emulated test_ggemm_swiglu 1 0/80 # tiles by tickets
a_share with_multiprocessors 8 checked test_tensor_middle 1 0/3
a_share with_multiprocessors 132 checked test_tensor_cases 1 0/797 # sums that wait for memory, as a few multiprocessors' do not; BF16's boxes, sent by others
a_share checked test_tensor_cases 1 51/80 # few rows with 1x32 scales: groups of every width, their lists
a_share checked test_tensor_cases 1 55/80 # those that end at one
a_share checked test_tensor_cases 1 56/80 # masked ones
a_share checked test_tensor_cases 1 75/80 # one matrix
a_share tickets checked 8 # rows that a list names; a reduction of groups in clusters, whose second blocks acknowledge tickets
a_share checked test_tensor_outer 1 214/256 # of masked groups, bytes
a_share checked test_tensor_outer 1 96/256 # FP32 ones too large for them: stages that threads multiply end those by name
a_share checked test_swiglu 97 0/1
a_share checked test_ggemm_swiglu 1 3/97
wait $decode || fail "decode on the emulated device"
