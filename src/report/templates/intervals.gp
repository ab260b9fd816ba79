{{>start.gp}}
$d << EOD
{{#runs}}
{{value:6g}} {{index}} {{low:6g}} {{high:6g}} {{number}}
{{/runs}}
EOD
set ytics ({{#runs}}{{^@first}}, {{/@first}}{{name}} {{index}}{{/runs}})
set yrange [{{last}}.6:-0.6]
set offsets graph 0.05, graph 0.05, 0, 0
unset key
set xlabel {{xlabel}}
set grid xtics lc rgb '#dddddd'
plot $d using 1:2:3:4:5 with xerrorbars pt 7 ps 0.8 lw 2 lc variable
