#!/usr/bin/env bash
# On a card: each convolution is timed once a process, whatever the sizes of last batches, folds and validation sets; a second
# process takes all of them from the cache.  1001 cells, batch 64, 5 folds x 3 epochs.  Skipped where there is no card.
# Usage: test_tuned_once.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
if ! "$build/gpu_plan" --json card.json >/dev/null 2>why; then
    echo "skipped: $(head -1 why)"
    exit 77
fi
export XDG_CACHE_HOME=$work/cache
"$build/flim_simulate" --out k.h5 --cells 1001 --bins 64 --seed 2 >/dev/null || exit 1
plans() { cat out err | grep -o 'convolution plans: .*' | sort -u; }
run=("$build/train_cv" --data k.h5 --preset tiny --folds 5 --epochs 3 --batch 64 --device cuda)
call 0 "${run[@]}" --out first
check "one search, before the first epoch: $(plans)" test "$(cat out err | grep -c 'convolution plans')" = 1
check "plans are timed: $(plans)" grep -qE 'plans: [1-9][0-9]* tuned, 0 from the cache' <(plans)
call 0 "${run[@]}" --out second
check "the second process times nothing: $(plans)" grep -qE 'plans: 0 tuned, [1-9][0-9]* from the cache' <(plans)
finish
