{{>start.gp}}
{{! Columns: epoch, training loss, validation loss, validation loss of the chosen epoch only. }}
{{#folds}}
$d{{index}} << EOD
{{#epochs}}
{{epoch:9g}} {{train:9g}} {{validation:9g}} {{chosen:9g}}
{{/epochs}}
EOD
{{/folds}}
set datafile missing '?'
set xlabel 'epoch'
set ylabel 'loss'
set bmargin screen 0.3
set key at screen 0.5, screen 0.015 center bottom maxrows 4 width 1 Left reverse
plot {{#drawn}}{{^@first}}, {{/@first}}$d{{index}} using 1:2 with lines dt 3 lw 1 lc {{number}} \
    {{#validated}}notitle, $d{{index}} using 1:3 with lines lw 1.8 lc {{number}} {{/validated}}\
    {{#title}}title {{title}}{{/title}}{{^title}}notitle{{/title}}\
    {{#validated}}, $d{{index}} using 1:4 with points pt 7 ps 0.6 lc {{number}} notitle{{/validated}}{{/drawn}}
