#!/usr/bin/env bash
# The guides hold: every command of their code blocks and every flag in the text is looked up in the program's own help; every command
# that needs no card is run as it stands, on small data, and must end well; what troubleshooting.md quotes was printed.
# Usage: test_guides.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
docs=$top/docs
programs=(train_cv predict fold_metrics flim_info flim_repack flim_simulate flim_import flim_export gpu_plan flim_bench)
commands=0 flags=0

# ---- flags

flags_of() { # program [command]: its flags, --no-x for each switch, one a line
    "$build/$1" "${@:2}" --help 2>/dev/null | grep -oE -- '--(\[no-\])?[a-z][a-z0-9-]+' | sed -E 's/^--\[no-\](.*)/--\1\n--no-\1/' | sort -u
}

look_up() { # where, flag, known flags
    flags=$((flags + 1))
    grep -qxe "$2" <<<"$3" || fail "$1 names $2, which is no flag there"
}

blocks() { # guide: the lines of its code blocks without their comments
    awk '/^```/ { inside = !inside; next } inside' "$docs/$1.md" | sed -E 's/ +#.*//'
}

every=$(for program in "${programs[@]}"; do flags_of "$program"; done; for c in step loader memory layers; do flags_of flim_bench "$c"; done)
guides=(tutorial troubleshooting exports gpu-guide)
for guide in "${guides[@]}"; do
    [ -f "$docs/$guide.md" ] || { fail "there is no docs/$guide.md"; continue; }
    while read -r program rest; do
        [[ " ${programs[*]} " = *" $program "* ]] || continue
        commands=$((commands + 1))
        of=()
        [ "$program" = flim_bench ] && of=("${rest%% *}")
        list=$(flags_of "$program" "${of[@]}")
        for flag in $(grep -oE -- '--[a-z][a-z0-9-]+' <<<"$rest"); do
            look_up "$guide.md, $program" "$flag" "$list"
        done
    done < <(blocks "$guide")
    for flag in $(awk '/^```/ { inside = !inside; next } !inside' "$docs/$guide.md" | grep -oE -- '`[^`]*`' | grep -oE -- '--[a-z][a-z0-9-]+'); do
        look_up "$guide.md" "$flag" "$every"
    done
done
echo "$commands commands, $flags flags looked up"
[ "$commands" -ge 20 ] || fail "only $commands commands were found"

# ---- commands

export PATH=$build:$PATH
small=(--cells 30 --donors 6 --bins 16 --height 9 --width 9)
said=$work/said # all that was printed
ran=0
: >"$said"

run() { # command line of a guide: with what makes it small after it
    local line=$1 words want=0
    read -ra words <<<"$line"
    case ${words[0]} in
        flim_simulate) words+=("${small[@]}") ;;
        train_cv)
            [[ $line = *--dry-run* || $line = *--resume* ]] || words+=(--epochs 4 --device cpu --workers 2)
            [[ $line = *--out* || $line = *--dry-run* ]] || words+=(--out "runs/trial_$ran")
            [[ $line != *--precision\ bf16* ]] || want=2 ;; # no card: refused by name
        flim_bench) words+=(--bins 16 --pixels 9 --steps 1 --warmup 0) ;;
        gpu_plan) "$build/gpu_plan" --gpu L4 2>&1 | grep -q 'needs a build with CUDA' && want=4 ;;
        flim_export) "$build/flim_export" none --onnx none.onnx 2>&1 | grep -q protobuf-c && want=2 ;;
        fold_metrics) [[ $line != *--html* ]] || command -v gnuplot >/dev/null || return 0 ;;
    esac
    ran=$((ran + 1))
    call "$want" "${words[@]}"
    { echo "\$ ${words[*]}"; cat ../out ../err; } >>"$said"
}

mkdir -p guide/data guide/fields/donor_{1,2}
cd guide || exit 1
for donor in 1 2; do # two .npy files of each class, uint16 (16,4,4): the header is padded to 128 bytes
    for name in rest_a rest_b act_a act_b; do
        { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (16, 4, 4), }"
            head -c 512 /dev/zero | tr '\0' '\1'; } >"fields/donor_$donor/$name.npy"
    done
