#!/bin/bash
# What several cards of one host give: one training over all of them (mpirun, NCCL), and folds at the same time; prints one table.
#
# Usage: tools/cards_check.sh [--build DIR] [--out DIR] [--ranks N] [--only LIST] [--limit S] [--batch N] [--cells N]
#                             [--device cuda|cpu] [--small]
#   --build DIR   build folder, built before (default build/release)
#   --out DIR     logs, JSON files and runs (default cards_check in the build folder); must be new or empty
#   --ranks N     cards (default 2)
#   --only LIST   some of: steps,runs,speed,epochs,kill,folds,torch (default: all, in this order)
#   --limit S     seconds for all; what would begin later is left out, and the table is printed (default: none)
#   --batch N     cells per batch and card (default 64)
#   --cells N     simulated cells (default 4000)
#   --device cpu  tries the script without cards, and --small with a network and cells that a small machine can do
#
#   steps   N ranks against one process with --accumulate N: gradients of a step, losses, and weights after 20 steps whose updates
#           are proportional to gradients (AdamW's usual ones are nearly their signs, which enlarges rounding), beside what
#           another order of the same sums changes in one process (flim_bench step --reverse)
#   runs    the same of train_cv with --deterministic, one epoch of AdamW: files of two equal runs, and those of one process
#   speed   cells/s of steps in a row, one card and N; when gradients are summed, and how much of that is not hidden
#   epochs  cells/s of train_cv's epochs behind the first, one card and N
#   kill    a rank is killed: all end, it is named, and the resumed run ends in the files of an undisturbed one
#   folds   train_cv --devices 0 against all: seconds and files, 5 folds of one seed and of two
#   torch   PyTorch's DistributedDataParallel on the same cards (tests/net/compare_torch_ddp.py)
# PYTHON (default python3; the step torch wants PyTorch), FLIM_SHARED (default ../shared, with peer/), MPIRUN (default mpirun).
# Results: ok; short: right, but slower than the goal; FAILED; left-out, with the reason.  Ends with 1 if something FAILED.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=build/release out='' ranks=2 only='' limit=0 batch=64 cells=4000 kind=cuda small=0
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    --ranks) ranks=$2; shift ;;
    --only) only=,$2,; shift ;;
    --limit) limit=$2; shift ;;
    --batch) batch=$2; shift ;;
    --cells) cells=$2; shift ;;
    --device) kind=$2; shift ;;
    --small) small=1 ;;
    *) sed -n '2,29s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
build=$(cd "$build" && pwd) || exit 1
out=${out:-$build/cards_check}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty: choose another --out"; exit 2; }
[ -x "$build/flim_bench" ] && [ -x "$build/train_cv" ] || { echo "no flim_bench or train_cv in $build: build first"; exit 1; }
python=${PYTHON:-python3} mpirun=${MPIRUN:-mpirun} shared=${FLIM_SHARED:-$top/../shared}
bench=$build/flim_bench train=$build/train_cv data=$out/cells.h5
rows=() bad=0 begun=$SECONDS
presets=(base large) precisions=(fp32 tf32 bf16) fast=(tf32 bf16) bins=256 size=21 photons=4000
steps=60 run_epochs=6 fold_epochs=6 kill_epochs=8 update=(--epsilon 1 --lr 0.01)
devices=(--devices) one_device=0 all_devices=all
together=("$mpirun" --allow-run-as-root --bind-to none)
if [ "$kind" = cpu ]; then
    precisions=(fp32) fast=(fp32) devices=(--jobs) one_device=1 all_devices=$ranks
    together+=(--oversubscribe)
    export OMP_NUM_THREADS=1
fi
if [ $small = 1 ]; then
    presets=(nano tiny) bins=16 size=7 photons=200 steps=5 cells=${cells/4000/240} batch=${batch/64/4} kill_epochs=100
fi
preset=${presets[0]}
shape=(--bins "$bins" --pixels "$size")

