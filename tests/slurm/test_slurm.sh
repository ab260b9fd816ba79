#!/usr/bin/env bash
# A real Slurm (slurm.sh) runs the jobs of configs/slurm/ on this machine: an array of folds, scancel of one task, requeue of another,
# USR1 as before a time limit, preemption by a job of a higher partition, and a whole node.  Each ends in the serial run's bytes.
# Skipped, with the reason, if Slurm's programs are not there (Debian: slurmctld slurmd slurm-client munge).
# Usage: test_slurm.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/slurm/slurm.sh
source "$top/tests/slurm/slurm.sh"
missing=$(slurm_missing)
[ -z "$missing" ] || { echo "skipped: no $missing (Debian: slurmctld slurmd slurm-client munge)"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
export OMP_NUM_THREADS=1
leave_slurm() {
    [ "$BASHPID" = $$ ] || return 0
    slurm_stop
    leave
}
trap leave_slurm EXIT
if ! slurm_start "$work/slurm" 4; then
    echo "skipped: Slurm does not start here:"
    tail -n 3 "$work"/slurm/*.log "$work"/slurm/*.out "$work"/slurm/munge/out
    exit 77
fi
export PATH=$build:$PATH
simulate k.h5 --cells 60
options=(--data k.h5 --preset tiny --folds 5 --epochs 16 --batch 16 --lr 1e-3 --workers 1 "${device[@]}")
call 0 train_cv "${options[@]}" --out whole
want=$(digest whole)
submit() { sbatch --parsable --gres=none --time=20 --cpus-per-task=1 "$@"; } # SBATCH FLAGS... FILE TRAIN_CV FLAGS...
ended() { [ -z "$(squeue -h -j "$1" -t PD,R,CG,RQ,S 2>/dev/null)" ]; }
await() { # await SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
complete() { # complete JOB FOLDER: the job has ended, the run is the serial run
    await 240 ended "$1"
    check "$2: the job ends" ended "$1"
    check "$2: in the serial run's files" test "$(digest "$2")" = "$want"
}
trains() { grep -q "^fold $2 epoch 2/" "$1/fold_$2/train.log" 2>/dev/null; } # FOLDER FOLD
done_fold() { [ -e "$1/fold_$2/DONE" ]; }
slurm=$top/configs/slurm

# ---- five tasks from nothing
job=$(submit "$slurm/array.sbatch" "${options[@]}" --out a)
complete "$job" a

# ---- one task is cancelled, and submitted again by its number
job=$(submit "$slurm/array.sbatch" "${options[@]}" --out c)
check "fold 2 trains" await 120 trains c 2
scancel "${job}_2"
await 240 ended "$job"
check "the cancelled fold is not done" test ! -e c/fold_2/DONE
check "and has a checkpoint" test -n "$(ls c/fold_2/checkpoint)"
job=$(submit --array=2 "$slurm/array.sbatch" "${options[@]}" --out c)
complete "$job" c

# ---- requeue, by hand and by USR1
job=$(submit "$slurm/requeue.sbatch" "${options[@]}" --out q)
check "fold 0 trains" await 120 trains q 0
scontrol requeue "${job}_0"
check "fold 1 trains" await 120 trains q 1
scancel --batch --signal=USR1 "${job}_1"
complete "$job" q
check "USR1 led to a checkpoint and a requeue" grep -q "interrupted; resume with" flimcv-"$job"_1.log
check "both went on from a checkpoint" bash -c 'grep -q "fold 0: resuming" q/fold_0/train.log && grep -q "fold 1: resuming" q/fold_1/train.log'

# ---- preemption: a job of a higher partition takes the machine
job=$(submit --array=0-3 "$slurm/requeue.sbatch" "${options[@]}" --out p)
check "fold 3 trains" await 120 trains p 3
first=$(sbatch --parsable --partition=first --cpus-per-task=4 --output=first.log --wrap 'date; sleep 1')
await 120 ended "$first"
check "the other job had the machine" grep -q : first.log
check "in which no fold was done" bash -c '! ls p/fold_*/DONE'
await 240 ended "$job"
job=$(submit --array=4 "$slurm/requeue.sbatch" "${options[@]}" --out p)
complete "$job" p
check "the preempted folds went on from their checkpoints" test "$(grep -l 'resuming from checkpoint' p/fold_[0-3]/train.log | wc -l)" = 4

# ---- a whole node
job=$(submit --cpus-per-task=3 "$slurm/node.sbatch" "${options[@]}" --out n)
complete "$job" n
check "by a worker per processor" grep -q "^Workers: 3 processes" flimcv-"$job".log

# ---- a machine that is taken away: the script of each start
"$top/examples/spot_vm.sh" 'touch gone' "${options[@]}" --jobs 2 --out v >v.out 2>v.err &
vm=$!
check "fold 1 trains" await 120 trains v 1
pkill -TERM -P $vm
wait $vm
check "TERM ends the script with 143" test $? = 143
check "and the machine is kept" test ! -e gone
"$top/examples/spot_vm.sh" 'touch gone' "${options[@]}" --jobs 2 --out v >v.out 2>v.err
check "the next start ends with 0" test $? = 0
check "in the serial run's files" test "$(digest v)" = "$want"
check "and the machine goes" test -e gone

finish
