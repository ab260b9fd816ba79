#!/usr/bin/env bash
# fold_metrics on real runs of train_cv: the numbers agree with summary.json, files and exit codes, two runs in pairs, and the
# HTML page in a real browser where one is installed: every picture in it is drawn and nothing is fetched from elsewhere.
# Usage: test_fold_metrics.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

metrics() { call "$1" "$build/fold_metrics" "${@:2}"; } # metrics EXPECTED_EXIT ARGS...: with output in $work/out and $work/err

"$build/flim_simulate" --out small.h5 --cells 72 --donors 6 --bins 16 --photons 400 --seed 3 >/dev/null || exit 1
for run in a b; do
    options=(--data small.h5 --preset tiny --folds 3 --epochs 3 --batch 16 --device cpu --workers 2 --out "$run")
    [ "$run" = a ] && options+=(--lr 1e-3) || options+=(--lr 1e-2 --holdout-group donor_6)
    "$build/train_cv" "${options[@]}" >"$run.log" 2>&1
    code=$?
    [ "$code" = 4 ] && { echo "skipped: no CPU backend"; exit 77; }
    [ "$code" = 0 ] || { echo "FAILED: train_cv exited with $code"; tail -3 "$run.log"; exit 1; }
done

# ---- numbers, files, exit codes
metrics 0 a --csv a.csv --json a.json --md a.md --replicates 200
sound='disagrees|do not match|folds are done|no baseline' # what must not be said of a sound run
check "no fault is found in a sound run" test "$(grep -cE "$sound" err)" = 0
check "the table has every row" test "$(grep -cE '^  (fold [012] \(|mean  |sd \(ddof [01]\)|(mean|pooled), threshold 0.5|pooled  |95 % CI|class prior)' out)" = 12
check "the baselines stand in both tables" test "$(grep -cE '^  (brightness, size, peak bin|summed decay \(logistic regression\))  ' out)" = 4
check "intervals are named" grep -q "intervals: bootstrap over groups" out
check "the CSV holds header, folds, mean, sds, pooled (also calibrated and prior corrected), interval and baselines" test "$(wc -l <a.csv)" = 17
check "scores that use unlabelled test cells are named so" grep -q "^  pooled, prior (unlabelled cells) " out
check "the JSON names the run" grep -q '"run": "a"' a.json
check "the Markdown holds a table" grep -q '^| pooled |' a.md
check "calibration stands per fold, before and after, as train_cv has written it" python3 - <<'PY'
import json
run, table = json.load(open("a.json"))["runs"][0], open("out").read()
rows = run["calibration"]
keys = ("ece", "brier", "log_loss")
for row, fold in zip(rows["folds"], run["folds"]):
    written = json.load(open("a/fold_%d/summary.json" % row["fold"]))["calibration"]
    assert abs(row["temperature"] - written["temperature"]) < 1e-9, row
    for key in keys:
        assert abs(row["before"][key] - written["before"][key]) < 1e-9 and abs(row["after"][key] - written["after"][key]) < 1e-9
        assert row["before"][key] == fold["metrics"][key], (row, fold)
    line = "    fold %d   %10.3f " % (row["fold"], row["temperature"])
    line += "".join("  %7.3f %7.3f" % (row["before"][key], row["after"][key]) for key in keys)
    assert line in table, line
assert len(rows["folds"]) == 3
for key in keys:
    assert abs(rows["mean"]["before"][key] - sum(r["before"][key] for r in rows["folds"]) / 3) < 1e-12
    assert rows["pooled"]["before"][key] == run["pooled"][key] and rows["pooled"]["after"][key] == run["pooled_calibrated"][key]