row() { # what, result, detail
    rows+=("$(printf '%-44s %-9s %s' "$1" "$2" "$3")")
    echo "${rows[-1]}"
    [ "$2" != FAILED ] || bad=1
}
left() { # seconds that this call still has
    [ "$limit" = 0 ] && echo 100000 || echo $((limit - (SECONDS - begun)))
}
wanted() { # a section that was asked for, while there is time; the row says if there is none
    [ -z "$only" ] || [[ $only == *,$1,* ]] || return 1
    [ "$(left)" -gt 10 ] || { row "$1" left-out "no time left of $limit s"; return 1; }
}
card() { # the device number $1, for one process alone
    [ "$kind" = cpu ] && echo cpu || echo "cuda:$(($1 % ranks))"
}
run() { # run NAME SECONDS COMMAND...: with output in $out/NAME.log
    local name=$1 most=$2 rest
    shift 2
    rest=$(left)
    [ "$rest" -lt "$most" ] && most=$rest
    [ "$most" -gt 0 ] || { echo "no time left" >"$out/$name.log"; return 124; }
    timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1 </dev/null
    rest=$?
    [ $rest != 124 ] || echo "stopped after $most s" >>"$out/$name.log"
    return $rest
}
why() { # of the runs $@, of which one has failed: the row's detail
    local name
    for name in "$@"; do
        grep -hm1 -E "error: |warning: rank|no time left|^stopped after" "$out/$name.log" 2>/dev/null | cut -c1-150 && return
    done
    echo "see $out/{$(IFS=,; echo "$*")}.log"
}
number() { # file, name: the first number of that name in JSON
    tr ',{}' '\n\n\n' <"$1" | sed -n "s/^ *\"$2\" *: *//p" | head -1
}
is() { awk "BEGIN { exit !($1) }"; }
calc() { awk "BEGIN { printf \"$1\", $2 }"; }
# Every file that must not depend on when and how a run went; history.csv without its times.
digest() {
    (cd "$1" && for h in $(find . -name history.csv | sort); do cut -d, -f1-16 "$h" | sha256sum; done &&
        find . \( -name best.safetensors -o -name predictions.csv -o -name splits.json -o -name summary.csv -o -path '*/fold_*/summary.json' \) |
        sort | xargs sha256sum) 2>&1 | sha256sum
}

# compare A B [C]: of weight files, by how much B and C differ from A: norm of the difference over norm, of the parameters
cat >"$out/compare.py" <<'PY'
import array, json, math, os, struct, sys
def parameters(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, rest = json.loads(f.read(n)), f.read()
    names = sorted(k for k in head if k != "__metadata__" and "running_" not in k and head[k]["dtype"] == "F32")
    out = array.array("f")
    for name in names:
        begin, end = head[name]["data_offsets"]
        out.frombytes(rest[begin:end])
    return out
a = parameters(sys.argv[1])
norm = math.sqrt(sum(x * x for x in a))
for path in sys.argv[2:]:
    if not os.path.exists(path):
        print("1e9")
        continue
    b = parameters(path)
    assert len(a) == len(b) > 0
    print("%.2e" % (math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b))) / norm) if a != b else "0")
PY
# losses A B: the largest relative difference of two lists
cat >"$out/losses.py" <<'PY'
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:3])
assert len(a) == len(b) > 0
print("%.2e" % max(abs(x - y) / abs(x) for x, y in zip(a, b)))
PY

simulate() {
    run simulate 120 "$build/flim_simulate" --out "$data" --cells "$cells" --bins "$bins" --height "$size" --width "$size" \
        --photons "$photons" --seed 42 && return
    row "simulated cells" FAILED "$(why simulate)"
    return 1
}

# The convolutions of each kind are searched once, by one process; all later ones find them in the cache of plans.
warm_up() {
    [ "$kind" = cuda ] || return 0
    local p i=0 before=$SECONDS
    for p in "${precisions[@]}"; do
        (run "warm-$p" 150 "$bench" step --device "$(card $i)" --preset "$preset" --precision "$p" --batch "$batch" --steps 1 --warmup 0 --no-parts
            run "warm-$p-det" 150 "$bench" step --device "$(card $i)" --preset "$preset" --precision "$p" --batch "$batch" --steps 1 --warmup 0 \
                --no-parts --deterministic) &
        i=$((i + 1))
    done
    wait
    for p in "${fast[@]}"; do
        run "warm-large-$p" 150 "$bench" step --device "$(card $i)" --preset "${presets[1]}" --precision "$p" --batch "$batch" --steps 1 \
            --warmup 0 --no-parts &
        i=$((i + 1))
    done
    wait
    row "search of the convolutions" ok "$((SECONDS - before)) s"
}