done
flim_simulate --out data/flim.h5 "${small[@]}" >/dev/null
cp data/flim.h5 NEW.h5
train_cv --data data/flim.h5 --preset nano --folds 2 --epochs 2 --batch 8 --out runs/NAME --quiet --device cpu >/dev/null 2>&1
code=$?
if [ "$code" = 4 ]; then
    echo "left out: the commands, which are run on the CPU (this build has no CPU backend)"
    finish
    exit
fi
[ "$code" = 0 ] || fail "runs/NAME: exit code $code"
for guide in "${guides[@]}"; do
    while read -r line; do
        [[ " ${programs[*]} " = *" ${line%% *} "* ]] || continue
        [[ $line != *--device\ cuda* && $line != *--auto* ]] || continue # of a card that is there
        run "${line/ .../ --data data/flim.h5 --preset nano --folds 2 --fold 0 --batch 8}"
    done < <(blocks "$guide")
done
check "fields are in the file that the tutorial makes" grep -qF '8 cells of (16,4,4) from 8 files, 2 groups, 2 classes' "$said"
echo "$ran commands run"
[ "$ran" -ge 20 ] || fail "only $ran commands were run"

# ---- what troubleshooting.md quotes: these calls print it

also() { # command: whatever it ends with
    { echo "\$ $*"; "$@" </dev/null 2>&1; } >>"$said"
}
tiny=(--data data/flim.h5 --preset nano --folds 2 --fold 0 --batch 8 --epochs 1 --device cpu --workers 2)
also train_cv --data nothere.h5 --device cpu
also train_cv --data runs/NAME/fold_0/predictions.csv --device cpu
also train_cv --resume --out runs/none
also train_cv "${tiny[@]}" --device auto --out runs/time
also train_cv "${tiny[@]}" --lr 1e30 --epochs 4 --out runs/not_finite
also train_cv "${tiny[@]}" --cv stratified --dry-run
flim_simulate --out dim.h5 "${small[@]}" --cells 60 --confound photons:3 >/dev/null 2>&1
also train_cv "${tiny[@]}" --data dim.h5 --fold 1 --out runs/dim
flim_simulate --out other.h5 "${small[@]}" --seed 9 >/dev/null
also fold_metrics runs/NAME --errors --data other.h5
flim_simulate --out large.h5 --cells 30 --donors 6 >/dev/null
# Sanitizers take more than this to start.
[ -n "${FLIM_SHORT:-}" ] || (ulimit -v 1000000 && also train_cv --data large.h5 --preset base --folds 2 --fold 0 --batch 16 --epochs 1 --device cpu --workers 2 --out runs/large)
cat "$top/src/train/device_load.c" >>"$said" # what only a card makes a program print
quotations=0
while read -r quoted; do # spans of several words that are no command and no flag
    [[ -z ${FLIM_SHORT:-} || $quoted != *host\ memory* && $quoted != *are\ free* ]] || continue
    [[ $quoted != *GPU* && $quoted != *device\ memory* ]] || continue # of a card
    quotations=$((quotations + 1))
    # Numbers, names of files and lists are others here.
    expression=$(sed -E 's/[][().*+?^$|{}\\]/\\&/g; s/(\\\.){3}/.*/g; s/[0-9]+((\\\.|,)[0-9]+)*/[0-9.,]+/g; s/(runs\/)?[a-z]+\\.h5/[^ ]+/g' <<<"$quoted")
    check "some program prints '$quoted'" grep -qiE -- "$expression" "$said"
done < <(awk '/^```/ { inside = !inside; next } !inside' "$docs/troubleshooting.md" | grep -oE '`[^`]*`' | tr -d '`' | grep -E ' .* ' | grep -vE '^(-|[a-z]+_[a-z]+ )' | sort -u)
echo "$quotations quotations looked for"
[ "$quotations" -ge 8 ] || fail "only $quotations quotations were found"
cd "$work" || exit 1
finish
