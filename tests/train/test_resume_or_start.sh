#!/usr/bin/env bash
# --resume-or-start: one call for the first start and each later one, safe for several processes at once, ends in the files of one
# serial run.
# Usage: test_resume_or_start.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
simulate k.h5
train=$build/train_cv
options=(--data k.h5 --preset tiny --folds 5 --epochs 2 --batch 16 --lr 1e-3 --workers 1 "${device[@]}")
call 0 "$train" "${options[@]}" --out whole
want=$(digest whole)

# ---- five at once, from nothing, each with the same call but for its fold
for k in 0 1 2 3 4; do
    "$train" "${options[@]}" --resume-or-start --fold $k --out r >"$k.out" 2>"$k.err" </dev/null &
    pids[k]=$!
done
for k in 0 1 2 3 4; do
    wait "${pids[k]}"
    check "fold $k of five at once ends with 0" test $? = 0
done
check "they end in the serial run's files" test "$(digest r)" = "$want"
check "config.yaml is of all folds, whichever was first" grep -qx "fold: all" r/config.yaml
check "one of them started the run, the others say whom they waited for, or found it" test "$(cat ?.out | grep -c 'fold 0 epoch  *1/\|fold 0.*epoch 1')" -ge 1
before=$(digest r)
call 0 "$train" "${options[@]}" --resume-or-start --fold 3 --out r
check "a call for a fold that is done says so" grep -q "fold 3 is already done" out
check "and changes nothing" test "$(digest r)" = "$before"

# ---- N that take what is free
rm -rf r
for k in 0 1 2; do
    "$train" "${options[@]}" --resume-or-start --out r >"$k.out" 2>"$k.err" </dev/null &
    pids[k]=$!
done
for k in 0 1 2; do
    wait "${pids[k]}"
    check "process $k of three over all folds ends with 0" test $? = 0
done
check "three over all folds end in the serial run's files" test "$(digest r)" = "$want"

# ---- the one that starts the run is killed before there is one: another takes over
rm -rf r
FLIM_AIM=rename=config.yaml:1:19 "$faulty" "${options[@]}" --resume-or-start --fold 0 --out r >held.out 2>held.err &
held=$!
for _ in $(seq 300); do [ "$(cut -d' ' -f3 "/proc/$held/stat" 2>/dev/null)" = T ] && break; sleep 0.1; done
"$train" "${options[@]}" --resume-or-start --out r >second.out 2>second.err &
second=$!
for _ in $(seq 100); do grep -q "waiting for process $held" second.out && break; sleep 0.1; done
check "a second one says whom it waits for" grep -q "waiting for process $held on $(uname -n) to start r" second.out
kill -9 $held
wait $held 2>/dev/null
wait $second
check "it starts the run once the first has died" test $? = 0
check "and ends in the serial run's files" test "$(digest r)" = "$want"

# ---- stopped and called again with the same words, until it is done
rm -rf r
again=0
while :; do
    FLIM_AIM=train:4:10 "$faulty" "${options[@]}" --resume-or-start --out r >again.out 2>again.err </dev/null
    code=$?
    [ $code = 138 ] || break
    again=$((again + 1))
    [ $again -lt 40 ] || break
done
check "USR1 ends each call with 138 until the last one" test $code = 0
check "there were several" test $again -ge 3
check "the same call again and again ends in the serial run's files" test "$(digest r)" = "$want"

# ---- what it refuses
call 2 "$train" "${options[@]}" --resume-or-start
says "--resume-or-start needs --out DIR"
call 2 "$train" --data k.h5 --preset tiny --folds 5 --epochs 2 --batch 16 --lr 5e-4 "${device[@]}" --resume-or-start --out r
says "lr (run: 0.001, this call: 0.0005)"
printf 'epochs: 9\n' >other.yaml
call 2 "$train" --config other.yaml --data k.h5 --preset tiny --folds 5 --batch 16 --lr 1e-3 "${device[@]}" --resume-or-start --out r
says "epochs (run: 2, this call: 9)"
call 0 "$train" "${options[@]}" --resume-or-start --dry-run --out nothing
check "a dry run makes no folder" test ! -e nothing
mkdir mine && echo x >mine/notes.txt
call 2 "$train" "${options[@]}" --resume-or-start --out mine
says "is not empty and not a folder that train_cv made"
check "and leaves no file there" test "$(ls -A mine)" = notes.txt

finish
