{{>start.gp}}
{{! Columns: epoch, solid, dotted, value of the chosen epoch only. }}
{{#folds}}
$d{{index}} << EOD
{{#points}}
{{epoch:9g}} {{solid:9g}} {{dotted:9g}} {{chosen:9g}}
{{/points}}
EOD
{{/folds}}
set datafile missing '?'
set xlabel 'epoch'
set ylabel {{ylabel}}
set xtics autofreq
{{! Few epochs: no fractions of one. }}
{{#folds}}{{#@first}}
stats $d{{index}} using 1 nooutput
{{/@first}}{{/folds}}
if (STATS_max < 8) { set xtics 1 }
{{#log_axis}}
set logscale y
set format y '%.4g'
{{/log_axis}}
set bmargin screen 0.4
set key at screen 0.5, screen 0.01 center bottom maxrows 3 width 1 Left reverse
plot {{#folds}}{{^@first}}, {{/@first}}$d{{index}} using 1:2 with linespoints pointnumber 10 ps 0.4 lw 1.8 lt {{number}} \
    {{#title}}title {{title}}{{/title}}{{^title}}notitle{{/title}}\
    {{#pair}}, $d{{index}} using 1:3 with lines dt 3 lw 1 lc {{number}} notitle{{/pair}}\
    , $d{{index}} using 1:4 with points lt {{number}} ps 1 notitle{{/folds}}
