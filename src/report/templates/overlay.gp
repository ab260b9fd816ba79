{{>start.gp}}
{{#lines}}
$d{{index}} << EOD
{{#points}}
{{x:6g}} {{y:6g}}
{{/points}}
EOD
{{/lines}}
set bmargin screen 0.34
set key at screen 0.5, screen 0.01 center bottom maxrows 5 width -4 Left reverse
{{#roc}}
set xrange [0:1]
set yrange [0:1.02]
set xlabel 'false positive rate'
set ylabel 'true positive rate'
{{/roc}}
{{^roc}}
set xlabel 'epoch'
set ylabel 'validation loss'
set logscale y
set format y '%.4g'
{{/roc}}
plot {{#roc}}x with lines lc rgb '#999999' dt 3 notitle, {{/roc}}{{#lines}}{{^@first}}, {{/@first}}$d{{index}} with lines lw 2 \
    dt {{number}} lc {{number}} title {{title}}{{/lines}}
