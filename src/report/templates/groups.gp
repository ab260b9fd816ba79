{{>start.gp}}
$d << EOD
{{#groups}}
{{accuracy:6g}} {{index}} {{cells}} {{low:6g}} {{high:6g}}
{{/groups}}
EOD
set ytics ({{#groups}}{{^@first}}, {{/@first}}{{name}} {{index}}{{/groups}})
{{#pooled}}
set arrow from {{pooled:6g}}, graph 0 to {{pooled:6g}}, graph 1 nohead dt 3 lc rgb '#777777' front
{{/pooled}}
set yrange [{{last}}.6:-0.6]
set xrange [0:1.12]
set xtics 0,0.2,1
unset key
set xlabel 'accuracy'
set style fill solid 0.45 noborder
plot $d using (0):2:(0):1:($2-0.35):($2+0.35) with boxxyerror lc 1, \
    $d using 1:2:4:5 with xerrorbars pt 7 ps 0.4 lc rgb '#333333', \
    $d using (1.03):2:3 with labels left font ',10' tc rgb '#666666'
