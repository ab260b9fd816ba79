{{>start.gp}}
{{#lines}}
$d{{index}} << EOD
{{#roc}}
0 0
{{/roc}}
{{#points}}
{{{.}}}
{{/points}}
EOD
{{/lines}}
set xrange [0:1]
set yrange [0:1.02]
set bmargin screen 0.3
set key at screen 0.5, screen 0.015 center bottom maxrows 4 width -4 Left reverse
set xlabel '{{#roc}}false positive rate{{/roc}}{{^roc}}recall{{/roc}}'
set ylabel '{{#roc}}true positive rate{{/roc}}{{^roc}}precision{{/roc}}'
plot {{#roc}}x{{/roc}}{{^roc}}{{#guessing}}{{guessing:6g}}{{/guessing}}{{^guessing}}NaN{{/guessing}}{{/roc}} with lines lc \
    rgb '#999999' dt 3 notitle{{#lines}}, $d{{index}} with lines {{#fold}}lw 1 lc {{number}}{{/fold}}\
    {{#class}}lw 2.5 lc {{number}}{{/class}}{{#baseline}}lw 1.6 dt 2 lc rgb '#555555'{{/baseline}}\
    {{#pool}}lw 3 lc rgb 'black'{{/pool}} {{#title}}title {{title}}{{/title}}{{^title}}notitle{{/title}}{{/lines}}
