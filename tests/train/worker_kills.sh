#!/usr/bin/env bash
# Kills workers of --jobs at random moments, and starts nothing anew itself: each run must end with 0 in the serial run's files, byte
# for byte, with no fold lost and no checkpoint or temporary file left.
# FLIM_KILL_FLAGS ("--refit --final", "--seeds 1-2") are flags of the run.
# Usage: worker_kills.sh BUILD_DIR [KILLS [JOBS]]     default: 10 kills, 2 workers; the figures of 50 stand in docs/reliability.md
set -u
kills=${2:-10} jobs=${3:-2}
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh" "$1"
export OMP_NUM_THREADS=1

simulate k.h5
read -ra more <<<"${FLIM_KILL_FLAGS:-}"
run=(--data k.h5 --preset tiny --folds 5 --epochs 6 --batch 16 --lr 1e-3 "${device[@]}" --workers 2 "${more[@]}")
"$build/train_cv" "${run[@]}" --out whole >/dev/null 2>&1 || exit 1
whole() { # the digests of all runs of a folder
    if ls "$1"/seed_* >/dev/null 2>&1; then
        for s in "$1"/seed_*; do digest "$s"; done
        sha256sum <"$1/summary.json"
    else
        digest "$1"
    fi
}
want=$(whole whole)

sent=0 runs=0 wrong=0 litter=0
while [ $sent -lt "$kills" ]; do
    rm -rf cut
    runs=$((runs + 1))
    "$build/train_cv" "${run[@]}" --jobs "$jobs" --worker-retries 100000 --out cut >out.log 2>err.log &
    parent=$!
    while kill -0 $parent 2>/dev/null; do
        sleep "0.$((RANDOM % 900 + 100))"
        read -ra workers <<<"$(cat "/proc/$parent/task/$parent/children" 2>/dev/null)"
        if [ ${#workers[@]} -gt 0 ] && [ $sent -lt "$kills" ] && kill -9 "${workers[RANDOM % ${#workers[@]}]}" 2>/dev/null; then
            sent=$((sent + 1))
        fi
    done
    wait $parent
    code=$?
    if [ $code != 0 ] || [ "$(whole cut)" != "$want" ]; then
        wrong=$((wrong + 1))
        echo "run $runs ended with $code:"
        tail -3 err.log
        diff -rq whole cut
    fi
    if [ -n "$(find cut -name '*.tmp' -o -name '*.ckpt' -o -name checkpoint)" ]; then
        litter=$((litter + 1))
        find cut -name '*.tmp' -o -name '*.ckpt' -o -name checkpoint
    fi
done
echo "$sent kills of $jobs workers over $runs runs: $wrong wrong ends, $litter runs with litter"
[ $wrong = 0 ] && [ $litter = 0 ]
