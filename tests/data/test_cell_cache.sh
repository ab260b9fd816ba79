#!/usr/bin/env bash
# Runs of train_cv with --cache none, host, device and auto give the same bits; what cannot be is refused.
# Usage: test_cache.sh BUILD_DIR      The card's part is left out, with the reason, where there is none.
set -euo pipefail
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

fail() {
    echo "FAILED: $*"
    tail -5 err out 2>/dev/null || true
    exit 1
}
digest() {
    (cd "$1" && sha256sum fold_*/best.safetensors fold_*/predictions.csv && for h in fold_*/history.csv; do cut -d, -f1-13 "$h"; done) | sha256sum
}
# run DEVICE CACHE
run() {
    "$build/train_cv" --data small.h5 --out "run-$1-$2" --preset tiny --folds 2 --epochs 2 --batch 16 --device "$1" --cache "$2" \
        --deterministic --workers 3 >out 2>err || fail "--device $1 --cache $2 exited with $?"
    grep -q "data wait [0-9.]* %" out || fail "--cache $2: the epoch line does not say how long the device waited"
}
compare() { [ "$(digest "run-$1-$2")" = "$(digest "run-$1-none")" ] || fail "--device $1: --cache $2 gives other bits than none"; }

"$build/flim_simulate" --out small.h5 --cells 70 --donors 6 --bins 17 --photons 3000 --seed 3 >/dev/null
for cache in none host auto; do
    run cpu $cache
    compare cpu $cache
done
grep -q "caching decoded cells in RAM" out || fail "auto does not say where cells stay"

if "$build/train_cv" --data small.h5 --out no --device cpu --cache device >out 2>err; then
    fail "--cache device on the CPU was taken"
elif [ $? != 2 ]; then
    fail "--cache device on the CPU: not exit code 2"
fi
grep -q "has no device memory; use --cache host" err || fail "--cache device on the CPU: the error does not say what to do"
[ ! -e no ] || fail "a refused run left a folder"

if ! "$build/flim_bench" step --device cuda --preset tiny --bins 8 --pixels 3 --batch 1 --steps 1 >card 2>&1; then
    echo "left out: CUDA ($(head -1 card))"
    exit 0
fi
for cache in none host device auto; do
    run cuda $cache
    compare cuda $cache
    case $cache in
    device | auto) grep -q "caching decoded cells in device memory" out || fail "--cache $cache does not say that cells stay in device memory" ;;
    *) ! grep -q "caching decoded cells in device memory" out || fail "--cache $cache keeps cells in device memory" ;;
    esac
    if [ $cache = device ]; then
        grep -q "cells of the data  *device" out || fail "the memory plan does not list the cells"
    fi
done
