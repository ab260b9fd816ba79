#!/usr/bin/env bash
# train_cv --tensorboard: TensorBoard's own reader finds what history.csv, summary.json and predictions.csv say, each step once, also
# after kills and resuming.  Usage: test_tensorboard.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate d.h5
options=(--preset tiny --folds 2 --epochs 4 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
"$build/train_cv" --data d.h5 "${options[@]}" --tensorboard --out whole >out 2>err
if grep -q "writes no event files" err; then
    echo "skipped: $(cat err)"
    check "and no folder was made" test ! -e whole
    exit 77
fi
needs_python_env
check_fold() { # FOLDER CLASS...
    check "$1's events are the run's" "$python" "$top/tests/export/check_events.py" "$@"
}
two=(quiescent activated)
check_fold whole/fold_0 "${two[@]}"
check_fold whole/fold_1 "${two[@]}"

# ---- no number depends on it, and without it there is no file
call 0 "$build/train_cv" --data d.h5 "${options[@]}" --out plain
check "the same run" test "$(digest plain)" = "$(digest whole)"
check "no event files" test -z "$(find plain -name 'events*')"

# ---- killed within an epoch, between an epoch's records and its checkpoint, and before the test; then continued
for aim in train:13:9 line=epoch\ 3/4:1:9 rename=history.csv:2:9 val:3:9 test:1:9; do
    rm -rf killed
    call 137 env FLIM_AIM="$aim" "$faulty" --data d.h5 "${options[@]}" --tensorboard --out killed
    call 0 "$build/train_cv" --resume --out killed
    check_fold killed/fold_0 "${two[@]}"
done

# ---- begun without it, continued with it; a file that somebody removed
call 137 env FLIM_AIM=val:2:9 "$faulty" --data d.h5 "${options[@]}" --out later
call 0 "$build/train_cv" --resume --out later --tensorboard
check_fold later/fold_0 "${two[@]}"

# ---- three classes; refits and the final model have their own
simulate three.h5 --classes 3
call 0 "$build/train_cv" --data three.h5 "${options[@]}" --tensorboard --out three --refit --final
check_fold three/fold_1 class_0 class_1 class_2
check "a file each" test "$(find three -name 'events*' | wc -l)" = 5
finish
