{{>start.gp}}
$d << EOD
{{#bins}}
{{said:6g}} {{seen:6g}} {{low:6g}} {{high:6g}} {{cells:.0}}
{{/bins}}
EOD
set xrange [0:1]
set yrange [-0.1:1.05]
unset key
set xlabel 'mean predicted probability{{^two}} of the winning class{{/two}}'
set ylabel 'observed share'
set ytics 0,0.2,1
plot x with lines lc rgb '#999999' dt 3, $d using 1:2 with lines lw 1.5 lc 1, \
    $d using 1:2:3:4 with yerrorbars pt 7 ps 0.7 lc 1, $d using 1:(-0.06):5 with labels font ',10' tc rgb '#666666'
