{{>start.gp}}
{{! Left: a line per fold from the simple model to the network, the means beside them; right: their mean difference. }}
$d << EOD
{{#pairs}}
{{simple:6g}} {{network:6g}}
{{/pairs}}
EOD
$m << EOD
{{difference:6g}} {{low:6g}} {{high:6g}}
EOD
set datafile missing '?'
unset key
set multiplot
set lmargin screen 0.19
set rmargin screen 0.6
set bmargin screen 0.16
set tmargin screen 0.95
set xrange [-0.5:1.5]
set xtics ('simple model' 0, 'network' 1)
set ylabel {{ylabel}}
plot $d using (0):1:(1):($2-$1) with vectors nohead lw 1.2 lc rgb '#9aa5b1', \
    $d using (0):1 with points pt 7 ps 0.6 lc rgb '#5b6570', $d using (1):2 with points pt 7 ps 0.6 lc 1, \
    '+' using (-0.25):({{mean_simple:6g}}):(0.13) every ::0::0 with xerrorbars pt -1 lw 3 lc rgb '#5b6570', \
    '+' using (1.25):({{mean_network:6g}}):(0.13) every ::0::0 with xerrorbars pt -1 lw 3 lc 1
set lmargin screen 0.77
set rmargin screen 0.97
set xrange [-1:1]
set yrange [*:*]
set offsets 0, 0, graph 0.1, graph 0.1
set xtics ('difference' 0)
unset ylabel
set xzeroaxis dt 3 lc rgb '#777777'
set format y '%+g'
plot 0 with lines dt 3 lc rgb '#777777', $m using (0):1 with points pt 7 ps 0.9 lc 2\
    , $m using (0):1:2:3 with yerrorbars pt 7 ps 0.9 lw 2 lc 2
unset multiplot