# ---- steps
step_files() { echo "--weights-out $out/$1.safetensors --grads-out $out/$1-grads.safetensors --losses $out/$1-losses.json"; }
steps() {
    local p a b c w=() g=() l result text
    for p in "${precisions[@]}"; do
        a=steps-$p-one b=steps-$p-ranks c=steps-$p-reverse
        local same=("$bench" step --preset "$preset" --precision "$p" --batch "$batch" --steps 20 --warmup 0 --no-parts "${update[@]}")
        [ -e "$data" ] && same+=(--data "$data") || same+=("${shape[@]}")
        # shellcheck disable=SC2046
        run $a 90 "${same[@]}" --device "$(card 0)" --accumulate "$ranks" $(step_files $a) &
        # shellcheck disable=SC2046
        run $c 90 "${same[@]}" --device "$(card 1)" --accumulate "$ranks" --reverse $(step_files $c) &
        wait
        # shellcheck disable=SC2046
        run $b 90 "${together[@]}" -n "$ranks" "${same[@]}" --device "$kind" --parallel data $(step_files $b)
        if ! [ -e "$out/$a-losses.json" ] || ! [ -e "$out/$b-losses.json" ] || ! [ -e "$out/$c-losses.json" ]; then
            row "$ranks ranks = --accumulate $ranks, $p" FAILED "$(why $a $b $c)"
            continue
        fi
        mapfile -t w < <("$python" "$out/compare.py" "$out/$a.safetensors" "$out/$b.safetensors" "$out/$c.safetensors")
        mapfile -t g < <("$python" "$out/compare.py" "$out/$a-grads.safetensors" "$out/$b-grads.safetensors" "$out/$c-grads.safetensors")
        l=$("$python" "$out/losses.py" "$out/$a-losses.json" "$out/$b-losses.json")
        text="weights after 20 steps ${w[0]} apart (order of sums ${w[1]}), gradients ${g[0]} (${g[1]}), losses $l"
        result=FAILED # within the rounding of a sum: what is apart by no more than twice what another order makes of it
        is "${w[0]} <= 2 * ${w[1]} && ${g[0]} <= 2 * ${g[1]}" && result=ok
        row "$ranks ranks = --accumulate $ranks, $p" $result "$text"
    done
}

