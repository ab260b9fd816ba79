set terminal svg size {{width}},{{height}} noenhanced font 'sans-serif,12' background 'white'
set encoding utf8
set border 3 lc rgb '#555555'
set tics nomirror out scale 0.6 textcolor rgb '#333333'
set key noenhanced samplen 1.4 spacing 1 font ',11'
{{! The colours of Okabe and Ito, which people with any colour vision can tell apart, then darker ones; points of other shapes, for prints in grey. }}
set linetype 1 lc rgb '#0072b2' pt 7
set linetype 2 lc rgb '#d55e00' pt 5
set linetype 3 lc rgb '#009e73' pt 9
set linetype 4 lc rgb '#cc79a7' pt 13
set linetype 5 lc rgb '#e69f00' pt 11
set linetype 6 lc rgb '#56b4e9' pt 6
set linetype 7 lc rgb '#882255' pt 4
set linetype 8 lc rgb '#7a7a00' pt 8
set linetype 9 lc rgb '#44546a' pt 12
set linetype 10 lc rgb '#8c510a' pt 10
set linetype 11 lc rgb '#5e3c99' pt 1
set linetype 12 lc rgb '#1b7837' pt 3
set linetype cycle 12
