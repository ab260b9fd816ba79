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

# ---- begun without it, continued with it
call 137 env FLIM_AIM=val:2:9 "$faulty" --data d.h5 "${options[@]}" --out later
call 0 "$build/train_cv" --resume --out later --tensorboard
check_fold later/fold_0 "${two[@]}"

# ---- removed by somebody between the last epoch and the test: the process is stopped there meanwhile
env FLIM_AIM=test:1:19 "$faulty" --data d.h5 "${options[@]}" --fold 0 --tensorboard --out removed >out 2>err </dev/null &
pid=$!
for ((i = 0; i < 600; i++)); do
    [ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" != T ] || break
    sleep 0.1
done
check "there is a file of the epochs" rm removed/fold_0/events.out.tfevents.*
kill -CONT "$pid"
wait "$pid"
check "the run ends well" test "$?" = 0
check_fold removed/fold_0 "${two[@]}"

# ---- stages: one file in the fold's folder, steps counted through as in history.csv; killed in one and resumed
stages=(--stages "coarse epochs=2 batch=8" --stages "middle epochs=1 lr=1e-4" --stages "fine epochs=2 lr=1e-5 mixup=counts")
call 0 "$build/train_cv" --data d.h5 "${options[@]}" "${stages[@]}" --tensorboard --out stages
check_fold stages/fold_0 "${two[@]}"
check_fold stages/fold_1 "${two[@]}"
check "a file for each fold" test "$(find stages -name 'events*' | wc -l)" = 2
check "nothing is left of the stages" test -z "$(find stages -name 'stage_*')"
for aim in line=epoch\ 1/1:1:9 val:4:9; do
    rm -rf killed
    call 137 env FLIM_AIM="$aim" "$faulty" --data d.h5 "${options[@]}" "${stages[@]}" --tensorboard --out killed
    call 0 "$build/train_cv" --resume --out killed
    check_fold killed/fold_0 "${two[@]}"
done

# ---- three classes; refits and the final model have their own
simulate three.h5 --classes 3
call 0 "$build/train_cv" --data three.h5 "${options[@]}" --tensorboard --out three --refit --final
check_fold three/fold_1 class_0 class_1 class_2
check "a file each" test "$(find three -name 'events*' | wc -l)" = 5
finish
