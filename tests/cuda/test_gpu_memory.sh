#!/usr/bin/env bash
# On a card: the batch of --batch auto trains 2 folds x 2 epochs with validation and tails, alone and beside a program that holds half
# of the card; it fills most of what it may, unless 2^31 elements a tensor bound it first, and 1.2 times that batch would be too much.
# xlarge in fp32, so that memory is the bound where it can be.  Skipped where there is no card.
# Usage: test_gpu_memory.sh BUILD_DIR [flags for train_cv, e.g. --benchmark]
set -u
build=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
hog=
trap '[ "$BASHPID" = $$ ] && { [ -n "$hog" ] && kill "$hog" 2>/dev/null; rm -rf "$work"; }' EXIT
cd "$work" || exit 1
if ! "$build/gpu_plan" --json card.json 2>why; then
    echo "skipped: $(head -1 why)"
    exit 77
fi
failures=0
say() { # ok or FAILED, text
    echo "$1: $2"
    [ "$1" = ok ] || failures=$((failures + 1))
}
read -r total budget < <(python3 -c 'import json; c = json.load(open("card.json"))["card"]; print(c["memory_bytes"], c["budget_bytes"])')
# Half of the cells less a validation set train: more than the 148 that 2^31 elements a tensor allow.
"$build/flim_simulate" --out cells.h5 --cells 400 --donors 8 --photons 300 --seed 5 >/dev/null || exit 1

batch_of() { sed -n 's/^batch: //p' "$1/config.yaml"; }
run() { # name: train_cv --batch auto into the folder
    local begin=$SECONDS
    if "$build/train_cv" --data cells.h5 --preset xlarge --folds 2 --epochs 2 --batch auto --device cuda --precision fp32 \
        --cache none --no-benchmark "${flags[@]}" --out "$1" >"$1.out" 2>"$1.err" </dev/null; then
        say ok "$1: batch $(batch_of "$1"), $((SECONDS - begin)) s; $(grep -h '^Batch auto' "$1.out")"
        if python3 -c '
import re, sys
line = [l for l in open(sys.argv[1]) if l.startswith("Memory:")][-1]
print(line, end="")
planned, allocated = (float(x) for x in re.match(r"Memory: planned ([0-9.]+) MiB, allocated ([0-9.]+) MiB", line).groups())
sys.exit(abs(allocated / planned - 1) > 0.03)
' "$1.out"; then
            say ok "$1: planned is within 3 % of what the card says is gone"
        else
            say FAILED "$1: planned and measured memory differ"
        fi
    else
        say FAILED "$1: $(tail -1 "$1.err")"
    fi
}
bounded() { # name, budget: 1.2 times the batch is refused; where memory is why, the peak is 80 % of the budget at least
    local more peak
    more=$(($(batch_of "$1") * 12 / 10))
    peak=$(tail -1 "$1/fold_0/history.csv" | awk -F, -v want="$(head -1 "$1/fold_0/history.csv" | tr , '\n' | grep -n '^peak_bytes$' | cut -d: -f1)" '{ print $want }')
    "$build/gpu_plan" --preset xlarge --precision fp32 --batch $more --json more.json >/dev/null 2>why
    case $(python3 -c 'import json; c = json.load(open("more.json"))["plan"]["current"]; print("none" if c is None else c["fits"])') in
    False)
        say ok "$1: $more cells, 1.2 times as much, exceed the budget"
        if [ $((peak * 10)) -lt $(($2 * 8)) ]; then
            say FAILED "$1: peak $((peak >> 20)) MiB of $(($2 >> 20)) MiB that it may fill"
        fi
        ;;
    none)
        if grep -q '2^31' why; then
            say ok "$1: $more cells, 1.2 times as much: $(head -1 why)"
        else
            say FAILED "$1: $(head -1 why)"
        fi
        ;;
    *) say FAILED "$1: $more cells, 1.2 times as much, fit as well" ;;
    esac
    if [ "$peak" -le "$2" ]; then
        say ok "$1: peak $((peak >> 20)) MiB of $(($2 >> 20)) MiB that it may fill"
    else
        say FAILED "$1: peak $((peak >> 20)) MiB is above $(($2 >> 20)) MiB"
    fi
}
flags=("$@")
run alone
bounded alone "$budget"
hold=$(find "$build" -name hold_memory -type f | head -1)
if [ -x "$hold" ]; then
    "$hold" $((total / 2 / 1073741824)) 600 >hog.out 2>&1 &
    hog=$!
    for _ in $(seq 100); do grep -q holding hog.out && break; sleep 0.1; done
    "$build/gpu_plan" --json beside.json >/dev/null 2>&1
    beside=$(python3 -c 'import json; print(json.load(open("beside.json"))["card"]["budget_bytes"])')
    run beside
    bounded beside "$beside"
    kill $hog
    hog=
    if [ "$(batch_of beside)" -lt "$(batch_of alone)" ]; then
        say ok "beside a program $(cat hog.out) the batch is smaller"
    else
        say FAILED "the batch is as large beside another program"
    fi
else
    echo "no hold_memory in $build: the run beside another program is left out"
fi
[ $failures = 0 ]
