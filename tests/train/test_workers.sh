#!/usr/bin/env bash
# --jobs and --devices: worker processes train the folds of a run and end in the serial run's bytes; workers that are killed, that
# are stopped, that fail; what the terminal is told.  The kills at random are tests/train/worker_kills.sh's.
# Usage: test_workers.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
simulate k.h5 --cells 60
train=$build/train_cv
options=(--data k.h5 --preset tiny --folds 5 --epochs 3 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
call 0 "$train" "${options[@]}" --out whole
want=$(digest whole)
# Its workers stop (STOP) at their fifth batch, which is in the second epoch: what is done to them meets both inside a fold.
held=(env FLIM_AIM=train:5:19 "$faulty" "${options[@]}" --epochs 4)
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
are_held() { # are_held PARENT: its two workers are stopped
    local child n=0
    for _ in $(seq 600); do
        n=0
        for child in $(children "$1"); do [ "$(cut -d' ' -f3 "/proc/$child/stat" 2>/dev/null)" = T ] && n=$((n + 1)); done
        [ $n = 2 ] && return 0
        sleep 0.05
    done
    return 1
}
go_on() { # go_on PARENT: none of its workers stays stopped, those that are started later neither; returns when it has ended
    while kill -0 "$1" 2>/dev/null; do
        # shellcheck disable=SC2046
        kill -CONT $(children "$1") 2>/dev/null
        sleep 0.05
    done
}

# ---- the serial run's bytes, once
for jobs in 2 5; do
    call 0 "$train" "${options[@]}" --jobs $jobs --out r$jobs
    check "--jobs $jobs ends in the serial run's files" test "$(digest r$jobs)" = "$want"
    check "--jobs $jobs prints one table" test "$(grep -c '^Test-set metrics' out)" = 1
    check "--jobs $jobs prints the serial run's table" test "$(sed -n '/^Test-set metrics/,/^Results/p' out | sed '$d')" = \
        "$(sed -n '/^Test-set metrics/,/^Results/p' whole/train.log | sed '$d' | grep -v '^warning')"
    check "--jobs $jobs ends with where the results are" grep -qx "Results: r$jobs" out
    check "--jobs $jobs begins one run" test "$(grep -c '^Run folder: ' out)" = 1
    check "each fold has a log of its own" bash -c "for k in 0 1 2 3 4; do grep -q \"^fold \$k done\" r$jobs/fold_\$k/train.log || exit 1; done"
    check "in which no other fold stands" bash -c "! grep -q '^fold 1 epoch' r$jobs/fold_0/train.log"
    check "the run's log has all of them" test "$(grep -c '^fold [0-4] done' r$jobs/train.log)" = 5
    check "the run has the workers that were asked for, not a share of them" grep -qx 'workers: 2' r$jobs/config.yaml
done
check "with five jobs five processes have trained" test "$(grep -c '^Run folder: ' r5/train.log)" = 5
call 0 "$train" "${options[@]}" --devices cpu,cpu,cpu,cpu,cpu,cpu --out rd
check "no more workers than folds" grep -qx "Workers: 5 processes, as many as there are folds" out
check "--devices ends in the serial run's files" test "$(digest rd)" = "$want"
call 0 "$train" --resume --jobs 2 --out rd
check "a run that is done is summed up once more" test "$(grep -c '^Test-set metrics' out)" = 1
check "and stays as it was" test "$(digest rd)" = "$want"
call 2 "$train" "${options[@]}" --jobs 2 --out rd
says "rd already contains a run"
call 0 "$train" "${options[@]}" --no-scan --out wn
call 0 "$train" "${options[@]}" --no-scan --jobs 3 --out rn
check "without a scan, too: only a run that was resumed says that its counts were not compared" test "$(digest rn)" = "$(digest wn)"
more=(--final --refit --folds 2 --epochs 2)
call 0 "$train" "${options[@]}" "${more[@]}" --jobs 2 --resume-or-start --out rs
call 0 "$train" "${options[@]}" "${more[@]}" --out wf
check "with --final and --refit, too" test "$(digest rs)" = "$(digest wf)"

# ---- a terminal shows all of them in one line, cut to its width
cat >screen.py <<'PY'
import fcntl, os, pty, re, struct, subprocess, sys, termios
columns = int(sys.argv[1])
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
child = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm"})
os.close(slave)
raw = b""
while True:
    try:
        piece = os.read(master, 4096)
    except OSError: # the other end is closed
        break
    raw += piece
    if not piece:
        break
text = raw.decode()
both = [b for b in re.findall(r"\033\[J([^\r\n\033]*)", text) if re.search(r"fold \d.* \| .*fold \d", b) and "train loss" not in b]
assert child.wait() == 0 and both, text
assert all(len(b) < columns for b in both), max(both, key=len)
print(max(both, key=len))
PY
if command -v python3 >/dev/null; then
    check "a wide terminal shows both workers with their epochs" bash -c \
        "python3 screen.py 200 '$train' ${options[*]} --epochs 12 --jobs 2 --out t200 | grep -E '^cpu/1 fold [0-4] epoch [0-9]+/12 .* \\| cpu/2 fold [0-4] epoch [0-9]+/12'"
    check "one of 24 columns their folds" bash -c "python3 screen.py 24 '$train' ${options[*]} --epochs 12 --jobs 2 --out t24 | grep -xE 'fold [0-4] \\| fold [0-4]'"
fi

# ---- a worker is killed: its fold goes on from its checkpoint
rm -rf r
"${held[@]}" --jobs 2 --out r >r.out 2>r.err &
parent=$!
check "both workers are inside a fold" are_held $parent
victim=$(children $parent | cut -d' ' -f2)
check "there are two workers" test "$(children $parent | wc -w)" = 2
kill -9 "$victim"
go_on $parent
wait $parent
check "the run ends with 0" test $? = 0
call 0 "$train" "${options[@]}" --epochs 4 --out w4
check "in the serial run's files" test "$(digest r)" = "$(digest w4)"
check "the death is told" grep -Eq "worker .* was killed by signal 9 \(Killed\) at fold [0-4], which is free again and continues from its checkpoint" r.err
check "and stands in the run's log" grep -q "was killed by signal 9" r/train.log

# ---- Ctrl-C, as a terminal sends it: to all processes of the group
rm -rf r
setsid env --default-signal=INT "${held[@]}" --jobs 2 --out r >r.out 2>r.err &
parent=$!
check "both workers are inside a fold" are_held $parent
left=$(children $parent)
begun=$(date +%s%N)
kill -INT -- -$parent
go_on $parent
wait $parent
check "INT to the group ends all with 130" test $? = 130
check "within two seconds" test $((($(date +%s%N) - begun) / 1000000)) -lt 2000
check "and says how to resume, once" test "$(cat r.out r.err | grep -c 'resume with')" = 1
check "both folds have a checkpoint" bash -c 'ls r/fold_0/checkpoint/* r/fold_1/checkpoint/*'
# shellcheck disable=SC2086
check "no worker is left" bash -c "! kill -0 $left"
call 0 "$train" --resume --jobs 2 --out r
check "resumed by workers it ends in the serial run's files" test "$(digest r)" = "$(digest w4)"

# ---- the process that shows them is killed: none is left
rm -rf r
"${held[@]}" --jobs 2 --out r >r.out 2>r.err &
parent=$!
check "both workers are inside a fold" are_held $parent
left=$(children $parent)
kill -9 $parent
wait $parent 2>/dev/null
# shellcheck disable=SC2086
kill -CONT $left
for _ in $(seq 100); do
    # shellcheck disable=SC2086
    kill -0 $left 2>/dev/null || break
    sleep 0.05
done
# shellcheck disable=SC2086
check "its workers have stopped" bash -c "! kill -0 $left"

# ---- a fold that always kills its worker is given up, the others are done
rm -rf r
FLIM_AIM=train:2:9 call 1 "$faulty" "${options[@]}" --jobs 2 --worker-retries 1 --out r
says "2 times without an epoch in between"
check "all folds have failed" test "$(ls r/fold_*/FAILED | wc -l)" = 5
call 0 "$train" --resume --jobs 2 --out r
check "another call trains them, to the serial run's files" test "$(digest r)" = "$want"

# ---- errors that would meet every worker are told once
call 3 "$train" "${options[@]}" --data missing.h5 --jobs 3 --out none
check "a file that is missing is told once" test "$(grep -c missing.h5 err)" = 1
check "and leaves no run" test ! -e none/config.yaml
call 2 "$train" "${options[@]}" --jobs 2 --devices 0 --out none
says "--jobs and --devices both say how many worker processes there are"
call 2 "$train" "${options[@]}" --devices 0,x --out none
call 2 "$train" --resume --jobs 2 --out nothing
says "nothing has no run to resume"

# ---- a fold that is not finite fails, once, and the others are done
FLIM_INFINITE_CELL=5 call 1 "$faulty" "${options[@]}" --jobs 2 --out nan
FLIM_INFINITE_CELL=5 call 1 "$faulty" "${options[@]}" --out nan1
check "the summary lists the same failed folds as the serial run's" test "$(sha256sum <nan/summary.json)" = "$(sha256sum <nan1/summary.json)"

finish
