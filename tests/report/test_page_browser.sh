#!/usr/bin/env bash
# The page of fold_metrics in chromium, and in Firefox if it is there, at the widths of a phone, a tablet and a laptop: nothing is wider than the window, and nothing but
# tables that scroll in their own box reaches beyond it, with every part that can be opened open.
# Printed, all words are on A4 paper, what is folded up on the screen included.
# Usage: test_page_browser.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && chromium=$name && break
done
[ -n "${chromium:-}" ] || { echo "skipped: no chromium"; exit 77; }
command -v gnuplot >/dev/null || { echo "skipped: no gnuplot"; exit 77; }

"$build/flim_simulate" --out small.h5 --cells 72 --donors 6 --bins 16 --photons 400 --seed 3 >/dev/null || exit 1
for run in a a_run_whose_name_is_as_long_as_nobody_would_name_it_by_hand_but_scripts_do_so_with_every_setting_in_it; do
    "$build/train_cv" --data small.h5 --preset tiny --folds 3 --epochs 3 --batch 16 --device cpu --workers 2 --out "$run" >run.log 2>&1
    code=$?
    [ "$code" = 4 ] && { echo "skipped: no CPU backend"; exit 77; }
    [ "$code" = 0 ] || { echo "FAILED: train_cv exited with $code"; tail -3 run.log; exit 1; }
    runs+=("$run")
done
call 0 "$build/fold_metrics" a --replicates 100 --errors --html one.html
call 0 "$build/fold_metrics" "${runs[@]}" --replicates 100 --html two.html

# A window cannot be made as narrow as a phone, a frame can: the page in it tells how wide it is to the page around it.
cat >measure.js <<'END'
onload = function () {
  var root = document.documentElement, said = "";
  document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  document.querySelectorAll("body *").forEach(function (e) {
    var inside = e.parentElement.closest(".wide"), right = e.getBoundingClientRect().right;
    if (!said && !inside && right > root.clientWidth + 1) said = e.tagName + "." + e.className + " ends at " + Math.round(right);
  });
  parent.postMessage("width " + root.clientWidth + " scroll " + root.scrollWidth + " outside " + (said || "nothing"), "*");
};
END
# Firefox only takes pictures: of a frame that is shown if all is within it, beside one of an empty page.
for name in firefox firefox-esr; do
    command -v "$name" >/dev/null && firefox=$name && break
done
picture() { # FILE.png PAGE
    mkdir -p "$work/firefox"
    timeout 100 "$firefox" --headless --no-remote --profile "$work/firefox" --window-size=1400,1000 --screenshot "$work/$1" \
        "file://$work/$2" >/dev/null 2>&1
}
if [ -n "${firefox:-}" ]; then
    echo '<!DOCTYPE html><title>empty</title>' >empty.html
    picture empty.png empty.html
    [ -s empty.png ] || firefox=
fi
[ -n "${firefox:-}" ] || echo "left out: Firefox, which is not here or does not run"
sed 's|<footer>|<p style="width:900px">too wide</p><footer>|' one.html >wide.html # what must be found
for page in one two wide; do
    { sed '/<\/body>/,$d' "$page.html"; echo "<script>"; cat measure.js; echo "</script></body></html>"; } >"$page.inner.html"
    for width in 360 768 1280; do
        cat >outer.html <<END
<!DOCTYPE html><title>no answer</title>
<script>onmessage=function(e){document.title=e.data;
if(e.data==="width $width scroll $width outside nothing")document.getElementById("frame").style.visibility="visible"}</script>
<iframe id="frame" style="border:0;visibility:hidden;width:${width}px;height:900px" src="$page.inner.html" scrolling="no"></iframe>
END
        timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --window-size=1400,1000 \
            --virtual-time-budget=5000 --dump-dom "file://$work/outer.html" >dom 2>/dev/null
        [ -s dom ] || { echo "skipped: $chromium does not run here"; exit 77; }
        said=$(grep -o '<title>[^<]*' dom | head -1)
        if [ "$page" = wide ] && [ "$width" -lt 900 ]; then
            check "a box that is too wide is found at $width pixels: $said" grep -q "scroll 9.. outside P. ends at 9" <<<"$said"
        else
            check "$page.html at $width pixels: $said" test "$said" = "<title>width $width scroll $width outside nothing"
        fi
        [ -n "${firefox:-}" ] || continue
        picture shot.png outer.html
        shown=$(($(stat -c %s shot.png) > 2 * $(stat -c %s empty.png))) # bytes
        fits=1
        [ "$page" = wide ] && [ "$width" -lt 900 ] && fits=0
        check "Firefox, $page.html at $width pixels: shown $shown, expected $fits" test "$shown" = "$fits"
    done
done

# ---- on paper
if command -v pdftotext >/dev/null; then
    timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-pdf-header-footer \
        --print-to-pdf="$work/one.pdf" "file://$work/one.html" >/dev/null 2>&1
    check "the page can be printed" pdftotext -bbox one.pdf words
    check "on A4 paper, all words within it" awk -F '"' '/<page/ { pages++; if ($2 < 594 || $2 > 596) bad++ }
        /<word/ { words++; if ($2 < 30 || $6 > 566) { bad++; print } } END { exit !(pages > 3 && words > 500 && !bad) }' words
    # The last columns of the widest tables, the notes, the settings.
    for word in ECE groups likely patience: environment.json; do
        check "'$word' is printed" grep -q ">$word<" words
    done
else
    echo "left out: printing (apt-get install poppler-utils)"
fi
finish
