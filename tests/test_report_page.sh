#!/usr/bin/env bash
# fold_metrics --html in a real browser: the page parses, every picture in it loads, nothing is fetched from elsewhere.
# Usage: test_report_page.sh BUILD_DIR
set -u
build=$1
browser=
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && browser=$name && break
done
[ -n "$browser" ] || { echo "skipped: no chromium"; exit 77; }
command -v gnuplot >/dev/null || { echo "skipped: no gnuplot"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=$build/test_report_page
[ -f "$run/splits.json" ] || "$build/tests/test_report" >/dev/null 2>&1
[ -f "$run/splits.json" ] || { echo "FAILED: tests/test_report left no run in $run"; exit 1; }

"$build/fold_metrics" "$run" --html "$work/report.html" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
images=$(grep -o '<img ' "$work/report.html" | wc -l)
[ "$images" -ge 7 ] || { echo "FAILED: $images pictures, 7 or more were expected"; exit 1; }

# A copy that says in its title how many pictures the browser could draw.
script='<script>onload=function(){var i=[].slice.call(document.images);document.title="drawn "+i.filter(function(x){return x.complete\&\&x.naturalWidth>0}).length+" of "+i.length+", outside "+performance.getEntriesByType("resource").filter(function(e){return !/^data:/.test(e.name)}).length}</script>'
sed "s|</body>|$script</body>|" "$work/report.html" >"$work/checked.html"
timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=5000 \
    --dump-dom "file://$work/checked.html" >"$work/dom" 2>/dev/null || { echo "skipped: $browser does not run here"; exit 77; }
if ! grep -q "<title>drawn $images of $images, outside 0</title>" "$work/dom"; then
    echo "FAILED: the browser says $(grep -o '<title>[^<]*' "$work/dom"), expected $images pictures drawn and nothing fetched"
    exit 1
fi
for text in "Most confident errors" "Confusion, pooled" "baseline: class prior" "95 % interval from"; do
    grep -q "$text" "$work/dom" || { echo "FAILED: the page does not show '$text'"; exit 1; }
done
echo "$images pictures drawn by $browser"
