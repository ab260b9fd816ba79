{{>start.gp}}
{{! Columns: x, y, y less and more the sd over folds. }}
{{#lines}}
$d{{index}} << EOD
{{#points}}
{{x:6g}} {{y:6g}} {{low:6g}} {{high:6g}}
{{/points}}
EOD
{{/lines}}
set xrange [0:1]
set yrange [0:1.02]
set bmargin screen 0.4
set key at screen 0.5, screen 0.01 center bottom maxrows 6 width -4 Left reverse
set xlabel '{{#roc}}false positive rate{{/roc}}{{^roc}}recall{{/roc}}'
set ylabel '{{#roc}}true positive rate{{/roc}}{{^roc}}precision{{/roc}}'
set style fill transparent solid 0.15 noborder
plot {{#roc}}x{{/roc}}{{^roc}}{{#guessing}}{{guessing:6g}}{{/guessing}}{{^guessing}}NaN{{/guessing}}{{/roc}} with lines lc \
    rgb '#999999' dt 3 notitle{{#lines}}{{#mean}}, $d{{index}} using 1:3:4 with filledcurves lc rgb 'black' notitle{{/mean}}, \
    $d{{index}} with lines {{#fold}}lw 1 lc {{number}}{{/fold}}\
    {{#class}}lw 2.5 lc {{number}}{{/class}}{{#baseline}}lw 1.6 dt {{number}} lc rgb '#555555'{{/baseline}}\
    {{#mean}}lw 3 lc rgb 'black'{{/mean}} {{#title}}title {{title}}{{/title}}{{^title}}notitle{{/title}}{{/lines}}
