#!/usr/bin/env bash
# Whole runs of train_cv on a small simulated file (16 time bins): the run folder, exit codes, bad input, interruption and
# resumption to the same bits, folds on their own, independence of threads and of test labels.  FLIM_SHORT=1, for the sanitizers'
# builds, leaves out the signals at random moments; FLIM_SHORT=threads, for TSan's, also what is printed and bad input.
# Usage: test_train_cv.sh BUILD_DIR
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

run() { call "$1" "$build/train_cv" "${@:2}"; } # run EXPECTED_EXIT ARGS...: train_cv with output in $work/out and $work/err
short_error() { check "the error is one to four short lines" test "$(wc -l <"$work/err")" -ge 1 -a "$(wc -l <"$work/err")" -le 4; }

simulate small.h5
sum_before=$(sha256sum small.h5; stat -c %y small.h5)
options=(--preset tiny --folds 3 --epochs 3 --batch 16 --lr 1e-3 --device cpu --workers 2)
common=(--data small.h5 "${options[@]}")

# ---- what is printed
if [ "${FLIM_SHORT:-}" != threads ]; then
    run 0 "${common[@]}" --quiet --out quiet
    table=$(sed -n '/^Test-set metrics, /,/summed decay/p; /^A logistic regression on the summed decay/p; /^Results: /p' quiet/train.log) # the last line: if it does as well
    check "--quiet prints the result, all of it and nothing else" test "$(cat out)" = "$table" -a "$(wc -l <out)" -gt 10
    check "train.log has the rest" grep -q "^fold 2 epoch 3/3" quiet/train.log
    run 0 "${common[@]}" --quiet --log-json --out quiet-json
    check "--quiet --log-json: warnings, summary and end, nothing else" test "$(grep -c '"event": "\(summary\|run_end\)"' out)" = 2 -a "$(grep -vc '"event": "\(summary\|run_end\|warning\)"' out)" = 0

    run 0 "${common[@]}" --dry-run --quiet
    check "--dry-run --quiet prints the fold table" test "$(grep -c '^ *[012]  train ' out)" = 3 -a "$(grep -c '^Data' out)" = 0

    "$build/train_cv" "${common[@]}" --dry-run >/dev/full 2>err
    check "--dry-run to a full disk is exit code 6" test $? = 6
fi

# ---- the run folder
run 0 "${common[@]}" --out whole
for file in config.yaml environment.json splits.json train.log summary.json summary.csv fold_{0,1,2}/{history.csv,best.safetensors,predictions.csv,summary.json,DONE}; do
    check "whole/$file exists" test -s "whole/$file"
done
check "three rows and a header in history.csv" test "$(wc -l <whole/fold_0/history.csv)" = 4
check "every cell is tested once" test "$(tail -qn +2 whole/fold_*/predictions.csv | cut -d, -f1 | sort -n | uniq | wc -l)" = 72
check "start-up line" grep -q "^flimcv 0.1.0 · HDF5 " out
check "train.log holds what was printed" grep -q "^flimcv 0.1.0 · HDF5 " whole/train.log
check "no checkpoint is left of a finished fold" test ! -e whole/fold_0/checkpoint
reference=$(digest whole)

# ---- settings
run 0 --config whole/config.yaml --print-config
cp out printed.yaml
run 0 --config printed.yaml --print-config
check "--print-config feeds back to the same" cmp out printed.yaml
run 0 --help
check "--help shows --folds" grep -q -- "--folds" out
awk '/^## Every flag/ { found = 1 } found && /^```/ { inside = !inside; next } inside' "$source/docs/train_cv.md" >documented_flags
check "the flags of docs/train_cv.md are --help's" diff out documented_flags
run 0 "${common[@]}" --out never --dry-run
check "--dry-run makes no folder" test ! -e never

# ---- the same bits whatever the threads; another seed, other bits
run 0 "${common[@]}" --out threads --workers 8
check "1 and 8 loader threads give the same bits" test "$(digest threads)" = "$reference"
run 0 "${common[@]}" --out other --seed 7
check "another seed gives other weights" bash -c '! cmp -s whole/fold_0/best.safetensors other/fold_0/best.safetensors'

