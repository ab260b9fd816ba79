{{>start.gp}}
{{#series}}
$d{{index}} << EOD
{{#points}}
{{x:6g}} {{y:6g}}
{{/points}}
EOD
{{/series}}
set xlabel {{xlabel}}
set ylabel {{ylabel}}
set bmargin screen 0.3
set key at screen 0.5, screen 0.01 center bottom maxrows 4 width -2 Left reverse
plot {{#series}}{{^@first}}, {{/@first}}$d{{index}} using 1:2 with points lt {{number}} ps 0.35 title {{title}}{{/series}}
