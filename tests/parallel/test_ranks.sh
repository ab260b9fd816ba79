#!/usr/bin/env bash
# train_cv --parallel data: ranks of Open MPI that train one network together end in the files of one process that accumulates as
# many batches; a rank that dies ends all; a run goes on with another number of ranks.
# Usage: test_ranks.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/parallel/mpi.sh
source "$top/tests/parallel/mpi.sh"
simulate k.h5
simulate odd.h5 --cells 67
options=(--data k.h5 --preset nano --folds 2 --fold 0 --epochs 3 --lr 1e-3 --workers 2 --device cpu)
together() { # together RANKS ARGS...: the words of a command that starts so many
    local ranks=$1
    shift
    command=(timeout 120 "${mpi_run[@]}" -n "$ranks" "$train" --parallel data "$@")
}
ranks() { # ranks EXIT RANKS ARGS...
    local want=$1
    shift
    together "$@"
    call "$want" "${command[@]}"
}

# ---- what they exchange
for n in 1 2 3; do
    call 0 timeout 60 "${mpi_run[@]}" -n $n "$build/tests/test_rank_sums"
    check "$n ranks found each other" test "$(grep -c "rank [0-9] of $n" out)" = $n
done

# ---- N ranks are one process with --accumulate N, bit for bit: sums are taken in the order of the ranks
same() { # same RANKS ACCUMULATE BATCH ARGS...
    rm -rf alone several
    call 0 "$train" "${options[@]}" --accumulate $(($1 * $2)) --batch "$3" --out alone "${@:4}"
    ranks 0 "$1" "${options[@]}" --accumulate "$2" --batch "$3" --out several "${@:4}"
    check "$1 ranks x $2 of batch $3 ${*:4}: the same files" test "$(digest several)" = "$(digest alone)"
}
same 1 1 8
same 2 1 8
same 3 1 8 --ema 0.9 --tta
same 3 1 5 --mixup counts --class-weights balanced --dropout 0.5 --no-scan # 24 cells: the last batch has 4
same 2 1 23 --clip 0.01 # the last batch is one cell, whose head takes the running statistics
same 2 1 7 --data odd.h5 --refit --deterministic
same 2 1 8 --final --fold all --holdout-group donor_1
check "the pace of several ranks is that of their batches" bash -c '! grep "Estimate: .* at [0-9.]*e+" several/train.log'
check "only rank 0 prints" test "$(grep -c '^Run folder' out)" = 1
check "how many train together is said" grep -q '^Parallel: 2 processes train together (Open MPI .*): 2 x 8 x 1 = 16 cells per step' several/train.log

# ---- flim_bench step, the same
bench=("$build/flim_bench" step --device cpu --preset nano --bins 16 --pixels 7 --batch 4 --steps 5)
files() { echo "--weights-out $1.safetensors --grads-out $1_grads.safetensors --losses $1.json"; }
for n in 2 3; do
    rm -f alone*.* several*.* backwards*.*
    # shellcheck disable=SC2046
    call 0 "${bench[@]}" --accumulate $((2 * n)) $(files alone)
    # shellcheck disable=SC2046
    call 0 "${bench[@]}" --accumulate $((2 * n)) --reverse $(files backwards)
    # shellcheck disable=SC2046
    call 0 timeout 120 "${mpi_run[@]}" -n $n "${bench[@]}" --accumulate 2 --parallel data $(files several)
    check "flim_bench: $n ranks: only one prints" test "$(grep -c '^per step' out)" = 1
    check "flim_bench: $n ranks: $((8 * n)) cells per step" grep -q "= $((8 * n)) cells" out
    check "flim_bench: $n ranks x 2: gradients and losses to rounding, as with the cells of a batch backwards" python3 - <<'PY2'
import array, json, math, struct
def tensors(path):
    with open(path, "rb") as f:
        f.seek(8 + struct.unpack("<Q", f.read(8))[0])
        return array.array("f", f.read())
a, b, c = (tensors(run + "_grads.safetensors") for run in ("alone", "several", "backwards"))
norm = math.sqrt(sum(x * x for x in a))
for name, other in (("ranks", b), ("backwards", c)):
    apart = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, other))) / norm
    print(name, apart)
    assert len(a) == len(other) > 1000 and apart < 1e-5, apart
assert a != c
a, b = (json.load(open(run + ".json")) for run in ("alone", "several"))
print(a, b)
assert len(a) == 5 and len(set(a)) == 5 and max(abs(x - y) for x, y in zip(a, b)) < 1e-5
PY2
done
rm -f alone*.* several*.*
# shellcheck disable=SC2046
call 0 "${bench[@]}" --accumulate 3 $(files alone)
# shellcheck disable=SC2046
call 0 timeout 120 "${mpi_run[@]}" -n 3 "${bench[@]}" --parallel data $(files several)
for file in .safetensors _grads.safetensors .json; do
    check "flim_bench: 3 ranks x 1: the same $file" cmp alone$file several$file