assert "| fold 2 | %.3f |" % rows["folds"][2]["temperature"] in open("a.md").read()
PY
metrics 0 b --replicates 0
check "the hold-out group is scored" grep -q "holdout, fold ensemble" out
check "no fault is found in a sound run with a hold-out group" test "$(grep -cE "$sound" err)" = 0
metrics 0 a a --replicates 0
check "a run against itself differs nowhere" grep -q "0 in a, 0 in a; McNemar p 1.000" out
metrics 0 a b --replicates 0
check "other test sets are not compared" grep -q "split otherwise" out
sed -i 's/"accuracy": 0/"accuracy": 7/' a/summary.json
metrics 0 a --replicates 0
check "a summary that disagrees is named" grep -q "warning: a: summary.json disagrees with predictions.csv in" err
rm a/fold_1/DONE
metrics 0 a --replicates 0
check "a missing fold is named" grep -q "2 of 3 folds are done; missing: 1" err
touch a/fold_1/DONE
mv small.h5 moved.h5
metrics 0 a --replicates 0
check "the tables need no data" grep -q "^  brightness, size, peak bin" out
mv a/baseline_decay.csv kept.csv
metrics 0 a --replicates 0
check "a missing baseline is named, with what to do" grep -q "no baseline 'summed decay (logistic regression)': .*--resume --out a" err
mv kept.csv a/baseline_decay.csv
mkdir small
metrics 3 small
check "a folder that is no run is named" grep -q "small is not a run folder" err
metrics 3 nowhere
check "a folder that is missing is called so" grep -q "cannot read nowhere: No such file or directory" err
metrics 0 a --replicates 0 --csv said.csv --json said.json
check "the last line names the files that it wrote" test "$(tail -n 1 out)" = "written: said.csv, said.json"
metrics 0 a --replicates 0
check "without files there is no such line" test "$(grep -c '^written' out)" = 0
metrics 2
metrics 2 a --htm x
check "the nearest flag is named" grep -q -- "--html" err
metrics 6 a --csv /no/such/folder/x.csv
check "a folder that is missing is named" grep -q "cannot write /no/such/folder/x.csv: there is no folder /no/such/folder$" err
metrics 0 --help
[ "$failures" = 0 ] || exit 1

# ---- the page
command -v gnuplot >/dev/null || { echo "no gnuplot: the page was not tried"; exit 0; }
metrics 0 a --html report.html
check "data that is gone is named on the page, with what to do" grep -q "No pictures: .*small.h5.*--data" report.html
metrics 0 a --data moved.h5 --replicates 100 --html report.html
check "data that has moved can be named" grep -q "data:image/png" report.html

# ---- where the networks look
call 0 "$build/predict" --model a --data moved.h5 --device cpu --out p.csv --explain maps.h5 --explain-bins 4
metrics 0 a --data moved.h5 --replicates 0 --html explained.html --explain maps.h5
errors=$(grep -o 'alt="intensity"' explained.html | wc -l)
check "each of the $errors errors is explained by the network that tested it" \
    test "$(grep -o 'alt="where the network looks"' explained.html | wc -l)" = "$errors" -a "$errors" -gt 0
check "with stripes behind its decay" test "$(grep -o '<rect class=' explained.html | wc -l)" = $((4 * errors))
call 2 "$build/predict" --model a --data moved.h5 --device cpu --out p.csv --explain moved.h5
check "an HDF5 file is not written over" grep -q "moved.h5" err
call 2 "$build/predict" --model a --data moved.h5 --device cpu --out p.csv --explain new.h5 --explain-cells 3,x
"$build/flim_simulate" --out other.h5 --cells 24 --bins 16 --photons 400 --seed 4 >/dev/null
call 0 "$build/predict" --model a --data other.h5 --device cpu --out p.csv --explain other_maps.h5 --explain-cells 3,5
metrics 3 a --data moved.h5 --replicates 0 --explain other_maps.h5
check "an explanation of other data is refused" grep -q "other_maps.h5 explains cells of other data" err
metrics 3 a --explain moved.h5
check "a file that is no explanation is refused" grep -q "moved.h5" err

