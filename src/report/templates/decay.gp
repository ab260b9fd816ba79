{{>start.gp}}
{{#classes}}
$d{{index}} << EOD
{{#points}}
{{x:8g}} {{y:6g}}
{{/points}}
EOD
{{/classes}}
set datafile missing '?'
set xlabel '{{#ns}}time, ns{{/ns}}{{^ns}}time bin{{/ns}}'
set ylabel "share of a cell's photons"
set xrange [0:{{end:8g}}]
set logscale y
set format y '%.3g'
set bmargin screen 0.27
set key at screen 0.5, screen 0.01 center bottom maxrows 3 width 1 Left reverse
plot {{#classes}}{{^@first}}, {{/@first}}$d{{index}} using 1:2 with lines lw 1.8 dt {{number}} lc {{number}} title {{title}}{{/classes}}
