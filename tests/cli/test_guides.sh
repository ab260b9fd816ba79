#!/usr/bin/env bash
# The guides name only commands and flags that exist: every command line of their code blocks is looked up in the program's own help, and
# so is every flag in the text between.
# Usage: test_guides.sh BUILD_DIR
set -u
build=$(cd "$1" && pwd) || exit 1
docs=$(cd "$(dirname "$0")/../../docs" && pwd) || exit 1
programs=(train_cv predict fold_metrics flim_info flim_repack flim_simulate flim_import gpu_plan flim_bench)
failures=0 commands=0 flags=0

flags_of() { # program [command]: its flags, --no-x for each switch, one a line
    "$build/$1" "${@:2}" --help 2>/dev/null | grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]+' | sed -E 's/^--\[no-\](.*)/--\1\n--no-\1/' | sort -u
}

look_up() { # where, flag, known flags
    flags=$((flags + 1))
    grep -qxe "$2" <<<"$3" || { failures=$((failures + 1)); echo "FAILED: $1 names $2, which is no flag there"; }
}

every=$(for program in "${programs[@]}"; do flags_of "$program"; done; for c in step loader memory layers; do flags_of flim_bench "$c"; done)
for guide in troubleshooting tutorial gpu-guide; do
    [ -f "$docs/$guide.md" ] || { failures=$((failures + 1)); echo "FAILED: there is no docs/$guide.md"; continue; }
    while read -r program rest; do
        for known in "${programs[@]}"; do
            [ "$program" = "$known" ] || continue
            commands=$((commands + 1))
            of=()
            [ "$program" = flim_bench ] && of=("${rest%% *}")
            list=$(flags_of "$program" "${of[@]}")
            for flag in $(sed 's/ #.*//' <<<"$rest" | grep -oE -- '--[a-z][a-z0-9-]+'); do
                look_up "$guide.md, $program" "$flag" "$list"
            done
        done
    done < <(awk '/^```/ { inside = !inside; next } inside' "$docs/$guide.md")
    for flag in $(awk '/^```/ { inside = !inside; next } !inside' "$docs/$guide.md" | grep -oE -- '`[^`]*`' | grep -oE -- '--[a-z][a-z0-9-]+'); do
        look_up "$guide.md" "$flag" "$every"
    done
done
echo "$commands commands, $flags flags looked up, $failures do not exist"
[ "$failures" = 0 ] && [ "$commands" -ge 10 ]