# ---- runs
options=(--data "$data" --preset "$preset" --batch "$batch" --device "$kind" --deterministic --patience 0 --workers 4)
runs() {
    local p a b c once i=0 apart losses updates text
    # AdamW's first updates are the signs of gradients, so rounding grows with the learning rate: at 1e-3 the losses of an epoch
    # were 4e-4 apart in fp32, which would hide a wrong batch.
    once=("${options[@]}" --folds 5 --fold 0 --epochs 1 --lr 1e-5 --ema 0 --no-recalibrate-bn)
    for p in "${precisions[@]}"; do
        run "runs-$p-one" 90 "$train" "${once[@]}" --device "$(card $i)" --precision "$p" --accumulate "$ranks" --out "$out/runs-$p-one" &
        i=$((i + 1))
    done
    wait
    for p in "${precisions[@]}"; do
        a=runs-$p-one b=runs-$p-ranks c=runs-$p-again
        run $b 90 "${together[@]}" -n "$ranks" "$train" --parallel data "${once[@]}" --precision "$p" --out "$out/$b" &&
            run $c 90 "${together[@]}" -n "$ranks" "$train" --parallel data "${once[@]}" --precision "$p" --out "$out/$c"
        if ! [ -e "$out/$a/fold_0/DONE" ] || ! [ -e "$out/$c/fold_0/DONE" ]; then
            row "train_cv, $ranks ranks twice, $p" FAILED "$(why $a $b $c)"
            continue
        fi
        if [ "$(digest "$out/$b")" = "$(digest "$out/$c")" ]; then
            row "train_cv, $ranks ranks twice, $p" ok "equal files with --deterministic"
        else
            row "train_cv, $ranks ranks twice, $p" FAILED "the files differ: $out/$b, $out/$c"
        fi
        apart=$("$python" "$out/compare.py" "$out/$a/fold_0/best.safetensors" "$out/$b/fold_0/best.safetensors")
        losses=$(awk -F, 'FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "train_loss") at = i } FNR == 2 { v[++n] = $at }
            END { d = v[1] - v[2]; printf "%.2e", (d < 0 ? -d : d) / v[1] }' "$out/$a/fold_0/history.csv" "$out/$b/fold_0/history.csv")
        updates=$(awk -F, 'FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "updates") at = i } FNR == 2 { print $at }' "$out/$a/fold_0/history.csv")
        text="weights after $updates updates of AdamW $apart apart, training loss $losses"
        [ "$(digest "$out/$a")" = "$(digest "$out/$b")" ] && text="equal files; $text"
        if is "$losses <= ($([ "$p" = fp32 ] && echo 1e-5 || echo 1e-3))"; then
            row "train_cv, against --accumulate $ranks, $p" ok "$text"
        else
            row "train_cv, against --accumulate $ranks, $p" FAILED "$text"
        fi
    done
}

# ---- speed
goal() { is "$1 >= $2" && echo ok || echo short; }
in_a_row() { # cells per second of all cards; on the CPU, where steps do not overlap with copies, of single steps
    local ms
    ms=$(number "$1" in_a_row)
    [ -n "$ms" ] && calc "%.1f" "1000 * $2 / $ms" || calc "%.1f" "$(number "$1" cells_per_s)"
}
speed() {
    local p size a b c i rate=() base json
    for size in "${presets[@]}"; do
        for p in "${fast[@]}"; do
            a=speed-$size-$p-one b=speed-$size-$p-ranks c=speed-$size-$p-beside
            local same=("$bench" step --preset "$size" --precision "$p" --batch "$batch" --steps "$steps" --warmup 3 --no-parts)
            [ -e "$data" ] && same+=(--data "$data") || same+=("${shape[@]}")
            run $a 90 "${same[@]}" --device "$(card 0)" --json "$out/$a.json" &&
                run $b 90 "${together[@]}" -n "$ranks" "${same[@]}" --device "$kind" --parallel data --json "$out/$b.json"
            if ! [ -e "$out/$b.json" ]; then
                row "$size, $p, batch $batch per card" FAILED "$(why $a $b)"
                continue
            fi
            rate=("$(in_a_row "$out/$a.json" "$batch")" "$(in_a_row "$out/$b.json" $((batch * ranks)))")
            base=$(calc "%.3f" "${rate[1]} / ${rate[0]}")
            row "$size, $p, batch $batch per card" "$(goal "$base" "0.975 * $ranks")" \
                "${rate[1]} cells/s on $ranks cards, ${rate[0]} on one: $base x (goal $(calc "%.2f" "0.975 * $ranks"))"
            json=$out/$b.json
            if [ -n "$(number "$json" exposed)" ]; then
                row "  sums of gradients in a step" "$(goal 0.1 "$(number "$json" exposed)")" "$(calc "%.3f" "$(number "$json" summing)") ms, of which \
$(calc "%.3f" "$(number "$json" exposed)") after the backward pass, which ends at $(calc "%.3f" "$(number "$json" backward_end)") of $(calc "%.3f" "$(number "$json" step_end)") ms"
            fi
            [ "$p" = "${fast[0]}" ] || continue
            for ((i = 0; i < ranks; i++)); do # each card for itself, all at once: what there would be without exchange
                run $c-$i 90 "${same[@]}" --device "$(card $i)" --json "$out/$c-$i.json" &
            done
            wait
            base=0
            for ((i = 0; i < ranks; i++)); do
                [ -e "$out/$c-$i.json" ] && base=$(calc "%.1f" "$base + $(in_a_row "$out/$c-$i.json" "$batch")")
            done
            row "  without exchange" ok "$base cells/s on $ranks cards, each for itself at the same time; with it $(calc "%.4f" "${rate[1]} / $base") of that"
        done
    done
}

# ---- epochs
epoch_rate() { # cells per second: median of the epochs behind the first
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "cells_per_s") at = i } NR > 2 { print $at }' "$1/fold_0/history.csv" | sort -n |
        awk '{ v[NR] = $1 } END { printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
