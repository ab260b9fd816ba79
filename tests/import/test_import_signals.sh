#!/usr/bin/env bash
# INT and TERM sent to flim_import at moments all over its work, with several readers: it ends with 130 or 143 and leaves neither OUT
# nor a temporary file; what ended before the signal came is whole.
# Usage: test_import_signals.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
raw=${FLIM_SHARED:-$top/../shared}/data/raw
moments=${FLIM_MOMENTS:-6} # per reader and signal
mkdir in inputs cells
# shellcheck disable=SC2054
default=(env --default-signal=INT,TERM) # whatever a shell without job control, or nohup, has set
"${default[@]}" true 2>/dev/null || default=(env)

# 1500 fields of (21,21,64), a stack of 64 pages, and the same as an array of 40 fields: each written by a few lines of awk and dd.
header() { # header SHAPE DESCR FILE: of NumPy, 128 bytes in all
    { printf '\x93NUMPY\x01\x00\x76\x00' && printf "%-117s\n" "{'descr': '$2', 'fortran_order': False, 'shape': $1, }"; } >"$3"
}
header '(21, 21, 64)' '|u1' one.npy
awk 'BEGIN { for (i = 0; i < 21 * 21 * 64; i++) printf "%c", 48 + (i * 7) % 10 }' >>one.npy
for ((i = 0; i < 1500; i++)); do ln one.npy "cells/c_$i.npy"; done
header '(40, 21, 21, 256)' '<u2' several.npy
head -c $((40 * 21 * 21 * 256 * 2)) /dev/zero | tr '\0' '\1' >>several.npy
zip_sdt=$raw/Tcells-002.sdt ptu=$raw/pyflim_example.ptu

ended=0 whole=0
aim() { # aim SIGNAL NUMBER MS ARGUMENTS...: the signal after so many milliseconds
    local signal=$1 code want=$((128 + $2)) ms=$3 child
    shift 3
    rm -f in/out.h5
    "${default[@]}" "$build/flim_import" in/out.h5 "$@" >out 2>err </dev/null &
    child=$!
    sleep "$(printf '0.%03d' "$ms")"
    kill -s "$signal" "$child" 2>/dev/null
    wait "$child"
    code=$?
    checks=$((checks + 1))
    if [ "$code" = 0 ]; then
        whole=$((whole + 1))
        [ -s in/out.h5 ] || fail "$signal after $ms ms, $1: it ended with 0 and wrote nothing"
    elif [ "$code" = "$want" ]; then
        ended=$((ended + 1))
        [ -z "$(find in -type f)" ] || fail "$signal after $ms ms, $1: left $(find in -type f)"
    else
        fail "$signal after $ms ms, $1: exit code $code, expected $want or 0: $(head -c 300 err)"
    fi
}

round() { # round ARGUMENTS...: moments from the start to about the end of an undisturbed call
    local begun took i
    rm -f in/out.h5
    begun=$(date +%s%N)
    call 0 "$build/flim_import" in/out.h5 "$@"
    took=$((($(date +%s%N) - begun) / 1000000))
    for ((i = 1; i <= moments; i++)); do
        aim INT 2 $(((took < 999 ? took : 999) * i / (moments + 1))) "$@"
        aim TERM 15 $(((took < 999 ? took : 999) * (2 * i - 1) / (2 * moments + 1))) "$@"
    done
}

round cells
round several.npy --axes YXT
if [ -r "$zip_sdt" ]; then
    round "$zip_sdt"
    round "$ptu" --channel 1
fi
echo "$ended runs ended by a signal, $whole before it"
check "signals met flim_import at work" test "$ended" -ge "$moments"
finish