# ---- one fold alone
run 0 "${common[@]}" --out alone --fold 2
check "only fold 2 is there" test -e alone/fold_2/DONE -a ! -e alone/fold_0
check "a fold alone has the bits of the whole run" cmp alone/fold_2/best.safetensors whole/fold_2/best.safetensors
run 0 --out alone --resume
check "the rest of the folds completes the run" test "$(digest alone)" = "$reference"

# ---- resume of a finished run; a folder that is taken
run 0 --out whole --resume
check "a finished run stays as it is" test "$(digest whole)" = "$reference"
run 2 "${common[@]}" --out whole
says "already contains a run"
run 2 --out whole --resume --epochs 9
says "epochs"
run 2 --out nothing-here --resume
says "has no run"
check "a refused resume makes no folder" test ! -e nothing-here

# ---- signals and kills at random moments: resumed until done, the files are the undisturbed run's
[ -n "${FLIM_SHORT:-}" ] && echo "left out (FLIM_SHORT): signals at random moments; test_signals.sh aims them"
for signal in ${FLIM_SHORT:-INT TERM KILL}; do
    [ -n "${FLIM_SHORT:-}" ] && break
    rm -rf cut
    tries=0
    "$build/train_cv" "${common[@]}" --out cut >/dev/null 2>&1 &
    pid=$!
    while :; do
        sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
        kill -"$signal" $pid 2>/dev/null
        wait $pid
        code=$?
        tries=$((tries + 1))
        case $signal-$code in INT-130 | TERM-143 | KILL-137 | *-0) ;; *)
            fail "after SIG$signal the exit code was $code" ;;
        esac
        [ $code = 0 ] && break
        [ $tries -gt 40 ] && break
        if [ -e cut/config.yaml ]; then
            "$build/train_cv" --out cut --resume >/dev/null 2>"$work/err" &
        else
            "$build/train_cv" "${common[@]}" --out cut >/dev/null 2>"$work/err" &
        fi
        pid=$!
        [ $tries -gt 25 ] && { wait $pid; break; }
    done
    check "after $tries x SIG$signal and resumes the files are the undisturbed run's" test "$(digest cut)" = "$reference"
done

# ---- the test set chooses nothing: other test labels, same weights, epoch and threshold
if ! /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    echo "left out: flipped test labels, /usr/bin/python3 has no h5py (apt-get install python3-h5py)"
else
    cp small.h5 flipped.h5
    /usr/bin/python3 - <<'PY'
import json, h5py
test = json.load(open("whole/splits.json"))["folds"][0]["test"]
f = h5py.File("flipped.h5", "r+")
lab = f["label"][:]
lab[test] = 1 - lab[test]
f["label"][:] = lab
s = json.load(open("whole/splits.json"))
s["data"].pop("sha256", None)
json.dump(s, open("same_splits.json", "w"))
PY
    run 0 "${options[@]}" --data flipped.h5 --set splits=same_splits.json --out flipped --fold 0
    tensors() { grep -ao '"sha256": "[0-9a-f]*"' "$1/best.safetensors"; }
    check "the weight files name a sum" test -n "$(tensors whole/fold_0)"
    check "flipped test labels leave the weights" test "$(tensors flipped/fold_0)" = "$(tensors whole/fold_0)"
    check "flipped test labels leave epoch and threshold" bash -c \
        'diff <(grep -E "best_epoch|threshold" flipped/fold_0/summary.json) <(grep -E "best_epoch|threshold" whole/fold_0/summary.json)'
fi

# ---- three classes: the most probable class is predicted, so nobody is told of a threshold
"$build/flim_simulate" --out three.h5 --cells 60 --donors 6 --classes 3 --bins 16 --photons 200 --seed 3 >/dev/null
for fraction in 0.15 0; do
    rm -rf three
    run 0 --data three.h5 "${options[@]}" --epochs 1 --val-fraction "$fraction" --out three
    check "three classes, val-fraction $fraction: three folds are done" test "$(grep -c '^fold [012] done: best epoch 1 of 1, test accuracy' out)" = 3
    check "and no threshold is told of" bash -c '! grep -v "threshold[-_]for" out err three/train.log | grep -i threshold'
    check "summary.json keeps its form" python3 -c '
