#!/usr/bin/env bash
# Files that cannot be written: a full disk (tmpfs) of many sizes, a limit on the size of files, a folder or file system that is
# read-only, and fsync, rename and close that fail for each kind of file.  Each time: exit code 6, the file named with the reason, no
# litter, the last checkpoint whole, and a run that is resumed when there is room ends in the undisturbed one's files.
# Usage: test_write_errors.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
common=(--data k.h5 --preset tiny --folds 2 --epochs 3 --batch 16 --lr 1e-3 "${device[@]}" --workers 2)
call 0 "$build/train_cv" "${common[@]}" --out whole
want=$(digest whole)

go_on() { # go_on FOLDER WHAT: resumes, or begins where no run came to be, and compares
    if [ -e "$1/config.yaml" ]; then
        call 0 "$build/train_cv" --resume --out "$1"
    else
        call 0 "$build/train_cv" "${common[@]}" --out "$1"
    fi
    check "$2: resumed, the files are the undisturbed run's" test "$(digest "$1")" = "$want"
    check "$2: no litter in the end" test -z "$(find "$1" -name '*.tmp' -o -name '*.new.ckpt' -o -name checkpoint)"
}

refused() { # refused FOLDER WHAT REASON: after a call that ended with 6
    check "$2: one line, with the file and '$3'" grep -qE "^train_cv: error: cannot (write|make) .*$1.*$3" err
    check "$2: no litter" test -z "$(find "$1" -name '*.tmp' 2>/dev/null)"
    local first
    first=$(find "$1" -name 'state*.ckpt' -size -1 2>/dev/null)
    check "$2: no empty checkpoint" test -z "$first"
}

# ---- every kind of file, every kind of call
failing() { # failing CALL PATH N ERRNO REASON [NAME]: NAME is what the error calls it
    rm -rf cut
    call 6 env FLIM_FAULT="$1:$2:$3:$4" "$faulty" "${common[@]}" --out cut
    refused "cut" "$1 of $2" "$5"
    check "$1 of $2: the error names it" grep -q "${6:-${2##*/}}" err
    go_on cut "$1 of $2"
}
failing fsync splits.json 1 28 "No space left"
failing fclose environment.json 1 28 "No space left"
failing rename resume.json 1 30 "Read-only file system"
failing fsync config.yaml 1 122 "quota"
failing fsync state.new.ckpt 1 5 "Input/output error"
failing fclose state.new.ckpt 2 122 "quota"
failing rename state.new.ckpt 3 28 "No space left"
failing rename state.ckpt 2 28 "No space left"
failing rename state.previous.ckpt 1 30 "Read-only" state.ckpt
failing fsync fold_0/checkpoint 1 5 "Input/output error"
failing fclose history.csv 2 28 "No space left"
failing rename best.safetensors 1 28 "No space left"
failing fsync predictions.csv 1 5 "Input/output error"
failing fclose fold_1/summary.json 1 122 "quota"
failing fsync fold_0/DONE 1 28 "No space left"
failing fsync baseline_decay.csv 1 28 "No space left"
failing rename cut/summary.json 1 28 "No space left"
failing fclose summary.csv 1 28 "No space left"
failing fsync train.log 1 28 "No space left"

# ---- standard output on a full disk
full() { # full PROGRAM ARGS...
    call 6 bash -c 'exec "$@" >/dev/full' _ "$build/$1" "${@:2}"
    check "$*: one error, that something cannot be written" test "$(grep -cE ': error: (cannot|could not) write' err)" = 1
}
for program in train_cv predict fold_metrics gpu_plan flim_info flim_repack flim_simulate flim_bench; do
    full "$program" --version
    full "$program" --help
done
full train_cv --print-config
full flim_info k.h5
full flim_simulate --cells 4 --donors 2 --bins 8 --out full.h5
full fold_metrics whole

# ---- ulimit -f
for kib in 1 40 300 900; do
    rm -rf cut
    call 6 bash -c "ulimit -f $kib; exec \"\$@\"" _ "$build/train_cv" "${common[@]}" --out cut
    refused cut "ulimit -f $kib" "File too large"
    go_on cut "ulimit -f $kib"
done

# ---- a folder without the right to write, as another user than root
mkdir locked && chmod 555 locked && chmod 711 "$work"
user=(env)
[ "$(id -u)" = 0 ] && user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if "${user[@]}" "$build/train_cv" --version >/dev/null 2>&1; then
    chmod 644 k.h5
    call 6 "${user[@]}" "$build/train_cv" "${common[@]}" --out locked/run
    says "cannot make"
    check "a locked folder is found before the data is read" bash -c '! grep -q "Data:" out'
else
    echo "left out: another user cannot run $build/train_cv"
fi

# ---- a small disk
mkdir disk
if ! mount -t tmpfs -o size=64k none disk 2>mount.err; then
    echo "left out: a full disk; mount -t tmpfs: $(cat mount.err)"
    finish
    exit
fi
named=""
# A checkpoint has 0.92 MB here, weights 0.23 MB.  1400k: one and a half checkpoints.
try_disk() { # try_disk KIB
    mount -o "remount,size=$1k" disk
    call 6 "$build/train_cv" "${common[@]}" --out disk/cut
    refused disk/cut "a disk of $1 KiB" "No space left"
    named="$named $(grep -oE '(cannot (write|make)|folder) [^:]*' err | sed 's|.*/||' | head -1)"
    if [ -e disk/cut/config.yaml ]; then # whatever was saved loads, even while there is no room
        "$build/train_cv" --resume --out disk/cut >out 2>err
        check "a disk of $1 KiB: still full, exit code $?, and no damaged checkpoint" bash -c '! grep -qE "damaged|truncated" err out'
    fi
    mount -o remount,size=64m disk
    go_on disk/cut "a disk of $1 KiB"
    rm -rf disk/cut
}
for kib in 8 16 24 36 500 940 1400 1960 2840; do
    try_disk $kib
done
# One epoch: one checkpoint, so that the files after training are the ones that do not fit.
common+=(--epochs 1)
call 0 "$build/train_cv" "${common[@]}" --out one
want=$(digest one)
for kib in 1100 1164 1168 1172 1176; do
    try_disk $kib
done
echo "what did not fit:$named"
check "different kinds of files were the ones that did not fit" test "$(tr ' ' '\n' <<<"$named" | sort -u | grep -c .)" -ge 4
mount -o remount,ro disk
call 6 "$build/train_cv" "${common[@]}" --out disk/run
says "Read-only file system"
check "a read-only file system is found before the data is read" bash -c '! grep -q "Data:" out'
finish
