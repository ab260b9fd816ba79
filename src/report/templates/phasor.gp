{{>start.gp}}
{{#series}}
$d{{index}} << EOD
{{#points}}
{{g:6g}} {{s:6g}}
{{/points}}
EOD
{{/series}}
$tau << EOD
{{#lifetimes}}
{{g:6g}} {{s:6g}} {{text}}
{{/lifetimes}}
EOD
set parametric
set trange [0:pi]
set size ratio -1
set xlabel 'g'
set ylabel 's'
set xtics 0.2
set ytics 0.2
set xrange [*<0:1<*]
set yrange [*<0:0.6<*]
set bmargin screen 0.27
set key at screen 0.5, screen 0.01 center bottom maxrows 3 width -2 Left reverse
plot 0.5+0.5*cos(t), 0.5*sin(t) with lines lc rgb '#999999' notitle{{#series}}, $d{{index}} using 1:2 with points lt {{number}} \
    {{#wrong}}pt 2 ps 0.55 lw 1.4{{/wrong}}{{^wrong}}ps 0.35{{/wrong}} title {{title}}{{/series}}\
    {{#lifetimes}}{{#@first}}, $tau using 1:2 with points pt 7 ps 0.4 lc rgb '#555555' notitle, \
    $tau using 1:2:3 with labels left offset 0.6,0.5 font ',10' tc rgb '#555555' notitle{{/@first}}{{/lifetimes}}
