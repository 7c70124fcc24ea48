#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Wrong usage ends with 2 and names what is wrong; help and info work.
. "$(dirname "$0")/support"
m=$MOIETY
expect 2 "usage: moiety COMMAND" $m
expect 0 "usage: moiety COMMAND" $m --help
expect 0 "moiety $(sed -n 's/^#define MOI_VERSION_[A-Z]* \([0-9]*\)/\1/p' "$root/include/moiety.h" | paste -sd. -)" $m --version
expect 2 "unknown command 'fly'" $m fly
expect 2 "unknown option '--jsn'" $m info --jsn
expect 2 "unknown option '-j'" $m info -j
expect 2 "--json takes no value" $m info --json=1
expect 2 "'more' is one argument too many" $m info more
expect 0 "MOI_CPU_THREADS" $m info
expect 0 "dequantize_ref" $m info --json
expect 0 "| operation | row |" $m info --markdown
MOI_CPU_THREADS=none; export MOI_CPU_THREADS
expect 1 "MOI_CPU_THREADS must be 1..1024, got 'none'" $m info
MOI_CPU_THREADS=1
expect 0 "cpu: 1 thread," $m info
[ -s err ] && fail "info writes to stderr"
# every command of --help explains itself
for c in $($m --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    expect 0 "usage: moiety $c" $m "$c" --help
done
exit 0