epochs() {
    local size a b one several cache=device times
    [ "$kind" = cuda ] || cache=host
    for size in "${presets[@]}"; do
        a=epochs-$size-one b=epochs-$size-ranks
        local same=(--data "$data" --preset "$size" --precision "${fast[0]}" --batch "$batch" --folds 10 --val-fraction 0.1 --fold 0
            --epochs "$run_epochs" --patience 0 --cache "$cache")
        run $a 90 "$train" "${same[@]}" --device "$(card 0)" --out "$out/$a" &&
            run $b 90 "${together[@]}" -n "$ranks" "$train" --parallel data "${same[@]}" --device "$kind" --out "$out/$b"
        if ! [ -e "$out/$a/fold_0/DONE" ] || ! [ -e "$out/$b/fold_0/DONE" ]; then
            row "train_cv, $size, ${fast[0]}" FAILED "$(why $a $b)"
            continue
        fi
        one=$(epoch_rate "$out/$a") several=$(epoch_rate "$out/$b")
        times=$(calc "%.3f" "$several / $one")
        row "train_cv, $size, ${fast[0]}" "$(goal "$times" "0.975 * $ranks")" \
            "$several cells/s in an epoch on $ranks cards, $one on one: $times x (goal $(calc "%.2f" "0.975 * $ranks"))"
    done
}

# ---- kill
rank_of() { # the process of that rank whose command line has that text
    local p
    for p in /proc/[0-9]*; do
        if tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" &&
            tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -q "train_cv .*$2 *$"; then
            echo "${p#/proc/}"
            return
        fi
    done
}
kill_a_rank() { # kill_a_rank RANK: once the first epoch is written; the run is then resumed
    local name=kill-$1 mpi victim before ended taken text
    run "$name" 90 "${together[@]}" -n "$ranks" "$train" --parallel data "${long[@]}" --out "$out/$name" &
    mpi=$!
    for _ in $(seq 600); do
        [ -e "$out/$name/fold_0/checkpoint/state.ckpt" ] && break
        sleep 0.05
    done
    victim=$(rank_of "$1" "$out/$name")
    [ -n "$victim" ] || { wait $mpi; row "rank $1 killed" FAILED "it was not found; $(why "$name")"; return; }
    before=$(date +%s%N)
    kill -9 "$victim"
    wait $mpi
    ended=$?
    while [ -n "$(rank_of 0 "$out/$name")$(rank_of 1 "$out/$name")" ] && is "$(date +%s%N) - $before < 12e9"; do sleep 0.1; done
    taken=$(calc "%.1f" "($(date +%s%N) - $before) / 1e9")
    text="all ended after $taken s"
    if [ $ended = 0 ] || is "$taken > 10"; then
        row "rank $1 killed" FAILED "$text, mpirun with $ended"
    elif ! grep -q "process rank $1 with PID .* exited on signal 9" "$out/$name.log"; then
        row "rank $1 killed" FAILED "$text, but mpirun does not name it: $out/$name.log"
    else
        row "rank $1 killed" ok "$text, mpirun names it"
    fi
    if ! run "$name-resumed" 90 "${together[@]}" -n "$ranks" "$train" --resume --out "$out/$name" --fold 0; then
        row "  resumed" FAILED "$(why "$name-resumed")"
    elif [ "$(digest "$out/$name")" = "$(digest "$out/kill-none")" ]; then
        row "  resumed" ok "in the files of a run that nobody disturbed"
    else
        row "  resumed" FAILED "other files than $out/kill-none has"
    fi
}
kills() {
    local long=("${options[@]}" --precision "${fast[0]}" --folds 5 --fold 0 --epochs "$kill_epochs")
    if ! run kill-none 90 "${together[@]}" -n "$ranks" "$train" --parallel data "${long[@]}" --out "$out/kill-none"; then
        row "a rank killed" FAILED "$(why kill-none)"
        return
    fi
    kill_a_rank 1
    kill_a_rank 0
}

