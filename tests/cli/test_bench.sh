#!/bin/bash
# flim_bench: exit codes and nearest names, the JSON file, losses that depend on the seed alone.  Usage: test_bench.sh BUILD_FOLDER
set -u
bench="$1/flim_bench"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

complain() {
    echo "FAILED: $*"
    failed=1
}

# refuses CODE TEXT ARGUMENTS...: exit code and a part of the message
refuses() {
    local code=$1 text=$2 found
    shift 2
    "$bench" "$@" >"$folder/out" 2>"$folder/err"
    found=$?
    [ "$found" -eq "$code" ] || complain "flim_bench $*: exit code $found, expected $code"
    grep -qF -- "$text" "$folder/err" || complain "flim_bench $*: '$(cat "$folder/err")' does not say '$text'"
    [ "$(wc -l <"$folder/err")" -le 2 ] || complain "flim_bench $*: more than two lines of error"
}

refuses 2 "'step'" stpe
refuses 2 "--weights-in" step --wieghts-in x
refuses 2 "--batch" step --batch 0
refuses 2 "--batch" step --batch many
refuses 2 "'base'" step --device cpu --preset bsae
refuses 2 "device" step --device tpu
refuses 2 "--width" memory --width 2
refuses 2 "--depth" memory --depth 9
refuses 3 "none.h5" step --device cpu --data "$folder/none.h5"
refuses 3 "none.safetensors" step --device cpu --weights-in "$folder/none.safetensors"
refuses 2 "a SUBCOMMAND is needed"
refuses 2 "did you mean --version?" --versoin
"$bench" --version | grep -q '^flim_bench (flimcv) [0-9]' || complain "--version: $("$bench" --version)"
"$bench" step --version | grep -q '^flim_bench step (flimcv) [0-9]' || complain "step --version: $("$bench" step --version)"
"$bench" --help | grep -q '^  step ' || complain "--help does not list step"
"$bench" step --help | grep -q -- '--weights-in FILE' || complain "step --help does not list --weights-in"

# augment: every step has a row, and the page shows it; a file of someone else is not replaced
"$1/flim_simulate" --out "$folder/a.h5" --cells 24 --donors 6 --bins 16 --photons 200 --seed 3 >/dev/null
if [ -e "$folder/a.h5" ]; then
    for _ in 1 2; do
        "$bench" augment --data "$folder/a.h5" --cell 2 --repeats 2 --augment thin:1:0.25:0.25 --html "$folder/a.html" >"$folder/out" ||
            complain "augment ended with $?"
    done
    for step in symmetry shift shift_fill shift_zero drift drift_fill thin match background bootstrap scale mask_drop blur zoom elastic \
        flim paper mixup thin:1:0.25:0.25; do
        grep -q "^${step}[: ].* photons" "$folder/out" || complain "augment has no row for $step"
        grep -q "<th>$step" "$folder/a.html" || complain "the page has no row for $step"
    done
    echo mine >"$folder/mine"
    refuses 2 "mine" augment --data "$folder/a.h5" --html "$folder/mine"
    refuses 2 "cells 0 to 23" augment --data "$folder/a.h5" --cell 24
    refuses 2 "did you mean 'thin'" augment --data "$folder/a.h5" --augment thim
fi

"$bench" step --device cpu --steps 1 --preset tiny --bins 8 --pixels 3 --batch 1 >"$folder/out" 2>"$folder/err"
if [ $? -eq 4 ]; then
    [ $failed -eq 0 ] || exit 1
    echo "skipped the rest: $(cat "$folder/err")"
    exit 77
fi

"$bench" step --device cpu --steps 1 --width 12 --depth 2 --bins 8 --pixels 3 --batch 1 --json "$folder/sized" >"$folder/out" || complain "--width ended with $?"
grep -q 'preset w12 d2 ' "$folder/out" || complain "the size is not named: $(cat "$folder/out")"
grep -q '"width": 12' "$folder/sized" || complain "--json: the width is not 12"

small="step --device cpu --precision fp32 --preset tiny --bins 16 --pixels 5 --steps 3 --batch 4"
# losses NAME FLAGS...: one line with the losses
losses() {
    "$bench" $small --losses "$folder/losses" "$@" >"$folder/out" || complain "flim_bench $small $* ended with $?"
    tr -d ' \n' <"$folder/losses"
}

a=$(losses --json "$folder/json" --deterministic)
[ "$a" = "$(losses --deterministic --warmup 0)" ] || complain "warm-up steps change the losses"
[ "$a" = "$(losses --deterministic --warmup 2)" ] || complain "more warm-up steps change the losses"
[ "$a" != "$(losses --deterministic --seed 43)" ] || complain "another seed gives the same losses"
[ "$a" != "$(losses --deterministic --no-dropout)" ] || complain "dropout changes nothing"
[ "$a" = "$(losses --deterministic --block-dropout-rate 0)" ] || complain "blocks drop channels unasked"
[ "$a" != "$(losses --deterministic --block-dropout-rate 0.25)" ] || complain "dropout in the blocks changes nothing"
[ "$(echo "$a" | tr -cd , | wc -c)" -eq 2 ] || complain "three steps, but the losses are $a"
for key in device precision preset batch ms median min max cells_per_s peak_bytes; do
    grep -q "\"$key\":" "$folder/json" || complain "--json lacks $key"
done
grep -q '"device": "cpu"' "$folder/json" || complain "--json: the device is not cpu"
grep -q '"preset": "tiny"' "$folder/json" || complain "--json: the preset is not tiny"
grep -q '"batch": 4' "$folder/json" || complain "--json: the batch is not 4"

# Weights that were written are read again: width, classes and input size follow from the file.
"$bench" $small --classes 4 --weights-out "$folder/w.safetensors" >/dev/null || complain "--weights-out ended with $?"
"$bench" step --device cpu --steps 1 --batch 2 --weights-in "$folder/w.safetensors" --grads-out "$folder/g.safetensors" \
    >"$folder/out" || complain "--weights-in ended with $?"
grep -q 'preset tiny .*cells (2,16,5,5)' "$folder/out" || complain "weights of tiny for 16 x 5 x 5: $(cat "$folder/out")"
[ -s "$folder/g.safetensors" ] || complain "--grads-out wrote nothing"
refuses 2 "leave --preset, --width and --depth out" step --device cpu --preset base --weights-in "$folder/w.safetensors"
refuses 2 "4 classes" step --device cpu --classes 2 --weights-in "$folder/w.safetensors"

# Feeding from a file: the fixed batch and what the device can have of the cache modes.
"$1/flim_simulate" --out "$folder/f.h5" --cells 20 --bins 8 --seed 1 >/dev/null || complain "flim_simulate ended with $?"
"$bench" feed --device cpu --preset tiny --data "$folder/f.h5" --batch 4 --steps 3 --rounds 1 --workers 2 --json "$folder/feed" \
    >"$folder/out" || complain "flim_bench feed ended with $?"
for key in fixed none host loses waited cells_per_s; do
    grep -q "\"$key\":" "$folder/feed" || complain "feed --json lacks $key"
done
grep -q '"device":' "$folder/feed" && complain "feed: the CPU has no device memory"
grep -q 'file, cache host .*cells/s  loses .* %, waited' "$folder/out" || complain "feed: $(cat "$folder/out")"
refuses 3 "none.h5" feed --device cpu --data "$folder/none.h5"
refuses 6 "$folder" $small --json "$folder/no/such/folder.json"
exit $failed
