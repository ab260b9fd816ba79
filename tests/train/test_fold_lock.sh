#!/usr/bin/env bash
# A fold is locked, not a run: processes that work at folds of one run folder at the same time end in the files of one serial run; a
# fold in another process's hands is refused or left alone; lines of
# train.log stay whole (test_train_log has long ones).
# Usage: test_fold_lock.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
train=$build/train_cv
options=(--data k.h5 --preset tiny --folds 3 --epochs 3 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
call 0 "$train" "${options[@]}" --out whole
want=$(digest whole)

is_stopped() { [ "$(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null)" = T ]; }
hold() { # hold AIM ARGS...: a process that stops there, in $held
    local aim=$1
    shift
    FLIM_AIM="$aim:19" "$faulty" "$@" >held.out 2>held.err &
    held=$!
    for _ in $(seq 300); do is_stopped $held && break; sleep 0.1; done
    check "a process is held at $aim" is_stopped $held
}
go() { # go EXIT: the held process goes on to its end
    kill -CONT $held
    wait $held
    check "the held process ends with $1" test $? = "$1"
}
state() { (cd r && find . -type f ! -name train.log ! -name .lock -exec sha256sum {} + | sort) | sha256sum; }
done_folds() { (cd r && echo fold_*/DONE); }

# ---- one process inside fold 0, another trains fold 1; a third comes to fold 0, a fourth to all
hold train:3 "${options[@]}" --fold 0 --out r
call 0 "$train" --resume --out r --fold 1
check "fold 1 is done while fold 0 is held" test "$(done_folds)" = fold_1/DONE
check "the summary has fold 1 alone" grep -q '"fold": 1' r/summary.json
before=$(state)
call 2 "$train" --resume --out r --fold 0
says "fold 0 of r is in use by another process (process $held on $(uname -n))"
check "it is refused before the data is read" bash -c '! grep -q Data: out'
call 2 "$train" --resume --resume-override --out r --lr 5e-4
says "fold 0 of r is in use by another process (process $held on $(uname -n)); --resume-override changes what all folds share"
call 2 "$train" "${options[@]}" --fold 2 --out r
says "already contains a run"
check "refused calls leave the run as it was" test "$(state)" = "$before"
call 0 "$train" --resume --out r
check "over all folds the held one is left" grep -q "fold 0 is in use by another process (process $held on $(uname -n))" out
check "and that is told at the end" bash -c 'grep -vE "^(Results: |Next: |      predict )" out | tail -1 | grep -q "the run is not complete: fold 0 is still running in another process"'
check "fold 2 is done, fold 0 is not" test "$(done_folds)" = "fold_1/DONE fold_2/DONE"
go 0
check "the process that ends last sums up all folds" test "$(digest r)" = "$want"
call 0 "$train" --resume --out r
check "a clean end leaves no stale lock" bash -c '! grep -q stale out err'

# ---- both at work at once, several times; whoever is last writes the summary
for round in 1 2 3; do
    rm -rf r
    hold line=Run:1 "${options[@]}" --fold 0 --out r
    "$train" --resume --out r --fold 1 >one.out 2>&1 &
    one=$!
    "$train" --resume --out r --fold 2 >two.out 2>&1 &
    two=$!
    go 0
    wait $one
    check "round $round: fold 1 ends with 0" test $? = 0
    wait $two
    check "round $round: fold 2 ends with 0" test $? = 0
    check "round $round: three processes at once end in the serial run's files" test "$(digest r)" = "$want"
done
call 0 "$train" --resume --out r
check "train.log has no other kinds of lines than the processes printed" bash -c \
    "comm -23 <(sed -E 's/[0-9]+/N/g' r/train.log | sort -u) <(cat held.out held.err one.out two.out out err | sed -E 's/[0-9]+/N/g' | sort -u) | tee other; test ! -s other"

# ---- a fold whose process was killed is free again
rm -rf r
hold train:3 "${options[@]}" --fold 0 --out r
kill -9 $held
wait $held 2>/dev/null
call 0 "$train" --resume --out r
check "its lock is stale" grep -q "stale lock: process $held on $(uname -n) ended without finishing fold 0 of r" out
check "the files are the serial run's" test "$(digest r)" = "$want"

# ---- a run folder that is being made: another waits, and finds a run
rm -rf r
hold rename=config.yaml:1 "${options[@]}" --fold 0 --out r
"$train" "${options[@]}" --fold 1 --out r >second.out 2>second.err &
second=$!
sleep 1
check "the second one waits" kill -0 $second
go 0
wait $second
check "then it is refused" test $? = 2
check "because there is a run now" grep -q "already contains a run" second.err

finish
