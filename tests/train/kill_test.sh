#!/usr/bin/env bash
# Kills train_cv at random moments and resumes it until it is done: the files must be the undisturbed run's, byte for byte (times
# aside), and after every kill there must be a checkpoint that loads, once the first was written.
# With FLIM_TEST_DEVICE=cuda on the card, in deterministic mode; FLIM_KILL_FLAGS ("--refit --final") are flags of the run.
# Usage: kill_test.sh BUILD_DIR [KILLS [SIGNAL...]]     default: 10 KILL; the figures of 200 stand in docs/reliability.md
set -u
build=$1
kills=${2:-10}
shift $(($# < 2 ? $# : 2))
[ $# = 0 ] && set -- KILL
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh" "$build"

simulate k.h5
read -ra more <<<"${FLIM_KILL_FLAGS:-}"
run=(--data k.h5 --preset tiny --folds 3 --epochs 4 --batch 16 --lr 1e-3 "${device[@]}" --workers 4 "${more[@]}")
begun=$(date +%s%N)
"$build/train_cv" "${run[@]}" --out whole >/dev/null || exit 1
length=$((($(date +%s%N) - begun) / 1000000)) # of an undisturbed run, in ms
want=$(digest whole)

done_kills=0 runs=0 litter=0 sent=0 wrong=0 unloadable=0 longest=0
while [ $done_kills -lt "$kills" ]; do
    rm -rf cut
    runs=$((runs + 1))
    code=1
    while [ $code != 0 ]; do
        signal=${*:$((RANDOM % $# + 1)):1}
        if [ -e cut/config.yaml ]; then again=(--out cut --resume); else again=("${run[@]}" --out cut); fi
        "$build/train_cv" "${again[@]}" >out.log 2>err.log &
        pid=$!
        if [ $done_kills -lt "$kills" ]; then
            sleep "$(printf '%d.%03d' $((RANDOM * length / 32768 / 1000)) $((RANDOM * length / 32768 % 1000)))"
            sent=$(date +%s%N)
            if kill -"$signal" $pid 2>/dev/null; then done_kills=$((done_kills + 1)); fi
        fi
        wait $pid 2>/dev/null
        code=$?
        took=$((($(date +%s%N) - sent) / 1000000))
        case $signal-$code in
        *-0) ;;
        KILL-137 | INT-130 | TERM-143 | HUP-129 | USR1-138)
            [ "$took" -gt $longest ] && longest=$took ;;
        *)
            wrong=$((wrong + 1))
            echo "SIG$signal: exit code $code: $(tail -1 err.log)" ;;
        esac
        if grep -q "no earlier checkpoint is left" err.log; then
            unloadable=$((unloadable + 1))
            cat err.log
            break
        fi
    done
    if [ "$(digest cut)" != "$want" ]; then
        wrong=$((wrong + 1))
        echo "run $runs ended in other files"
        diff -rq whole cut
    fi
    if [ -n "$(find cut -name '*.tmp' -o -name '*.ckpt' -o -name checkpoint)" ]; then
        litter=$((litter + 1))
        find cut -name '*.tmp' -o -name '*.ckpt' -o -name checkpoint
    fi
done
echo "$done_kills signals ($*) over $runs runs of $length ms: $wrong wrong ends, $unloadable times no loadable checkpoint, $litter runs with litter, longest end ${longest} ms"
[ $wrong = 0 ] && [ $unloadable = 0 ] && [ $litter = 0 ]
