{{>start.gp}}
{{#classes}}
$d{{index}} << EOD
{{#bins}}
{{middle:6g}} {{percent:6g}}
{{/bins}}
EOD
{{/classes}}
{{#thresholds}}
set object rectangle from {{low:6g}}, graph 0 to {{high:6g}}, graph 1 fillcolor rgb '#bbbbbb' fillstyle solid 0.4 noborder behind
set arrow from 0.5, graph 0 to 0.5, graph 1 nohead dt 3 lc rgb '#777777' back
{{/thresholds}}
set xrange [0:1]
set yrange [0:*]
set bmargin screen 0.3
set key at screen 0.5, screen 0.015 center bottom maxrows 4 width -4 Left reverse
set ylabel '% of the class'
set style fill transparent solid 0.45 border
set boxwidth 0.05
set xlabel {{xlabel}}
plot {{#classes}}{{^@first}}, {{/@first}}$d{{index}} with boxes lc {{number}} {{^@first}}fillstyle transparent pattern {{number}}+2 border {{/@first}}title {{name}}{{/classes}}
