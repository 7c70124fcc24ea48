#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bench times what is right, refuses what is wrong, and says which cases it does not understand.
. "$(dirname "$0")/support"
m=$MOIETY
expect 0 "0 refused" $m bench all --quick --csv all.csv
head -1 all.csv | grep -q '^commit,date,machine,threads,isa,op,row,case' || fail "the CSV file has other columns"
columns=$(head -1 all.csv | tr -cd , | wc -c)
awk -F, -v n=$((columns + 1)) 'NF != n { exit 1 }' all.csv || fail "a line of the CSV file has another number of columns"
for op in quantize dequantize gemm ggemm moe moe_decode model; do grep -q ",$op," all.csv || fail "nothing was measured of $op"; done
# a wrong result is not timed
for op in quantize dequantize gemm ggemm moe moe_decode model; do
    expect 1 "0 timed" $m bench $op --quick --corrupt
    grep -q REFUSED out || fail "$op times a wrong result"
done
expect 0 "gemm_ref" $m bench gemm --quick --rows gemm_ref
expect 0 "gemm_ref" $m bench gemm --quick --rows all
expect 1 "REFUSED" $m bench gemm --quick --rows no_such_row
# own shapes
printf 'm,n,k,format\n3,5,64,mxfp8\n' >shapes.csv
expect 0 "3x5x64 mxfp8>f32" $m bench gemm --quick --shapes shapes.csv
printf 'm,n,k,format\n3,5,64,fp99\n' >shapes.csv
expect 1 "unknown format" $m bench gemm --quick --shapes shapes.csv
printf 'm,n,k,format\n3,5\n' >shapes.csv
expect 1 "shapes.csv: line 2" $m bench gemm --quick --shapes shapes.csv
expect 1 "none.csv: No such file" $m bench gemm --quick --shapes none.csv
printf 'm,n,k,format\n-3,5,64,mxfp8\n' >shapes.csv
expect 1 "REFUSED" $m bench gemm --quick --shapes shapes.csv
# rows of the GPU: tests/cli/emulated.sh times them
[ -n "${FAKE_CUDA_RUN:-}" ] || $m info --backend cuda >/dev/null 2>&1 || expect 1 "no NVIDIA driver" $m bench decode --backend cuda
expect 0 "moe_decode_fast" $m bench decode --quick --backend cpu
# usage
expect 2 "OP is missing" $m bench
expect 2 "OP must be one of" $m bench everything
expect 2 "--threads must be from 0 to 1024, got 2000" $m bench gemm --threads 2000
expect 2 "--threads must be a whole number, got 'two'" $m bench gemm --threads two
expect 2 "--csv needs a value" $m bench gemm --csv
expect 1 "nowhere/x.csv: No such file" $m bench gemm --quick --csv nowhere/x.csv
exit 0