# ---- the page of a run at work: written again and again, whole at the end
wait_for() { for ((i = 0; i < 100; i++)); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }
metrics 2 a --watch
check "--watch says what it needs" grep -q -- "--watch needs --html FILE" err
cp -r a live
rm live/fold_*/DONE live/summary.json
exec 8<live/.working # in the place of a train_cv that is at work
flock -s 8
"$build/fold_metrics" live --data moved.h5 --replicates 0 --html live.html --watch --every 1 >live.out 2>live.err &
watcher=$!
check "a page is there before a fold is done" wait_for test -s live.html
check "it loads itself again" grep -q '<meta http-equiv="refresh" content="1">' live.html
check "it shows the learning curves" grep -q 'alt="Loss by epoch"' live.html
check "and nothing of results" test "$(grep -cE 'id="(summary|metrics|gallery)"' live.html)" = 0
check "it says how far the run is" grep -q "0 of 3 folds are done" live.html
touch live/fold_0/DONE
check "a fold that is done is shown" wait_for grep -q "1 of 3 folds are done" live.html
check "with its results" grep -q 'id="summary"' live.html
touch live/fold_1/DONE
rm live/fold_2/predictions.csv
echo "no reason" >live/fold_2/FAILED
sleep 1.5
check "without its summary the run is not complete" kill -0 "$watcher"
sed '/"fold": 2/,$d' a/summary.json | sed '$d' | sed '$s/},/}],/; $a "mean": null}' >live/summary.json
wait "$watcher"
code=$?
check "the watch ends with the run, a failed fold among it: exit $code" test "$code" = 0
check "the last page does not load itself again" test "$(grep -c 'http-equiv="refresh"' live.html)" = 0
check "it has what the pages before left out" grep -q "data:image/png" live.html
check "the tables follow" grep -q "^  pooled  " live.out
rm -r live/fold_2/FAILED live/summary.json
"$build/fold_metrics" live --replicates 0 --html live.html --watch --every 60 >live.out 2>live.err &
watcher=$!
check "the page is there again" wait_for grep -q 'http-equiv="refresh"' live.html
kill -INT "$watcher"
wait "$watcher"
code=$?
check "a signal ends the watch: exit $code" test "$code" = 130
check "and leaves a page that does not load itself again" test "$(grep -c 'http-equiv="refresh"' live.html)" = 0
"$build/fold_metrics" live --replicates 0 --html live.html --watch --every 1 >live.out 2>live.err &
watcher=$!
check "somebody works at it" wait_for grep -q "is written again every 1 s" live.out
flock -u 8
wait "$watcher"
code=$?
check "the watch ends with the last process, exit $code" test "$code" = 0
check "it says so, and how to go on" grep -q "live is not complete, and no train_cv works at it: this is the last page; resume with: train_cv --resume --out live" live.err
check "the last page of an unfinished run does not load itself again" test "$(grep -c 'http-equiv="refresh"' live.html)" = 0
check "the tables of the folds that are done follow" grep -q "^  pooled  " live.out
exec 8<&-
rm live/fold_*/DONE
metrics 0 live --replicates 0 --html live.html --watch
check "a run without a fold that is done: the page alone" bash -c '! grep -q pooled out && test -s live.html && grep -q "works at it" err'

images=$(grep -o '<img ' report.html | wc -l)
check "six plots and pictures of errors, not $images images" test "$images" -ge 7
tried=0
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && chromium=$name && break
done
drawn='[].slice.call(document.images).filter(function(x){return x.complete\&\&x.naturalWidth>0}).length'
fetched='performance.getEntriesByType("resource").filter(function(e){return !/^data:/.test(e.name)}).length'
# A copy that says in its title how many pictures the browser could draw.
script="<script>onload=function(){document.title='drawn '+$drawn+' of '+document.images.length+', outside '+$fetched}</script>"
sed "s|</body>|$script</body>|" report.html >checked.html
if [ -n "${chromium:-}" ] && timeout 100 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
    --virtual-time-budget=5000 --dump-dom "file://$work/checked.html" >dom 2>/dev/null; then
    tried=1
    check "all $images pictures drawn, nothing fetched: $(grep -o '<title>[^<]*' dom)" grep -q "<title>drawn $images of $images, outside 0</title>" dom
    for text in "Most confident errors" "Confusion matrix" "class prior" "95 % CI lower" "config.yaml" "Calibration"; do
        check "the page shows '$text'" grep -q "$text" dom
    done
fi
# Firefox only takes pictures: of a copy that blanks itself unless every picture is drawn, and of one that always does.
if command -v firefox >/dev/null; then
    blank='document.body.innerHTML=""'
    sed "s|</body>|<script>onload=function(){if($drawn!=document.images.length\|\|$fetched)$blank}</script></body>|" report.html >whole.html
    sed "s|</body>|<script>onload=function(){$blank}</script></body>|" report.html >blank.html
    for page in whole blank; do
        mkdir -p "$work/firefox"
        timeout 100 firefox --headless --no-remote --profile "$work/firefox" --window-size=1400,3000 \
            --screenshot "$work/$page.png" "file://$work/$page.html" >/dev/null 2>&1
    done
    if [ -s blank.png ]; then
        tried=1
        check "Firefox draws the page: $(stat -c %s whole.png) bytes, a blank one has $(stat -c %s blank.png)" \
            test "$(stat -c %s whole.png)" -gt "$((5 * $(stat -c %s blank.png)))"
    fi
fi
[ "$tried" = 1 ] || echo "no chromium or firefox that runs: the page was not opened"
finish