import json
assert [f["threshold"] for f in json.load(open("three/summary.json"))["folds"]] == [0.5] * 3'
done
"$build/predict" --model three --data three.h5 --out three.csv --device cpu --workers 2 --threshold 0.7 >out 2>err
check "predict says that it does not use one" grep -q "threshold is not used: with 3 classes" err
check "and shows none" bash -c '! grep threshold out'

# ---- bad input: the right code, one clear error, no folder that --resume would trust
bad() { # bad CODE TEXT ARGS...
    local code=$1 text=$2
    shift 2
    rm -rf bad
    run "$code" "$@" --out bad
    says "$text"
    short_error
    check "no run is left behind by: $*" test ! -e bad/config.yaml
}
if [ "${FLIM_SHORT:-}" != threads ]; then
    bad 3 "missing.h5" --data missing.h5
    bad 2 "--foldz" --data small.h5 --foldz 3
    bad 2 "folds" --data small.h5 --set foldss=3
    bad 2 "batch" --data small.h5 --batch 0
    bad 2 "batch" --data small.h5 --batch x
    bad 2 "folds" --data small.h5 --folds 100 --cv stratified
    bad 2 "group" --data small.h5 --folds 7 --cv group
    bad 2 "preset" --data small.h5 --preset hug
    bad 2 "cannot compute in it; it has fp32" --data small.h5 --device cpu --precision bf16
    bad 2 "precision amp: " --data small.h5 --device cpu --amp
    bad 2 "device" --data small.h5 --device gpu
    bad 4 "" --data small.h5 --device cuda:99
    bad 3 "small.h5" --data small.h5 --device cpu --init-weights small.h5
    : >empty.h5
    bad 3 "empty.h5" --data empty.h5
    echo "no HDF5" >text.h5
    bad 3 "text.h5" --data text.h5
    head -c $(($(stat -c %s small.h5) / 2)) small.h5 >half.h5
    bad 3 "half.h5" --data half.h5
    if [ "$(id -u)" != 0 ]; then
        mkdir locked && chmod 555 locked
        run 6 "${common[@]}" --out locked/run
    else
        run 6 "${common[@]}" --out /proc/nowhere/run
fi
check "a folder that cannot be written is said" grep -qiE "cannot (make|write)" err
fi

# ---- odd sizes of parts and batches
run 0 "${common[@]}" --out odd --epochs 1 --batch 17 --eval-batch 5 --accumulate 2 --sampler natural
run 0 "${common[@]}" --out tiny_batch --epochs 1 --batch 1 --fold 0 --patience 0
run 0 "${common[@]}" --out sized --epochs 1 --width 12 --depth 2 --fold 0
check "width and depth are told" grep -q "^Network: custom, width 12, depth 2, 292297 parameters" sized/train.log
check "the weights carry them: predict needs no flag" "$build/predict" --model sized/fold_0/best.safetensors --data small.h5 --out sized.csv --any-mask --quiet
run 2 "${common[@]}" --out bad_size --width 10
check "a width between multiples of 4 names the next ones" grep -q "width 10 is no multiple of 4; the next ones are 8 and 12" err
run 3 "${common[@]}" --out bad_size --init-weights sized/fold_0/best.safetensors --width 12
check "weights of another depth say how to get theirs" grep -q -- "--width 12 --depth 2" err
run 0 "${common[@]}" --out groups --epochs 1 --cv leave-one-group-out --fold 5
run 0 "${common[@]}" --out holdout --epochs 1 --folds 2 --holdout-group "$(head -2 whole/fold_0/predictions.csv | tail -1 | cut -d, -f3)"
check "hold-out predictions are written" test -s holdout/holdout_predictions.csv
check "hold-out metrics stand in the summary" bash -c '! grep -q "\"holdout\": null" holdout/summary.json'

check "the data file has not changed" test "$sum_before" = "$(sha256sum small.h5; stat -c %y small.h5)"
finish
