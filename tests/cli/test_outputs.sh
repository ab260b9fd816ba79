#!/usr/bin/env bash
# Where the programs write: devices and pipes stay what they are, links are followed, modes kept, what is the user's stays, two
# writers of one path leave one whole file, a reader that has had enough costs no file.
# Usage: test_outputs.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5 --cells 24 --height 5 --width 5
call 0 "$build/train_cv" --data k.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --out run
[ "$failures" = 0 ] || exit 1
predict=("$build/predict" --model run --data k.h5 --device cpu)
metrics=("$build/fold_metrics" run --replicates 0)
info=("$build/flim_info" k.h5)
before=$(find run k.h5 -type f -exec sha256sum {} + | sort | sha256sum)

# ---- what stays, with --force, too
for path in k.h5 run/fold_0/best.safetensors run/fold_1/predictions.csv run/summary.csv run/config.yaml; do
    call 2 "${predict[@]}" --out "$path" --force
    for flag in --csv --json --md --html; do
        call 2 "${metrics[@]}" $flag "$path" --force
    done
    call 2 "${info[@]}" --json "$path" --force
    call 2 "$build/flim_simulate" --cells 6 --bins 8 --out "$path"
    call 2 "$build/flim_repack" k.h5 "$path"
done
cp run/fold_0/best.safetensors w.safetensors
call 2 "$build/predict" --model w.safetensors --data k.h5 --device cpu --out w.safetensors --force
call 2 "${metrics[@]}" --csv w.safetensors --force
check "weights elsewhere stay, too" cmp w.safetensors run/fold_0/best.safetensors
ln k.h5 hard && ln -s k.h5 soft
for path in hard soft; do
    call 2 "${predict[@]}" --out $path --force
done
check "the run and the data are as they were" test "$(find run k.h5 -type f -exec sha256sum {} + | sort | sha256sum)" = "$before"

# ---- other files: the own kind, --force
for write in "predict --out" "metrics --csv" "metrics --json" "metrics --md" "info --json"; do
    read -r name flag <<<"$write"
    declare -n command=$name
    rm -f out.x
    call 0 "${command[@]}" "$flag" out.x
    call 0 "${command[@]}" "$flag" out.x # its own
    echo "a line of somebody" >out.x
    call 2 "${command[@]}" "$flag" out.x
    says "--force"
    check "$write: it stays" grep -qx "a line of somebody" out.x
    chmod 600 out.x && ln -sf out.x link.x && mkdir -p sub && ln -sf ../out.x sub/link.x
    call 0 "${command[@]}" "$flag" sub/link.x --force
    check "$write: the mode stays" test "$(stat -c %a out.x)" = 600
    check "$write: the link stays" test -L sub/link.x -a ! -s "$(find . -name '*.tmp')"
    check "$write: it was written" bash -c '! grep -q somebody out.x'
    call 0 "${command[@]}" "$flag" -
    cp out other
    check "$write: - gives what the file holds" cmp out.x other
    call 0 "${command[@]}" "$flag" /dev/stdout
    check "$write: so does /dev/stdout" cmp out.x out
done
call 2 "${metrics[@]}" --csv both --json both
call 2 "${metrics[@]}" --csv - --json -
echo kept >p.csv.tmp && echo kept >p.csv.part
call 0 "${predict[@]}" --out p.csv
check "somebody's p.csv.tmp stays" grep -qx kept p.csv.tmp

# ---- devices and pipes: a null device of our own, never the machine's
if mknod null c 1 3 2>/dev/null && echo x 2>/dev/null >null; then
    for write in "predict --out" "metrics --csv" "metrics --json" "metrics --md" "info --json"; do
        read -r name flag <<<"$write"
        declare -n command=$name
        call 0 "${command[@]}" "$flag" null
        check "$write: the device stays" test -c null
    done
    call 0 "$build/flim_simulate" --cells 6 --bins 8 --out null
    call 0 "$build/flim_repack" k.h5 null
    check "flim_simulate and flim_repack: the device stays" test -c null
else
    echo "left out: devices, which mknod does not make here"
fi
mkfifo pipe
for write in "predict --out" "metrics --md" "info --json"; do
    read -r name flag <<<"$write"
    declare -n command=$name
    call 0 "${command[@]}" "$flag" -
    cp out want
    cat pipe >got &
    call 0 "${command[@]}" "$flag" pipe
    wait $!
    check "$write: the pipe's reader gets all of it" cmp want got
done
cat pipe >got.h5 &
call 0 "$build/flim_simulate" --cells 24 --donors 6 --bins 16 --photons 200 --seed 3 --height 5 --width 5 --out pipe
wait $!
check "flim_simulate through a pipe" cmp got.h5 k.h5
"${predict[@]}" --out pipe >out 2>err &
sleep 0.5
kill -TERM $!
wait $!
check "a pipe that nobody reads: TERM is heard" test $? = 143
check "the pipe is there still" test -p pipe

# ---- a reader that has had enough
rm -f a.csv
(set -o pipefail && "${metrics[@]}" --csv a.csv 2>err | head -1 >out)
code=$?
check "fold_metrics | head -1 leaves the table, exit code $code" test -s a.csv -a "$(wc -l <a.csv)" -gt 5
check "and says nothing of it" bash -c '! grep -q error err'

# ---- streams that are closed
call 0 bash -c 'exec "$@" <&- >&- 2>&-' _ "$build/train_cv" --data k.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --out closed
check "closed streams: the run's files are the run's" bash -c 'test ! -s closed/.lock && head -1 closed/train.log | grep -q . && cmp run/fold_0/predictions.csv closed/fold_0/predictions.csv'
check "closed streams: resumed, the lock holds no log" bash -c "\"$build/train_cv\" --resume --out closed >&- 2>&-; test ! -s closed/.lock"
call 6 bash -c 'exec "$@" >&-' _ "${info[@]}"

# ---- two writers of one path
trials=20
[ -n "${FLIM_SHORT:-}" ] && trials=4
whole=0
for _ in $(seq $trials); do
    rm -f x.h5
    for seed in 1 2; do
        "$build/flim_simulate" --cells 40 --bins 32 --height 7 --width 7 --seed $seed --out x.h5 >/dev/null 2>&1 &
    done
    wait
    "$build/flim_info" x.h5 >/dev/null 2>&1 && whole=$((whole + 1))
done
check "two flim_simulate to one path: $whole of $trials whole" test $whole = "$trials"
kinds=(--json --md)
command -v gnuplot >/dev/null && kinds+=(--html)
"${metrics[@]}" --json one.--json --md one.--md >/dev/null 2>&1
[ ${#kinds[@]} = 3 ] && { "${metrics[@]}" --html one.--html >/dev/null 2>&1; trials=4; }
for kind in "${kinds[@]}"; do
    whole=0
    for _ in $(seq $trials); do
        for _ in 1 2; do
            "${metrics[@]}" $kind two >/dev/null 2>&1 &
        done
        wait
        cmp -s two "one.$kind" && whole=$((whole + 1))
        rm -f two
    done
    check "two fold_metrics $kind to one path: $whole of $trials whole" test $whole = "$trials"
done
check "no temporary file is left" test -z "$(find . -name '.*.tmp')"
finish
