#!/usr/bin/env bash
# Messages name only flags that exist: every --flag in a text of the library is one of the programs that can print it.
# Usage: test_tips.sh BUILD_DIR
set -u
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
failures=0 checked=0

flags_of() { # programs: their flags, --no-x for each switch, one a line
    local program
    for program in "$@"; do
        "$build/$program" --help
    done | grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]+' | sed -E 's/^--\[no-\](.*)/--\1\n--no-\1/' | sort -u
}

named_in() { # files: the flags that their texts name; styles of the report (--ink:) are none
    grep -hoE '"([^"\\]|\\.)*"' "$@" | grep -oE -- '(^|[^a-z-])--[a-z][a-z0-9-]+[^:a-z0-9-]' | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u
}

check() { # files (a glob), programs
    local glob=$1 flag known
    shift
    known=$(flags_of "$@")
    # shellcheck disable=SC2086 # a glob
    for flag in $(cd "$source" && named_in $glob); do
        [ "$flag" = --no- ] && continue # the start of a flag
        [ "$flag" = --no-x ] && continue # of any switch
        checked=$((checked + 1))
        if ! grep -qxe "$flag" <<<"$known"; then
            failures=$((failures + 1))
            echo "FAILED: a text in $glob names $flag, which is a flag of none of $*"
        fi
    done
}

check 'src/train/*.c' train_cv pretrain predict flim_info fold_metrics
check 'src/plan/*.c' gpu_plan train_cv
check 'src/cpu/*/*.c src/backend/*.c cuda/*/*.c cuda/*/*.cu' train_cv predict
check 'src/data/*.c src/data/hdf5/*.c' train_cv predict flim_info flim_repack flim_simulate
check 'src/import/*.c' flim_import
check 'src/cv/*.c src/cv/*/*.c src/net/*.c src/formats/*.c' train_cv
check 'src/config/*.c' train_cv pretrain
check 'src/export/*.c' flim_export train_cv
check 'src/results/*.c src/report/evaluate_runs.c src/report/read_runs.c src/report/compare_runs.c src/report/report_tables.c' fold_metrics train_cv

echo "$checked flags looked up, $failures do not exist"
[ "$failures" = 0 ] && [ "$checked" -ge 20 ]
