#!/bin/bash
# Builds, tests and measures on a machine with a GPU, and prints one table.
#
# Usage: tools/gpu_check.sh [--build DIR] [--no-build] [--only LIST] [--batch N] [--out DIR]
#   --build DIR   build folder (default build/release)
#   --no-build    take the programs that are there
#   --only LIST   some of: tests,sanitizer,equal,step,cached,layers,memory,dram,learning,feed,loader,parity,torch
#                 (default: all of them)
#   --seeds LIST  draws of the weights for the comparison with PyTorch in tf32, bf16 and fp16 (default 1,2,3,4,5,6,7,8)
#   --out DIR     where logs and JSON go (default gpu_check in the build folder)
# PYTHON (default python3) and FLIM_SHARED (default ../shared, with peer/ and data/) are for what is compared with PyTorch.  Left
# out, with the reason in the table: what needs a tool that is not there.  Ends with 0 only where everything that ran was right.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=build/release build_it=1 batch=64 out='' only='' seeds=1,2,3,4,5,6,7,8
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --no-build) build_it=0 ;;
    --only) only=,$2,; shift ;;
    --seeds) seeds=$2; shift ;;
    --batch) batch=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
out=${out:-$build/gpu_check}
mkdir -p "$out" || exit 1
python=${PYTHON:-python3} shared=${FLIM_SHARED:-../shared}
rows=() bad=0

row() { # what, result, detail
    rows+=("$(printf '%-36s %-9s %s' "$1" "$2" "$3")")
    echo "${rows[-1]}"
}
check() { # what, log, command...: a step that must end with 0; the last line of its output goes into the table
    local what=$1 log=$out/$2
    shift 2
    local begin=$SECONDS
    if "$@" >"$log" 2>&1; then
        row "$what" ok "$((SECONDS - begin)) s; $(tail -n 1 "$log" | cut -c1-110)"
    elif [ $? = 77 ]; then
        row "$what" left-out "$(tail -n 1 "$log")"
    else
        row "$what" FAILED "see $log"
        bad=1
    fi
}
wanted() {
    [ -z "$only" ] || [[ $only == *,$1,* ]]
}
field() { # file, name: a number of flat JSON
    tr ',{}' '\n\n\n' <"$1" | sed -n "s/^ *\"$2\" *: *//p" | head -1
}
column() { # summary.csv, row, column
    awk -F, -v row="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } $1 == row { print $at }' "$1"
}

if [ $build_it = 1 ]; then
    check "build" build.log bash -c "cmake -S . -B '$build' -G Ninja -DCMAKE_BUILD_TYPE=Release -DFLIM_CUDA=ON && cmake --build '$build'"
fi
bench=$build/flim_bench
[ -x "$bench" ] || { echo "no $bench: build first"; exit 1; }

tests() {
    if [ -f "$build/CTestTestfile.cmake" ]; then
        check "tests, label gpu" ctest.log ctest --test-dir "$build" -L gpu --output-on-failure
    else
        local test
        for test in test_layers test_gradients test_device_cache; do
            check "$test on cuda" $test.log env FLIM_TEST_DEVICE=cuda "$build/tests/$test"
        done
    fi
}

sanitizer() {
    if ! command -v compute-sanitizer >/dev/null; then
        row "compute-sanitizer" left-out "not installed"
        return
    fi
    local tool precision small=(step --device cuda --preset base --bins 32 --pixels 9 --batch 3 --steps 2 --warmup 0 --no-benchmark --no-parts)
    for tool in memcheck racecheck initcheck; do
        for precision in fp32 tf32 bf16; do
            check "$tool, two steps, $precision" $tool-$precision.log timeout 100 compute-sanitizer --tool $tool --error-exitcode 9 \
                "$bench" "${small[@]}" --precision $precision
        done
    done
    "$build/flim_simulate" --out "$out/small.h5" --cells 24 --bins 16 --seed 1 >"$out/small.txt" 2>&1
    rm -rf "$out/small-run"
    check "memcheck, train_cv, tf32" memcheck-train.log timeout 100 compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$build/train_cv" --data "$out/small.h5" --out "$out/small-run" --device cuda --precision tf32 --folds 2 --epochs 1 --batch 5 \
        --no-benchmark
}

equal() {
    local precision i
    for precision in fp32 tf32 bf16 fp16; do
        for i in 1 2; do
            "$bench" step --device cuda --precision $precision --batch 8 --steps 3 --warmup 0 --deterministic --no-benchmark --no-parts \
                --weights-out "$out/equal-$i.safetensors" >"$out/equal-$precision-$i.log" 2>&1
        done
        if cmp -s "$out/equal-1.safetensors" "$out/equal-2.safetensors"; then
            row "deterministic, $precision" ok "equal bits in two runs"
        else
            row "deterministic, $precision" FAILED "two runs differ"
            bad=1
        fi
        rm -f "$out"/equal-[12].safetensors
    done
}

step_row() { # what, name, flags...
    local what=$1 json=$out/step-$2.json text=$out/step-$2.txt
    shift 2
    if "$bench" step --device cuda --batch "$batch" --steps 20 --warmup 3 --json "$json" "$@" >"$text" 2>&1; then
        row "$what" ok "$(field "$json" median) ms, $(field "$json" cells_per_s) cells/s, $(($(field "$json" peak_bytes) / 1048576)) MiB"
    else
        row "$what" FAILED "see $text"
        bad=1
    fi
}

steps() {
    local precision
    check "limits" limits.txt "$bench" limits --device cuda --json "$out/limits.json"
    for precision in fp32 tf32 bf16 fp16; do
        step_row "step, $precision, batch $batch" $precision --precision $precision
    done
    for precision in tf32 bf16; do
        step_row "step, $precision, deterministic" $precision-deterministic --precision $precision --deterministic --no-parts
    done
}

