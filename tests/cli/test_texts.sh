#!/usr/bin/env bash
# Names from data files and configs in every output: no byte that a terminal acts on, one encoding (UTF-8), names whole in the plots.
# Usage: test_texts.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

raw() { # a file with bytes that a terminal acts on, or that are no UTF-8
    grep -qaP '[\x00-\x08\x0b-\x1f\x7f]' "$1" && return 0
    iconv -f utf8 -t utf8 "$1" >utf8 2>/dev/null || return 0
    grep -qaP '\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]' utf8
}
clean() { # clean FILE...
    for file in "$@"; do
        check "$file holds nothing that a terminal acts on" bash -c "$(declare -f raw); ! raw '$file'"
    done
}

# ---- configs, flags, paths
esc=$(printf '\033]0;x\007\302\2332J\342\200\256')
printf '"\\e]0;x\\a\\x9b": 1\n' >k.yaml
call 2 "$build/train_cv" --config k.yaml
clean err
says '\x1b]0;x\x07\x9b'
for arguments in "--$esc 1" "--set $esc=1" "--cv $esc" "--data $esc.h5 --dry-run" "--epochs $esc" "$esc"; do
    read -ra words <<<"$arguments"
    "$build/train_cv" "${words[@]}" >out 2>err </dev/null
    check "an error: $(head -c 80 err | cat -v)" test -s err
    clean err out
done
for program in predict fold_metrics flim_info flim_repack flim_simulate gpu_plan flim_bench; do
    "$build/$program" "--$esc" >out 2>err </dev/null
    check "$program says something" test -s err
    clean err out
    "$build/$program" "$esc" "$esc" >out 2>err </dev/null
    clean err
done
long=$(printf 'ü%.0s' $(seq 1500)) # an error is cut between two characters
call 2 "$build/train_cv" --cv "$long"
clean err
call 2 "$build/train_cv" "x--$long"
clean err

# ---- data
if ! /usr/bin/python3 - <<'EOF'; then
import h5py, numpy as np
rng = np.random.default_rng(0)
n = 60
with h5py.File("n.h5", "w") as f:
    f["counts"] = rng.poisson(3, (n, 8, 7, 7)).astype("u1")
    f["label"] = (np.arange(n) % 2).astype("u1")
    names = ["'q'", "a''b", "50% `touch ran`", "=1+1", "M\u00fcller " + "\u00fc" * 30, "e\x1b]0;x\x07s"]
    f.create_dataset("group", data=np.array([names[i // 10].encode("latin-1") for i in range(n)], dtype="S60"))
    f.create_dataset("name", data=np.array([b"c\xe9ll%d" % i for i in range(n)], dtype="S12"))
    f.attrs["class_names"] = np.array([b"'healthy'", b"|<b>c\xe9\x9b2J\x1b[31m"], dtype="S20")
EOF
    echo "left out: names of data files, without h5py"
    finish
    exit
fi
call 0 "$build/train_cv" --data n.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --out r
clean out err r/train.log r/summary.json r/splits.json r/config.yaml r/resume.json r/summary.csv
check "names come out as UTF-8" grep -q 'céll30' r/fold_0/predictions.csv r/fold_1/predictions.csv
check "predictions.csv is UTF-8" bash -c 'iconv -f utf8 -t utf8 r/fold_0/predictions.csv r/fold_1/predictions.csv'
check "no field is a formula" bash -c "! grep -hE '(^|,)=' r/fold_*/predictions.csv && grep -hq \",'=1+1,\" r/fold_*/predictions.csv"
call 0 "$build/flim_info" n.h5 --json info.json
clean out err info.json
call 0 "$build/train_cv" --data n.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --out h --holdout-group "Müller $(printf 'ü%.0s' $(seq 30))"
check "a group in Latin-1 is named as a person writes it" grep -q "holdout" h/splits.json
call 0 "$build/fold_metrics" r --replicates 10 --md a.md --csv a.csv --json a.json
clean out err a.md a.csv a.json
check "the groups are found again in predictions.csv: $(grep -c '=1+1' out)" grep -q ' =1+1$' out
if command -v gnuplot >/dev/null; then
    call 0 "$build/fold_metrics" r --replicates 10 --html a.html
    clean a.html
    check "no tag of a name is one" bash -c "! grep -q '|<b>' a.html"
    /usr/bin/python3 - >labels <<'EOF'
import base64, html, re
page = open("a.html", encoding="utf-8").read()
for svg in re.findall(r'data:image/svg\+xml;base64,([^"]+)', page):
    for text in re.findall(r"<text>(?:<tspan[^>]*>)?([^<]*)", base64.b64decode(svg).decode("utf-8")):
        print(html.unescape(text))
EOF
    for label in "'healthy'" '|<b>cé\x9b2J\x1b[31m' "'q'" "a''b" '50% `touch ran`' '=1+1' 'Müller üüüüüüüüüüüüüüüü…' 'e\x1b]0;x\x07s'; do
        check "the plots name $label" grep -qxF -- "$label" labels
    done
    check "nothing was run" test ! -e ran
fi
finish