# ---- folds
seconds_of() { # seconds_of NAME ARGS...: of a train_cv, into $took; its exit code
    local name=$1 before code
    shift
    before=$(date +%s%N)
    run "$name" 150 "$train" "$@" --out "$out/$name"
    code=$?
    took=$(calc "%.2f" "($(date +%s%N) - $before) / 1e9")
    return $code
}
folds_of() { # folds_of WHAT NAME ROUNDS TRAININGS ARGS...: best that the rounds allow is trainings / rounds
    local what=$1 name=$2 most one times
    most=$(calc "%.2f" "$4 / $3")
    local words=("${options[@]}" --precision "${fast[0]}" --folds 5 --epochs "$fold_epochs" "${@:5}")
    if ! seconds_of "$name-one" "${words[@]}" "${devices[@]}" "$one_device"; then
        row "$what" FAILED "$(why "$name-one")"
        return
    fi
    one=$took
    if ! seconds_of "$name-all" "${words[@]}" "${devices[@]}" "$all_devices"; then
        row "$what" FAILED "$(why "$name-all")"
        return
    fi
    times=$(calc "%.3f" "$one / $took")
    row "$what" "$(goal "$times" "0.975 * $most")" "$took s on $ranks cards, $one on one: $times x (rounds allow $most; goal $(calc "%.2f" "0.975 * $most"))"
    if [ "$(digest "$out/$name-one")" = "$(digest "$out/$name-all")" ]; then
        row "  their files" ok "equal"
    else
        row "  their files" FAILED "differ: $out/$name-one, $out/$name-all"
    fi
}
folds() {
    folds_of "5 folds, one seed" folds $(((5 + ranks - 1) / ranks)) 5
    [ "$(left)" -gt 30 ] || { row "5 folds, $ranks seeds" left-out "no time left of $limit s"; return; }
    folds_of "5 folds, $ranks seeds" folds-seeds 5 $((5 * ranks)) --seeds "1-$ranks"
}

# ---- torch
torch() {
    local code line name
    run torch 200 env FLIM_SHARED="$shared" PYTHONUNBUFFERED=1 "$python" "$top/tests/net/compare_torch_ddp.py" --cards "$ranks" --device "$kind" \
        --batch "$batch" --presets "$(IFS=,; echo "${presets[*]}")" --limit "$(($(left) < 150 ? $(left) - 15 : 135))" --out "$out/torch.json"
    code=$?
    [ $code = 77 ] && { row "PyTorch, DistributedDataParallel" left-out "$(tail -n 1 "$out/torch.log" | cut -c1-120)"; return; }
    while read -r line; do
        name=${line%%:*}
        row "PyTorch, ${name#best }" ok "${line#*: }"
    done < <(grep '^best ' "$out/torch.log")
    [ $code = 0 ] || row "PyTorch, DistributedDataParallel" FAILED "ended with $code: $out/torch.log"
}

if [ -z "$only" ] || [ "$only" != ,torch, ]; then
    simulate &
    warm_up
    wait
    [ -e "$data" ] || { row "simulated cells" FAILED "$(why simulate)"; only=,speed,; }
fi
if ! command -v "$mpirun" >/dev/null; then
    row "ranks" left-out "no mpirun: steps, runs, speed, epochs and kill need it"
    only=,$([ -z "$only" ] || [[ $only == *,folds,* ]] && echo folds),$([ -z "$only" ] || [[ $only == *,torch,* ]] && echo torch),
fi
wanted steps && steps
wanted runs && runs
wanted speed && speed
wanted epochs && epochs
wanted kill && kills
wanted folds && folds
wanted torch && torch

echo
[ "$kind" = cuda ] && sed -n 's/^\(cuda:0: .*\)/\1/p' "$out"/*.log | head -1
printf '%s\n' "${rows[@]}"
echo "$((SECONDS - begun)) s"
exit $bad