cached() { # after `steps`: the plans are in the cache
    local precision begin
    for precision in tf32 bf16; do
        begin=$(date +%s%N)
        "$bench" step --device cuda --precision $precision --batch "$batch" --steps 1 --warmup 0 --no-parts >"$out/cached.txt" 2>&1
        row "start to end of one step, $precision" ok "$((($(date +%s%N) - begin) / 1000000)) ms"
    done
}

layers() {
    local precision
    for precision in tf32 bf16; do
        check "layers, $precision" layers-$precision.txt "$bench" layers --device cuda --precision $precision --batch "$batch"
    done
}

# Plans against what the card says is gone; without tuning, so that all cases take less than three minutes.
memory() {
    check "planned against measured memory" memory.txt "$bench" memory --device cuda --json "$out/memory.json"
}

dram() {
    if ! command -v ncu >/dev/null; then
        row "DRAM bytes a step" left-out "no ncu"
        return
    fi
    local precision
    for precision in tf32 bf16; do
        ncu --clock-control none --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum "$bench" step --device cuda \
            --precision $precision --batch "$batch" --steps 1 --warmup 0 --no-parts 2>"$out/ncu.err" |
            awk -F'","' '/dram__bytes/ { unit = $(NF - 1); value = $NF; gsub(/[",]/, "", value)
                scale["byte"] = 1e-9; scale["Kbyte"] = 1e-6; scale["Mbyte"] = 1e-3; scale["Gbyte"] = 1
                sum += value * scale[unit] } END { printf "%.1f", sum }' >"$out/dram-$precision.txt"
        row "DRAM read + written, $precision" ok "$(cat "$out/dram-$precision.txt") GB a step, set-up of the program included"
    done
}

# Cross-validation of simulated cells in each precision, same seed: the mean must lie within the folds' spread, fp32's and its own
# pooled, of fp32's.
learning() {
    local precision value reference spread
    "$build/flim_simulate" --out "$out/learning.h5" --cells 480 --seed 7 >"$out/learning.txt" 2>&1
    for precision in fp32 tf32 bf16; do
        rm -rf "$out/learning-$precision"
        if ! "$build/train_cv" --data "$out/learning.h5" --out "$out/learning-$precision" --device cuda --precision $precision --folds 5 \
            --epochs 16 --batch 32 --lr 1e-3 --patience 0 >"$out/learning-$precision.txt" 2>&1; then
            row "learning, $precision" FAILED "see $out/learning-$precision.txt"
            bad=1
            continue
        fi
        value=$(column "$out/learning-$precision/summary.csv" mean log_loss)
        if [ $precision = fp32 ]; then
            reference=$value spread=$(column "$out/learning-fp32/summary.csv" sd log_loss)
        fi
        local text
        text="log loss $value (sd of the folds $(column "$out/learning-$precision/summary.csv" sd log_loss)), balanced accuracy $(column "$out/learning-$precision/summary.csv" mean balanced_accuracy)"
        if awk -v a="$value" -v b="$reference" -v s="$spread" -v own="$(column "$out/learning-$precision/summary.csv" sd log_loss)" \
            'BEGIN { d = a - b; exit !(d * d <= (s * s + own * own) / 2) }'; then
            row "learning, $precision" ok "$text"
        else
            row "learning, $precision" FAILED "$text"
            bad=1
        fi
    done
}

feed() {
    local precision
    "$build/flim_simulate" --out "$out/feed.h5" --cells 3000 --seed 42 >"$out/feed.txt" 2>&1
    for precision in tf32 bf16; do
        check "feeding, $precision" feed-$precision.txt "$bench" feed --data "$out/feed.h5" --device cuda --precision $precision \
            --batch "$batch" --steps 60 --rounds 2 --workers 8
    done
    rm -f "$out/feed.h5"
}

loader() {
    check "loader against PyTorch's" loader.txt env FLIM_SHARED="$shared" "$python" tests/net/compare_torch_loader.py --bench "$bench" \
        --cells 2048 --rounds 2
}

parity() {
    local precision parity=(env FLIM_SHARED="$shared" "$python" tests/net/parity.py --bench "$bench" --device cuda)
    check "parity with PyTorch, fp32" parity-fp32.txt "${parity[@]}"
    for precision in tf32 bf16 fp16; do
        check "parity with PyTorch, $precision" parity-$precision.txt "${parity[@]}" --precision $precision --only cells --seeds "$seeds"
    done
}

torch() {
    local peer=$shared/peer/torch_peer.py mode ms
    if ! [ -f "$peer" ] || ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        row "PyTorch's times" left-out "no torch with CUDA, or no $peer"
        return
    fi
    "$python" "$peer" --batch "$batch" --modes tf32_cl,tf32_compile,bf16_cl_compile,fp16_cl,fp32 --out "$out/torch.json" >"$out/torch.txt" 2>&1
    while read -r mode ms; do
        row "PyTorch, $mode" ok "$ms ms"
    done < <(tr '{' '\n' <"$out/torch.txt" | sed -n 's/.*"mode": "\([a-z0-9_]*\)".*"ms": \([0-9.]*\).*/\1 \2/p')
}

wanted tests && tests
wanted step && steps
wanted cached && cached
wanted torch && torch
wanted equal && equal
wanted layers && layers
wanted memory && memory
wanted dram && dram
wanted learning && learning
wanted feed && feed
wanted loader && loader
wanted parity && parity
wanted sanitizer && sanitizer

echo
"$bench" limits --device cuda 2>/dev/null | head -1
printf '%s\n' "${rows[@]}"
exit $bad
