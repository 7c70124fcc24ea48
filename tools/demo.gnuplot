# SPDX-License-Identifier: Apache-2.0
# Draws the losses of the two runs of tools/demo: loss.svg, loss.png, and a small plot on the terminal.   needs: base
set datafile separator ','
set datafile missing ''
set xlabel 'step'
set ylabel 'loss (nats per byte)'
set grid
set key top right
bf16 = base.'bf16/losses.csv'
mx32 = base.'mx32/losses.csv'
set style line 1 lc rgb '#1f77b4' lw 2
set style line 2 lc rgb '#d62728' lw 2
set style line 3 lc rgb '#aec7e8'
set style line 4 lc rgb '#ff9896'
do for [kind in 'svg png'] {
    if (kind eq 'svg') { set terminal svg size 800,500 background rgb 'white' } else { set terminal pngcairo size 800,500 }
    set output base.'loss.'.kind
    plot bf16 skip 1 using 1:2 with lines ls 3 title 'BF16, training', \
         mx32 skip 1 using 1:2 with lines ls 4 title 'MXFP8, training', \
         bf16 skip 1 using 1:3 with linespoints ls 1 title 'BF16, validation', \
         mx32 skip 1 using 1:3 with linespoints ls 2 title 'MXFP8, validation'
    unset output
}
set terminal dumb size 78,20
unset grid
set title 'validation loss over steps'
unset xlabel
unset ylabel
plot bf16 skip 1 using 1:3 with points pt 'o' title 'BF16', mx32 skip 1 using 1:3 with points pt '*' title 'MXFP8'
