#!/bin/bash
# Builds, tests and measures on a machine with a GPU, and prints one table.
#
# Usage: tools/gpu_check.sh [--build DIR] [--no-build] [--quick] [--batch N] [--out DIR]
#   --build DIR   build folder (default build/release)
#   --no-build    take the programs that are there
#   --quick       no tests under compute-sanitizer, no DRAM counters, no PyTorch
#   --out DIR     where logs and JSON go (default DIR/gpu_check in the build folder)
# Left out, with the reason in the table: what needs a tool that is not there (compute-sanitizer, ncu, python3 with torch,
# ../shared/peer/torch_peer.py).  Ends with 0 only where everything that ran was right.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=build/release build_it=1 quick=0 batch=64 out=
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --no-build) build_it=0 ;;
    --quick) quick=1 ;;
    --batch) batch=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
out=${out:-$build/gpu_check}
mkdir -p "$out" || exit 1
rows=() bad=0

row() { # what, result, detail
    rows+=("$(printf '%-34s %-9s %s' "$1" "$2" "$3")")
    echo "${rows[-1]}"
}
check() { # what, log, command...: a step that must end with 0
    local what=$1 log=$out/$2
    shift 2
    local begin=$SECONDS
    if "$@" >"$log" 2>&1; then
        row "$what" ok "$((SECONDS - begin)) s"
    else
        row "$what" FAILED "see $log"
        bad=1
    fi
}
field() { # file, name: a number of flat JSON
    tr ',{}' '\n\n\n' <"$1" | sed -n "s/^ *\"$2\" *: *//p" | head -1
}

if [ $build_it = 1 ]; then
    check "build" build.log bash -c "cmake -S . -B '$build' -G Ninja -DCMAKE_BUILD_TYPE=Release -DFLIM_CUDA=ON && cmake --build '$build'"
fi
bench=$build/flim_bench
[ -x "$bench" ] || { echo "no $bench: build first"; exit 1; }

# ---- tests
if [ -f "$build/CTestTestfile.cmake" ]; then
    check "tests, label gpu" ctest.log ctest --test-dir "$build" -L gpu --output-on-failure
else
    for test in test_layers test_gradients; do
        check "$test on cuda" $test.log env FLIM_TEST_DEVICE=cuda "$build/tests/$test"
    done
fi
small=(step --device cuda --preset base --bins 32 --pixels 9 --batch 3 --steps 2 --warmup 0 --no-benchmark --no-parts)
if [ $quick = 0 ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        for precision in fp32 tf32 bf16; do
            check "compute-sanitizer $tool, $precision" $tool-$precision.log compute-sanitizer --tool $tool --error-exitcode 9 "$bench" "${small[@]}" --precision $precision
        done
    done
else
    row "compute-sanitizer" left-out "not wanted or not installed"
fi
for precision in fp32 tf32 bf16; do
    for i in 1 2; do
        "$bench" step --device cuda --precision $precision --batch 8 --steps 3 --warmup 0 --deterministic --no-benchmark \
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

# ---- figures
check "limits" limits.txt "$bench" limits --device cuda --json "$out/limits.json"
for precision in fp32 tf32 bf16 fp16; do
    json=$out/step-$precision.json
    if "$bench" step --device cuda --precision $precision --batch "$batch" --steps 20 --warmup 3 --json "$json" >"$out/step-$precision.txt" 2>&1; then
        row "step, $precision, batch $batch" ok "$(field "$json" median) ms, $(field "$json" cells_per_s) cells/s, $(($(field "$json" peak_bytes) / 1048576)) MiB"
    else
        row "step, $precision, batch $batch" FAILED "see $out/step-$precision.txt"
        bad=1
    fi
done
begin=$(date +%s%N)
"$bench" step --device cuda --precision tf32 --batch "$batch" --steps 1 --warmup 0 --no-parts >"$out/cached.txt" 2>&1
row "start to end of one step, cached" ok "$((($(date +%s%N) - begin) / 1000000)) ms"
for precision in tf32 bf16; do
    check "layers, $precision" layers-$precision.txt "$bench" layers --device cuda --precision $precision --batch "$batch"
done
if [ $quick = 0 ] && command -v ncu >/dev/null; then
    for precision in tf32 bf16; do
        ncu --clock-control none --csv --metrics dram__bytes_read.sum,dram__bytes_write.sum "$bench" step --device cuda \
            --precision $precision --batch "$batch" --steps 1 --warmup 0 --no-parts 2>"$out/ncu.err" |
            awk -F'","' '/dram__bytes/ { unit = $(NF - 1); value = $NF; gsub(/[",]/, "", value)
                scale["byte"] = 1e-9; scale["Kbyte"] = 1e-6; scale["Mbyte"] = 1e-3; scale["Gbyte"] = 1
                sum += value * scale[unit] } END { printf "%.1f", sum }' >"$out/dram-$precision.txt"
        row "DRAM read + written, $precision" ok "$(cat "$out/dram-$precision.txt") GB a step, set-up of the program included"
    done
else
    row "DRAM bytes a step" left-out "not wanted or no ncu"
fi
peer=../shared/peer/torch_peer.py
if [ $quick = 0 ] && [ -f $peer ] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    python3 $peer --batch "$batch" --modes tf32_cl,tf32_compile,bf16_cl_compile --out "$out/torch.json" >"$out/torch.txt" 2>&1
    while read -r mode ms; do
        row "PyTorch, $mode" ok "$ms ms"
    done < <(tr '{' '\n' <"$out/torch.txt" | sed -n 's/.*"mode": "\([a-z0-9_]*\)".*"ms": \([0-9.]*\).*/\1 \2/p')
else
    row "PyTorch's times" left-out "not wanted, or no torch with CUDA, or no $peer"
fi

echo
"$bench" limits --device cuda 2>/dev/null | head -1
printf '%s\n' "${rows[@]}"
exit $bad
