#!/usr/bin/env bash
# Batches that do not divide a part, that are larger than it, that hold one cell; and batches that memory does not hold: the error
# names one that fits, which then trains, and a run in progress goes on with another micro-batch of the same effective size.
# Usage: test_batches.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5

# ---- last batches: parts of 65, 33, 10 and 1 training cells; every cell is seen once an epoch, and none is dropped
splits() { # splits TRAIN_CELLS: two folds whose test sets are 0-5 and 6-71; the first trains on so many cells
    awk -v n="$1" 'BEGIN {
        printf "{\"mode\": \"stratified\", \"seed\": 42, \"data\": {\"n\": 72}, \"folds\": [{\"train\": [";
        for (i = 0; i < n; i++) printf "%s%d", (i ? ", " : ""), 71 - i;
        printf "], \"val\": [], \"test\": [0, 1, 2, 3, 4, 5]}, {\"train\": [0, 1, 2, 3, 4, 5], \"val\": [], \"test\": [";
        for (i = 6; i < 72; i++) printf "%s%d", (i > 6 ? ", " : ""), i;
        printf "]}]}\n" }' >splits.json
}
sees() { # sees TRAIN_CELLS BATCH UPDATES ARGS...
    local n=$1 batch=$2 updates=$3
    shift 3
    rm -rf r
    splits "$n"
    call 0 "$build/train_cv" --data k.h5 --splits splits.json --fold 0 --preset tiny --epochs 2 --batch "$batch" --sampler natural \
        --device cpu --workers 2 --out r "$@"
    check "$n cells, batch $batch $*: $n cells and $updates updates an epoch" test \
        "$(tail -n +2 r/fold_0/history.csv | cut -d, -f11,12 | sort -u)" = "$n,$updates"
    check "$n cells, batch $batch: a finite loss" bash -c "! tail -n +2 r/fold_0/history.csv | cut -d, -f3 | grep -qE 'nan|inf|^$'"
    check "$n cells, batch $batch: every test cell is predicted" test "$(tail -n +2 r/fold_0/predictions.csv | wc -l)" = 6
}
sees 65 64 2
sees 33 16 3
sees 10 64 1
sees 10 64 1 --eval-batch 5
sees 1 64 1
sees 1 1 1
sees 5 1 5
sees 33 8 3 --accumulate 2
sees 33 16 1 --accumulate 8

# ---- memory
limit=1500000 # KiB of address space
if ! (ulimit -v $limit && "$build/train_cv" --version) >/dev/null 2>&1; then
    echo "left out: this build does not start within ulimit -v $limit"
    finish
    exit
fi
limited() { bash -c 'ulimit -v "$1"; shift; exec "$@"' _ $limit "$@"; }
common=(--data k.h5 --preset base --folds 2 --epochs 2 --device cpu --workers 2)
call 5 limited "$build/train_cv" "${common[@]}" --batch 512 --out big
says "out of host memory: batches of 512 cells"
check "no folder is left of it" test ! -e big
fits=$(grep -oE 'the largest batch that fits is [0-9]+' err | grep -oE '[0-9]+')
check "a batch that fits is named: ${fits:-none}" test "${fits:-0}" -gt 8 -a "${fits:-0}" -lt 512
call 0 limited "$build/train_cv" "${common[@]}" --epochs 1 --fold 0 --batch "${fits:-8}" --out fits
call 5 limited "$build/train_cv" "${common[@]}" --epochs 1 --fold 0 --batch $((${fits:-8} * 5 / 4)) --out more
call 143 env FLIM_AIM="line=fold 0 epoch 1:1:15" "$faulty" "${common[@]}" --batch 512 --out begun
call 5 limited "$build/train_cv" --resume --out begun
says "the largest batch that fits is"
check "it says how to go on" grep -qF "train_cv --resume --resume-override --batch 256 --accumulate 2 --out begun" out
call 2 limited "$build/train_cv" --resume --out begun --batch 128 --accumulate 4
says "add --resume-override"
call 0 limited "$build/train_cv" --resume --resume-override --out begun --batch 128 --accumulate 4
check "both folds are done" test -e begun/fold_0/DONE -a -e begun/fold_1/DONE
finish
