#!/usr/bin/env bash
# A machine that gives little or settings that ask for too much: ulimit -v, OMP_NUM_THREADS; and a learning rate below the schedule's end.
# Usage: test_limits.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5 --cells 24 --height 5 --width 5
train=("$build/train_cv" --data k.h5 --preset tiny --folds 2 --epochs 2 --batch 16 --device cpu --workers 2 --quiet)

# ---- address space: an answer, never a crash (a sanitizer wants terabytes of it)
starts() { (ulimit -v $((1000 * $1)) && "$build/train_cv" --version >/dev/null 2>&1); }
if starts 1000; then
    least=40 # below it the program's libraries cannot be loaded: how much they need depends on how it was built
    while ! starts $least; do
        least=$((least + 1))
    done
    answered=0 limits=(2 15 30 45 57 65 80 95) # more than the least: with nothing to spare the libraries' own beginnings fail
    for more in "${limits[@]}"; do
        (ulimit -v $((1000 * (least + more))) && exec "${train[@]}" --out v$more) >out 2>err </dev/null
        code=$?
        answered=$((answered + (code < 126)))
        [ $code -lt 126 ] || echo "ulimit -v $((least + more)) MB, least $least: exit code $code"
    done
    check "ulimit -v, from $least MB on: $answered of ${#limits[@]} calls were answered" test $answered = ${#limits[@]}
    (ulimit -v $((1000 * (least + 45))) && exec "${train[@]}" --out v) >out 2>err </dev/null
    check "too little for the CPU backend is an error of memory, which names ulimit -v" bash -c "[ $? = 5 ] && grep -q 'ulimit -v' err"
else
    echo "left out: ulimit -v"
fi

# ---- threads
for threads in 100000 5000; do
    call 0 env OMP_NUM_THREADS=$threads timeout 100 "${train[@]}" --fold 0 --out t$threads
done

# ---- a learning rate that is lower than the schedule's end stays
call 0 "${train[@]}" --fold 0 --lr 1e-8 --out low
check "lr 1e-8 never rises: $(cut -d, -f2 low/fold_0/history.csv | tr '\n' ' ')" test "$(tail -n +2 low/fold_0/history.csv | cut -d, -f2 | sort -u)" = 1e-08
finish
