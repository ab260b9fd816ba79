#!/usr/bin/env bash
# The same seed gives the same weights (sha256), whatever the number of loader threads, the delay of one of them, and the way the
# cells are cached; another seed gives others, in every fold.  Threads and memory stay as they are after the first fold.
# Usage: test_same_seed.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
common=(--data k.h5 --preset tiny --folds 2 --epochs 2 --batch 16 --lr 1e-3 "${device[@]}")

row() { # row NAME PROGRAM ARGS...: one run; prints the sha256 of its weights
    local name=$1
    shift
    call 0 "$@" --out "$name"
    printf '%-34s %s\n' "$name" "$(weights "$name" | cut -c1-32)"
}
row seed_1_workers_1 "$build/train_cv" "${common[@]}" --seed 1 --workers 1
row seed_1_workers_8 "$build/train_cv" "${common[@]}" --seed 1 --workers 8
row seed_1_deterministic "$build/train_cv" "${common[@]}" --seed 1 --workers 8 --deterministic
row seed_1_workers_1_delay_50_ms env FLIM_SLOW_THREAD=50 "$faulty" "${common[@]}" --cache none --seed 1 --workers 1 --epochs 1
row seed_1_workers_8_delay_50_ms env FLIM_SLOW_THREAD=50 "$faulty" "${common[@]}" --cache none --seed 1 --workers 8
row seed_1_prefetch_1 "$build/train_cv" "${common[@]}" --seed 1 --workers 8 --prefetch 1
row seed_1_one_epoch "$build/train_cv" "${common[@]}" --seed 1 --workers 8 --epochs 1
row seed_2 "$build/train_cv" "${common[@]}" --seed 2
want=$(digest seed_1_workers_1)
for name in seed_1_workers_8 seed_1_workers_8_delay_50_ms seed_1_prefetch_1; do
    check "$name has the files of seed_1_workers_1" test "$(digest $name)" = "$want"
done
numbers() { # of a run: a weight file without its header, which tells the settings, and predictions
    local file
    for file in "$1"/fold_*/best.safetensors; do tail -c "+$((9 + $(od -An -t u8 -N 8 "$file")))" "$file"; done
    cat "$1"/fold_*/predictions.csv
}
check "--deterministic gives the same tensors and predictions" cmp <(numbers seed_1_workers_1) <(numbers seed_1_deterministic)
check "which are thousands of numbers" test "$(numbers seed_1_deterministic | wc -c)" -gt 10000
check "one slow thread alone, too" test "$(digest seed_1_workers_1_delay_50_ms)" = "$(digest seed_1_one_epoch)"
for fold in 0 1; do
    check "seed 2 gives other weights in fold $fold" bash -c "! cmp -s seed_1_workers_1/fold_$fold/best.safetensors seed_2/fold_$fold/best.safetensors"
done
check "seed 2 gives other folds" bash -c '! cmp -s <(sed "s/\"seed\": [0-9]*//" seed_1_workers_1/splits.json) <(sed "s/\"seed\": [0-9]*//" seed_2/splits.json)'
check "the two folds do not start from the same weights" bash -c '! cmp -s seed_1_workers_1/fold_0/best.safetensors seed_1_workers_1/fold_1/best.safetensors'

# ---- augmentation: drawn for the cell, so that threads, caches and an interruption change nothing
augment=(--augment flim --augment bootstrap:0.2)
row flim_workers_1 "$build/train_cv" "${common[@]}" "${augment[@]}" --seed 1 --workers 1
row flim_workers_8_no_cache "$build/train_cv" "${common[@]}" "${augment[@]}" --seed 1 --workers 8 --cache none
row flim_delay_50_ms env FLIM_SLOW_THREAD=50 "$faulty" "${common[@]}" "${augment[@]}" --cache none --seed 1 --workers 8
call 143 env FLIM_AIM=train:3:15 "$faulty" "${common[@]}" "${augment[@]}" --seed 1 --workers 3 --out flim_resumed
call 0 "$build/train_cv" --resume --out flim_resumed --workers 2
for name in flim_workers_8_no_cache flim_delay_50_ms flim_resumed; do
    check "$name has the files of flim_workers_1" test "$(digest $name)" = "$(digest flim_workers_1)"
done
mixed=(--augment paper --mixup counts --mixup-partner group --mixup-share batch)
row mixup_workers_1 "$build/train_cv" "${common[@]}" "${mixed[@]}" --seed 1 --workers 1
call 143 env FLIM_AIM=train:3:15 "$faulty" "${common[@]}" "${mixed[@]}" --seed 1 --workers 3 --cache none --out mixup_resumed
call 0 "$build/train_cv" --resume --out mixup_resumed --workers 8
check "a resumed run that mixes cells has the files of an undisturbed one" test "$(digest mixup_resumed)" = "$(digest mixup_workers_1)"
check "augmentation changes the weights" bash -c '! cmp -s flim_workers_1/fold_0/best.safetensors seed_1_workers_1/fold_0/best.safetensors'

# ---- compute threads (OMP_NUM_THREADS) change the order of sums, so a run that goes on with another number of them says so
call 143 env FLIM_AIM=train:3:15 "$faulty" "${common[@]}" --out moved
call 0 env OMP_NUM_THREADS=3 "$build/train_cv" --resume --out moved
says "the run was started by"
says "· 3 threads: what is computed from here on may differ in its last bits"

# ---- threads and memory over folds: what the first fold has taken is enough for all
call 0 env FLIM_WATCH=watch "$faulty" "${common[@]}" --folds 6 --epochs 2 --cv stratified --out flat
check "six folds were watched" test "$(wc -l <watch)" = 6
check "the number of threads stays: $(cut -d' ' -f1 watch | sort -u | tr '\n' ' ')" test "$(cut -d' ' -f1 watch | sort -u | wc -l)" = 1
if grep -qE '^FLIM_SANITIZE:STRING=.+' "$build/CMakeCache.txt" 2>/dev/null; then
    echo "left out: memory over the folds; a sanitizer keeps what is freed"
else
    check "memory stays within 4 MiB: $(cut -d' ' -f2 watch | tr '\n' ' ')KiB" awk '{ if (NR == 1) a = $2; if ($2 - a > 4096) exit 1 }' watch
fi
check "what is waited for the loader stands in every epoch" test "$(grep -c 'data wait' flat/train.log)" = 12
finish