done
call 3 timeout 60 "${mpi_run[@]}" -n 2 "${bench[@]}" --parallel data --data missing.h5
check "flim_bench: an error of all is told once" test "$(grep -c 'flim_bench: error' err)" = 1
call 3 timeout 60 "${mpi_run[@]}" -n 1 "${bench[@]}" --parallel data --data "k.h5" : \
    -n 1 env -C / "${bench[@]}" --parallel data --data "k.h5"
says "flim_bench: error: rank 1 of 2 (on $(uname -n)): k.h5"
check "flim_bench: an error of one rank is told once" test "$(grep -c 'flim_bench: error' err)" = 1
call 2 timeout 60 "${mpi_run[@]}" -n 2 "${bench[@]}" --device cuda:1 --parallel data
says "leave the number out"

# ---- with an accumulation of their own, ranks add up their batches before they add those of the others: to the rounding of sums,
# which AdamW, whose first steps are the signs of gradients, makes larger from update to update
rm -rf alone several
call 0 "$train" "${options[@]}" --accumulate 4 --batch 4 --out alone
ranks 0 2 "${options[@]}" --accumulate 2 --batch 4 --out several
check "2 ranks x 2: the first epoch to 1e-6, the others and the predictions to 1e-2" python3 - <<'PY'
import csv, sys
worst = {1e-6: 0, 1e-2: 0}
for name, columns in ("history.csv", "train_loss val_loss grad_norm grad_norm_mean"), ("predictions.csv", "logit_1"):
    a, b = (list(csv.DictReader(open(f"{run}/fold_0/{name}"))) for run in ("alone", "several"))
    assert len(a) == len(b) >= 3
    for i, (x, y) in enumerate(zip(a, b)):
        allowed = 1e-6 if name == "history.csv" and i == 0 else 1e-2
        for column in columns.split():
            u, v = float(x[column]), float(y[column])
            worst[allowed] = max(worst[allowed], abs(u - v) / max(abs(u), 0.1))
print("largest relative differences", worst)
sys.exit(any(w > allowed for allowed, w in worst.items()))
PY

# ---- the same twice
rm -rf again
ranks 0 2 "${options[@]}" --accumulate 2 --batch 4 --out again
check "twice the same bits" test "$(digest again)" = "$(digest several)"

# ---- a rank that is killed ends all, and is named; the run goes on from its checkpoint, with another number of ranks, too
want=$(digest several)
no_process() { # no_process PATTERN: within 5 s there is none
    for _ in $(seq 50); do pgrep -f "$1" >/dev/null || return 0; sleep 0.1; done
    return 1
}
kill_one() { # kill_one RANK: rank RANK of 2 dies inside epoch 2, when the first one's checkpoint is written
    local words=(--parallel data "${options[@]}" --accumulate 2 --batch 4 --out "$work/cut") first=() second=()
    local aim=(env FLIM_AIM=step:5:9 FLIM_AIM_ONCE="$work/cut/fold_0/checkpoint/state.ckpt" FLIM_AIM_MARK="$work/killed")
    [ "$1" = 0 ] && first=("${aim[@]}") || second=("${aim[@]}")
    rm -rf cut killed
    timeout 60 "${mpi_run[@]}" -n 1 "${first[@]}" "$faulty" "${words[@]}" : \
        -n 1 "${second[@]}" "$faulty" "${words[@]}" >out 2>err
    check "rank $1 is killed: mpirun fails" test $? != 0
    check "rank $1 is killed: all end within 10 s" test $(($(date +%s) - $(stat -c %Y killed))) -le 10
    check "rank $1 is killed: it is named" grep -q "process rank $1 with PID .* exited on signal 9" err
    check "rank $1 is killed: no process is left" no_process "[f]aulty_train_cv .*$work/cut"
    check "rank $1 is killed: the first epoch is kept" test -f cut/fold_0/checkpoint/state.ckpt
}
kill_one 1
ranks 0 2 --resume --out cut --fold 0
check "resumed with 2 ranks: the same files" test "$(digest cut)" = "$want"
kill_one 0
call 0 "$train" --resume --out cut --fold 0
check "resumed by one process, which accumulates 4 batches" grep -q '4 x 4 = 16 cells per step' several/train.log
check "resumed by one process: it has the run's predictions" test "$(wc -l <cut/fold_0/predictions.csv)" = "$(wc -l <several/fold_0/predictions.csv)"
kill_one 1
ranks 2 3 --resume --out cut --fold 0
says "cut has 4 x 4 = 16 cells per update, which 3 processes of batch 4 cannot share equally"
check "that is said once" test "$(grep -c 'cannot share equally' err)" = 1
ranks 0 4 --resume --out cut --fold 0
check "resumed with 4 ranks: it ends" test -f cut/fold_0/DONE

