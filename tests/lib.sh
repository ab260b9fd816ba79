# What the tests of whole runs share: source it with the build folder in $1.  Makes $work, a folder that is removed at the end, and
# goes there.
# shellcheck shell=bash disable=SC2034
build=$(cd "$1" && pwd) || exit 1
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) # of the sources
faulty=$build/tests/faulty_train_cv # train_cv with faults on demand: see tests/train/faulty_train_cv.c
work=$(mktemp -d)
failures=0 checks=0
device=(--device cpu)
if [ "${FLIM_TEST_DEVICE:-cpu}" != cpu ]; then # equal bits are to be had there, too, but must be asked for
    device=(--device "$FLIM_TEST_DEVICE" --deterministic --precision "${FLIM_TEST_PRECISION:-auto}")
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

leave() { # not in a child that a signal meets before it became train_cv
    [ "$BASHPID" = $$ ] || return 0
    cd / || return 0
    mountpoint -q "$work/disk" 2>/dev/null && umount "$work/disk"
    rm -rf "$work"
}
trap leave EXIT
cd "$work" || exit 1

fail() {
    failures=$((failures + 1))
    echo "FAILED: $1"
}

check() { # check DESCRIPTION COMMAND...: the command must succeed
    checks=$((checks + 1))
    local what=$1
    shift
    if ! "$@" >"$work/check.out" 2>&1; then
        fail "$what"
        sed 's/^/    /' "$work/check.out" | head -20
    fi
}

call() { # call EXPECTED_EXIT PROGRAM ARGS...: with output in $work/out and $work/err
    local want=$1 got
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    checks=$((checks + 1))
    if [ "$got" != "$want" ]; then
        fail "${*/#$build\//} exited with $got, $want was expected"
        sed 's/^/    /' "$work/err" | head -5
    fi
}

says() { check "stderr says '$1'" grep -qF -- "$1" "$work/err"; }

makes_no_run() { # makes_no_run TEXT PROGRAM ARGS...: with --out bad it is refused, by this text, and makes no folder
    local text=$1
    shift
    call 2 "$@" --out bad
    says "$text"
    check "no folder is left behind by: $*" test ! -e bad
}

# Every file that must not depend on when and how the run went, with the time columns of history.csv cut off.  A folder without
# results is like no other, not even itself: two runs that have failed must not pass for equal ones.
digest() {
    (
        cd "$1" || echo "$BASHPID$RANDOM"
        shopt -s nullglob
        local file histories=(fold_*/history.csv fold_*/refit/history.csv final/history.csv)
        for file in splits.json summary.json summary.csv "${histories[0]-fold_*/history.csv}"; do
            [ -s "$file" ] || echo "$1 has no $file $BASHPID$RANDOM"
        done
        sha256sum splits.json summary.json summary.csv baseline_*.csv fold_*/best.safetensors fold_*/predictions.csv \
            fold_*/summary.json final/best.safetensors final/summary.json 2>&1
        for file in "${histories[@]}"; do cut -d, -f1-16 "$file" | sha256sum; done
    ) 2>&1 | sha256sum
}

weights() { # one sha256 for the weights of all folds; without any it is like no other
    (cd "$1" && cat fold_*/best.safetensors || echo "$BASHPID$RANDOM") | sha256sum
}

simulate() { # simulate FILE [ARGS...]: a small file, 16 time bins
    "$build/flim_simulate" --out "$1" --cells 72 --donors 6 --bins 16 --photons 200 --seed 3 "${@:2}" >/dev/null ||
        { echo "flim_simulate failed"; exit 1; }
}

# The Python that has tests/python/requirements.txt beside Debian's packages, as $python; without it the test is skipped.
needs_python_env() {
    python=$top/build/python/bin/python
    if ! cmp -s "$top/tests/python/requirements.txt" "$top/build/python/requirements.txt" || ! "$python" -c '' 2>/dev/null; then
        echo "skipped: no build/python as tests/python/requirements.txt wants it (make it with tools/python_env.sh)"
        exit 77
    fi
}

finish() {
    echo "$((checks - failures)) passed, $failures failed"
    [ "$failures" = 0 ]
}
