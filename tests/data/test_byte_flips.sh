#!/usr/bin/env bash
# One byte of a data file is damaged: flim_info and train_cv come to their end with 0, 2 or 3, whatever byte it is; no signal, no
# abort after the run.  By default a sample of positions of each file; FLIM_LONG=N takes every N-th byte of
# every file (all of them: about a day on two cores).
# Usage: test_byte_flips.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
mkdir files
check "the files are written" "$build/tests/make_h5_files" files
train=("$build/train_cv" --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --workers 2 --data x.h5 --out run)
sample=12
[ -n "${FLIM_SHORT:-}" ] && sample=4
export OMP_NUM_THREADS=1 # small networks
# libhdf5 does not free all it has when a file turns out to be damaged, which LeakSanitizer would count as our failure.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

ends() { # ends WHAT COMMAND...: 0, 2 or 3
    local what=$1 code
    shift
    timeout -k 5 120 "$@" >out 2>err </dev/null
    code=$?
    checks=$((checks + 1))
    case $code in
    0 | 2 | 3) ;;
    *)
        fail "$what: exit code $code"
        tail -3 err | sed 's/^/    /'
        ;;
    esac
    return $code
}

for file in files/*.h5; do
    cp "$file" x.h5
    rm -rf run
    if [ "$file" != files/external.h5 ]; then
        call 0 "$build/flim_info" --scan x.h5
        call 0 "${train[@]}"
    fi
    size=$(stat -c %s "$file")
    step=$((size / sample + 1))
    [ -n "${FLIM_LONG:-}" ] && step=$FLIM_LONG
    for ((at = 3; at < size; at += step)); do
        # The sample meets what tells most: not the bytes of counts, but those that are not zero.
        position=$at
        [ -z "${FLIM_LONG:-}" ] && position=$((at + $(tail -c +$((at + 1)) "$file" | head -c 512 | grep -abo -m1 -P '[^\x00]' | head -1 | cut -d: -f1 || true) + 0))
        byte=$(od -An -tu1 -j "$position" -N1 "$file")
        for flip in 1 64; do
            cp "$file" x.h5
            # shellcheck disable=SC2059
            printf "\\x$(printf %02x $((byte ^ flip)))" | dd of=x.h5 bs=1 seek="$position" conv=notrunc status=none
            where="${file#files/}, byte $position ^ $flip"
            if ends "flim_info: $where" "$build/flim_info" --scan x.h5; then
                [ -n "${FLIM_LONG:-}" ] || [ $((at % 5)) = 0 ] || continue
                rm -rf run
                ends "train_cv: $where" "${train[@]}"
            fi
        done
    done
done
finish
