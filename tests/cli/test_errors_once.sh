#!/usr/bin/env bash
# An error appears once: on a terminal, where both streams and the log meet, its words are there one time, for failing calls of every
# program.  Counts agree with their nouns there and in healthy calls ("1 cells").  Usage: test_errors_once.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate d.h5 --height 5 --width 5
"$build/flim_simulate" --out one.h5 --cells 8 --donors 8 --bins 8 --height 3 --width 3 >simulated
call 0 "$build/train_cv" --data d.h5 --preset tiny --folds 2 --epochs 1 --workers 1 --batch 16 --device cpu --out run
cp out trained
[ "$failures" = 0 ] || exit 1
head -c 3000 d.h5 >cut.h5
echo text >text.h5
head -c 500 run/fold_0/best.safetensors >cut.safetensors
mkdir empty taken
echo somebody >taken/notes
printf 'epochs: many\n' >bad.yaml
printf 'nonsense: 1\n' >unknown.yaml

fails() { # fails WORDS PROGRAM ARGS...: not 0, no signal, and the words once over both streams and in train.log no more than once
    local words=$1 code
    shift
    "$build/$1" "${@:2}" >both 2>&1 </dev/null
    code=$?
    check "$*: exit code $code" test $code -ge 1 -a $code -le 8
    check "$*: '$words' appears once, not $(grep -cF -- "$words" both) times" test "$(grep -oF -- "$words" both | wc -l)" = 1
    [ "$1" = flim_info ] && return # whose report says it, on standard output
    check "$*: one line begins with the program's name" test "$(grep -c "^$1: error: " both)" = 1
    local text # of that line: nowhere else, whatever it is
    text=$(sed -n "s/^$1: error: //p" both | cut -c1-60)
    check "$*: '$text' appears once" test "$(grep -oF -- "$text" both | wc -l)" = 1
}
T=(train_cv --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu)
fails "--epochs" train_cv --epochs many
fails "'nonsense'" train_cv --config unknown.yaml
fails "'many'" train_cv --config bad.yaml
fails "cut.h5" "${T[@]}" --data cut.h5
fails "text.h5" "${T[@]}" --data text.h5
fails "none.h5: cannot open" "${T[@]}" --data none.h5
fails "already contains a run" "${T[@]}" --data d.h5 --out run
fails "is not empty" "${T[@]}" --data d.h5 --out taken
fails "tpu" train_cv --data d.h5 --device tpu
fails "400 folds requested" "${T[@]}" --data d.h5 --folds 400 --dry-run
fails "has no run" train_cv --resume --out empty
fails "cut.safetensors" "${T[@]}" --data d.h5 --init-weights cut.safetensors
fails "--model" predict --data d.h5
fails "none.h5" predict --model run --data none.h5 --device cpu
fails "cut.h5" predict --model run --data cut.h5 --device cpu
fails "cut.safetensors" predict --model cut.safetensors --data d.h5 --device cpu
fails "is an HDF5 file" predict --model run --data d.h5 --out one.h5 --device cpu
fails "empty" fold_metrics empty
fails "taken" fold_metrics run --csv taken --json -
fails "cannot open the data file" flim_info none.h5
fails "not an HDF5 file" flim_info text.h5
fails "the file is cut short" flim_info cut.h5
"$build/flim_info" none.h5 >out 2>err
check "flim_info on two streams: standard error has the error, too" grep -q "^flim_info: error: none.h5: cannot open" err
fails "text.h5" flim_repack text.h5 out.h5
fails "d.h5 is an HDF5 file" flim_repack one.h5 d.h5
fails "d.h5 is an HDF5 file" flim_simulate --out d.h5
fails "--cells" flim_simulate --cells x --out s.h5
fails "OUT and INPUT" flim_import
fails "none" flim_import i.h5 none.npy --class a=b
fails "MODEL" flim_export
fails "cut.safetensors" flim_export cut.safetensors --onnx o.onnx
fails "RTX9999" gpu_plan --gpu RTX9999
fails "unknown subcommand" flim_bench stpe
fails "none.h5" flim_bench step --device cpu --data none.h5

if /usr/bin/python3 - 2>/dev/null <<'PY'; then
import h5py, numpy as np
with h5py.File("bad.h5", "w") as f:
    counts = np.ones((12, 8, 3, 3), "f4")
    counts[[4, 7], 2] = np.nan
    f["counts"], f["label"] = counts, np.arange(12, dtype="u1") % 2
PY
    fails "cell 4" "${T[@]}" --data bad.h5
    check "the second bad cell is said, too" test "$(grep -c "cell 7" both)" = 1
fi

# ---- a fold that fails: its reason is said once, on the terminal and in train.log
if [ -x "$faulty" ]; then
    env FLIM_INFINITE_CELL=5 "$faulty" --data d.h5 --preset tiny --folds 3 --epochs 1 --batch 16 --device cpu --cache none --cv stratified --out broken >both 2>&1
    check "a fold has failed" grep -q "has failed, the others continue" both
    for file in both broken/train.log; do
        check "$file says why a fold failed once" test "$(grep -c 'fold [0-9].*not finite' $file)" = "$(find broken -name FAILED | wc -l)"
    done
fi

# ---- grammar
call 0 "$build/flim_info" one.h5
cp out info
call 0 "$build/flim_repack" one.h5 repacked.h5 --select group=donor_1
cp out repacked
call 0 "$build/predict" --model run/fold_0/best.safetensors --data d.h5 --device cpu --out p.csv
cp out predicted
call 0 "$build/fold_metrics" run --replicates 0 --md m.md
cp out metrics
"$build/flim_simulate" --out single.h5 --cells 1 --donors 1 --bins 8 --height 3 --width 3 >>simulated 2>&1
call 0 "$build/train_cv" --data one.h5 --cv leave-one-group-out --preset tiny --epochs 1 --workers 1 --batch 16 --device cpu --out single
cp out folds_of_one
call 0 "$build/fold_metrics" single --replicates 0
cp out metrics_of_one
for file in trained simulated info repacked predicted metrics m.md run/train.log folds_of_one metrics_of_one; do
    [ -e "$file" ] || continue
    check "$file: one thing is no plural: $(grep -ohE '(^|[^0-9.,-])1 (cells|folds|groups|files|epochs|models|threads|updates|batches|donors|photons|images|classes|names|warnings)\b' "$file" | head -3 | tr '\n' ';')" \
        test "$(grep -cE '(^|[^0-9.,-])1 (cells|folds|groups|files|epochs|models|threads|updates|batches|donors|photons|images|classes|names|warnings)\b' "$file")" = 0
done
finish
