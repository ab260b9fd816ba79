#!/usr/bin/env bash
# INT, TERM, HUP and USR1 aimed at every phase of a run: the right exit code within 10 s, a line that says how to go on, and a
# resumed run that ends in the undisturbed one's files.  A second INT ends at once; a closed pipe does no harm.
# FLIM_TEST_DEVICE=cuda does the same on a card, in deterministic mode.
# By default each phase gets one of the four signals; FLIM_SIGNALS=all sends each of them everywhere, FLIM_SHORT=1 to a few.
# Usage: test_signals.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
common=(--data k.h5 --preset tiny --folds 2 --epochs 2 --batch 16 --lr 1e-3 "${device[@]}" --workers 2 --holdout-group donor_1)

call 0 "$build/train_cv" "${common[@]}" --out whole
want=$(digest whole)
numbers=(2 15 1 10) # INT TERM HUP USR1
limit=10000 # ms, of the whole run up to its end
[ -n "${FLIM_SHORT:-}" ] && limit=60000 # sanitizers are slow
# shellcheck disable=SC2054
default=(env --default-signal=INT,TERM,HUP,USR1) # whatever a shell without job control, or nohup, has set
"${default[@]}" true 2>/dev/null || default=(env)

aim() { # aim WHERE SIGNAL [AGAIN]
    local begun code took again=${3:-}
    rm -rf cut
    begun=$(date +%s%N)
    "${default[@]}" FLIM_AIM="$1:$2" ${again:+FLIM_AIM_AGAIN=$again} "$faulty" "${common[@]}" --out cut >out 2>err </dev/null
    code=$?
    took=$((($(date +%s%N) - begun) / 1000000)) # more than the signal waited
    check "signal $2 at $1: exit code $code is $((128 + 2))..., in $took ms" test $code = $((128 + (again ? again : $2))) -a "$took" -lt $limit
    if [ -z "$again" ]; then
        if [ -e cut/config.yaml ]; then
            check "signal $2 at $1: it says how to go on" grep -q "resume with: train_cv --resume --out cut" out
        else
            check "signal $2 at $1: it says that nothing was kept" grep -q "before there was anything to keep" out
        fi
    fi
    check "signal $2 at $1: no half-written file" test -z "$(find cut -name '*.tmp' 2>/dev/null)"
    for history in cut/fold_*/history.csv; do
        [ -e "$history" ] && check "$history is whole" bash -c "awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' '$history' && [ -z \"\$(tail -c 1 '$history')\" ]"
    done
    if [ -e cut/config.yaml ]; then
        call 0 "$build/train_cv" --out cut --resume
    else
        call 0 "$build/train_cv" "${common[@]}" --out cut
    fi
    check "signal $2 at $1: resumed, the files are the undisturbed run's" test "$(digest cut)" = "$want"
    check "signal $2 at $1: no checkpoint is left in the end" test -z "$(find cut -name checkpoint)"
}

# Where each phase is met: the scan (before it, and in one of its threads), the plan, the folder, training (first, middle and last
# batch of an epoch), validation, saving, the weights, test prediction, between folds, hold-out, baselines.
plan=plan:3 # oneDNN builds a convolution
[ "${device[1]}" = cpu ] || plan="line=leakage:1" # the last line before plans are sought
places=("line=Precision:1" "read=k.h5:60" "$plan" "line=Memory plan:1" "line=Run folder:1" "rename=config.yaml:1"
    train:1 train:2 train:6 val:1 val:2 "rename=state.new.ckpt:1" "rename=state.ckpt:1" "rename=state.previous:1"
    "rename=history.csv:2" "rename=best.safetensors:1" test:1 "rename=predictions.csv:1" "rename=fold_0/summary.json:1"
    "rename=fold_0/DONE:1" "line=fold 0 done:1" "rename=fold_1/DONE:1" holdout:1 "rename=baseline_class:1")
if [ -n "${FLIM_SHORT:-}" ]; then # for the sanitizers' builds
    places=("read=k.h5:60" "$plan" train:2 val:1 "rename=state.ckpt:1" test:1 "rename=fold_0/DONE:1" holdout:1)
fi
i=0
for place in "${places[@]}"; do
    if [ "${FLIM_SIGNALS:-}" = all ]; then
        for number in "${numbers[@]}"; do aim "$place" "$number"; done
    else
        aim "$place" "${numbers[i % 4]}"
    fi
    i=$((i + 1))
done

# ---- a second INT ends at once, in the middle of whatever it is
for place in train:2 "rename=state.ckpt:1" "read=k.h5:60"; do
    aim "$place" 2 2
    [ -n "${FLIM_SHORT:-}" ] && break
    aim "$place" 15 2
done

# ---- nohup: the end of the terminal is not the end of the run
call 0 bash -c 'trap "" HUP; FLIM_AIM=train:2:1 "$1" "${@:2}" --out nohup' _ "$faulty" "${common[@]}"
check "under nohup HUP does nothing" test "$(digest nohup)" = "$want"

# ---- a closed pipe
"$build/train_cv" "${common[@]}" --out piped 2>err | head -1 >/dev/null
check "| head leaves the run alone: exit code ${PIPESTATUS[0]}" test "$(digest piped)" = "$want"
finish