# ---- what happens to one rank is told once, by its number, and ends all
two() { # two EXIT COMMAND_OF_RANK_0... : COMMAND_OF_RANK_1...: the words of each before those of train_cv
    local want=$1 first=() words=(--parallel data "${options[@]}" --accumulate 2 --batch 4 --out one)
    shift
    while [ "$1" != : ]; do first+=("$1") && shift; done
    shift
    rm -rf one
    call "$want" timeout 60 "${mpi_run[@]}" -n 1 "${first[@]}" "$faulty" "${words[@]}" \
        "${more[@]}" : -n 1 "$@" "$faulty" "${words[@]}" "${more[@]}"
    check "one error is told: $(grep -c 'error: ' err)" test "$(grep -c 'train_cv: error: ' err)" = 1
}
more=()
two 3 env : env -C /
says "train_cv: error: rank 1 of 2 (on $(uname -n)): "
check "before a run folder was made" test ! -e one
two 6 env FLIM_FAULT=rename:state.ckpt:2:28 : env
says "No space left on device"
more=(--checkpoint-minutes 1e-9) # in the middle of an epoch, while rank 1 waits
two 6 env FLIM_FAULT=rename:state.ckpt:1:28 : env
says "No space left on device"
more=()
two 1 env FLIM_INFINITE_CELL=5 : env FLIM_INFINITE_CELL=5 # whichever has it
ranked=$(grep 'train_cv: error' err)
FLIM_INFINITE_CELL=5 call 1 "$faulty" "${options[@]}" --accumulate 4 --batch 4 --out infinite
check "values that are not finite: the same text as of one process" test "$ranked" = "$(grep 'train_cv: error' err)"
says "batches 5 to 6 (cells "

# ---- a signal to all stops all, and the run goes on
rm -rf cut
together 2 "${options[@]}" --accumulate 2 --batch 4 --epochs 400 --patience 0 --out cut
"${command[@]}" >out 2>err &
mpi=$!
for _ in $(seq 100); do grep -qs '^2,' cut/fold_0/history.csv && break; sleep 0.1; done
kill -USR1 "$(pgrep -P $mpi mpirun || echo $mpi)"
wait $mpi
check "a signal is an interruption" grep -q 'interrupted; resume with' out
check "with a checkpoint" test -f cut/fold_0/checkpoint/state.ckpt

# ---- one process alone, without mpirun; what cannot be
rm -rf alone single
call 0 "$train" "${options[@]}" --batch 8 --out alone
call 0 "$train" "${options[@]}" --batch 8 --out single --parallel data
check "without mpirun it is a run of one process" test "$(digest single)" = "$(digest alone)"
ranks 3 2 --data missing.h5 --out none --device cpu
check "an error before the start is told once" test "$(grep -c 'train_cv: error' err)" = 1
SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 call 2 "$train" "${options[@]}" --out none --parallel data
says "srun started 2 processes that cannot find each other; start them with srun --mpi=pmix, or with mpirun"

# ---- srun, by PMIx, in a Slurm of the test's own
with_srun() {
    local begun victim
    call 0 timeout 60 srun --mpi=pmix -n 2 "$train" --parallel data "${options[@]}" --accumulate 2 --batch 4 --out by_srun
    check "srun: the files that mpirun makes" test "$(digest by_srun)" = "$want"
    call 2 timeout 60 srun -n 2 "$train" --parallel data "${options[@]}" --out none
    says "start them with srun --mpi=pmix"
    timeout 60 srun --mpi=pmix -n 2 "$train" --parallel data "${options[@]}" --epochs 4000 --patience 0 --batch 8 --out "$work/sr" >out 2>err &
    local step=$!
    for _ in $(seq 200); do [ -f sr/fold_0/history.csv ] && break; sleep 0.1; done
    victim=$(pgrep -f "[t]rain_cv --parallel data .*$work/sr" | while read -r pid; do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -q '^PMIX_RANK=1$' && echo "$pid"
    done | head -1)
    begun=$SECONDS
    kill -9 "$victim"
    wait $step
    check "srun: a killed rank ends the step" test $? != 0
    check "srun: within 10 s" test $((SECONDS - begun)) -le 10
}
if [ -f "$top/tests/slurm/slurm.sh" ]; then
    # shellcheck source=/dev/null
    source "$top/tests/slurm/slurm.sh"
    trap '[ "$BASHPID" != $$ ] || { slurm_stop; leave; }' EXIT
    if [ -n "$(slurm_missing)" ] || ! slurm_start "$work/slurm" 4; then
        echo "srun is not tried: no Slurm here, or it does not start"
    elif ! srun --mpi=list 2>&1 | grep -q pmix; then
        echo "srun is not tried: this Slurm has no PMIx"
    else
        with_srun
    fi
fi
finish
