#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moiety info plan: which row, why, which tile; on this machine and for a GPU that need not be there.
. "$(dirname "$0")/support"
m=$MOIETY
MOI_BACKEND=cpu; export MOI_BACKEND
expect 2 "OP is missing" $m info plan
expect 2 "OP must be one of gemm|ggemm, got 'sum'" $m info plan sum
expect 2 "--sms must be from 1 to 4096, got 0" $m info plan gemm --sms 0
expect 0 "gemm_fast: chosen" $m info plan gemm --arch cpu --m 64 --n 128 --k 256
expect 0 "gemm_few: chosen" $m info plan gemm --a bf16 --b mxfp4 --m 1 --n 128 --k 256
expect 0 "|D - exact| <= 260 2^-24 (S), S = sum |A B|, + half a unit of bf16" $m info plan gemm --m 64 --n 128 --k 256
expect 1 "a and b must have one recipe" $m info plan gemm --a mxfp8 --b blk128
# of few rows, the reduction is cut in parts; fewer multiprocessors do without
expect 0 "reduction in 2 parts" $m info plan gemm --arch sm_90a --row gemm_sm90 --m 64 --n 2112 --k 7168
expect 0 "BN=32 STAGES=12 CLUSTER=1 SPLIT=2 TURNS=1 BOXES=1" $m info plan gemm --arch sm_90a --row gemm_sm90 --m 64 --n 2112 --k 7168 --layout col
expect 0 "20 of 100" $m info plan gemm --arch sm_90a --row gemm_sm90 --m 64 --n 2112 --k 7168 --sms 100 --sm-limit 20
grep -q "in 2 parts" out && fail "a product on few multiprocessors is cut in parts"
# 256 tiles for pairs of blocks: four rounds of 66, or of 64; 80: five of 17, or of 16; 2048 leave two over, which are cut for all
wide="$m info plan gemm --arch sm_90a --row gemm_sm90 --b blk128w --layout col"
expect 0 "blocks           128 at most" $wide --m 4096 --n 4096 --k 7168
expect 0 "blocks           132 at most" $wide --m 4096 --n 32768 --k 512
expect 0 "blocks           32 at most" $wide --m 4096 --n 1280 --k 512 --sm-limit 34
expect 0 "GROUPS=3" $m info plan ggemm --arch sm_90a --row ggemm_sm90 --group masked --groups 4 --rows 4096 --expected 1024 --n 7168 --k 2048
expect 0 "SWIGLU=1 ACT_ELEM=4 ACT_MX=0" $m info plan ggemm --arch sm_90a --row ggemm_sm90 --n 4096 --k 7168 --swiglu blk128 --gather 4096
expect 0 "SWIGLU=1 ACT_ELEM=3" $m info plan ggemm --arch sm_90a --row ggemm_sm90 --a bf16 --b bf16 --n 4096 --k 7168 --swiglu bf16
expect 0 "SCATTER=1" $m info plan ggemm --arch sm_90a --row ggemm_sm90 --n 7168 --k 2048 --scatter 4096
expect 0 "both operands become BF16" $m info plan ggemm --arch sm_90a --row ggemm_sm90 --group k --a mxfp8 --out f32 --accumulate
expect 0 "since the last multiple of 256" $m info plan gemm --arch sm_90a --row gemm_sm90 --a mxfp8 --mx row --m 4096 --n 4096 --k 7168
expect 0 "the reduction must be a multiple of 16 bytes" $m info plan gemm --arch sm_90a --row gemm_sm90 --k 72
expect 0 "is not written for this device's capability" $m info plan gemm --arch sm_100a --row gemm_sm90
exit 0
