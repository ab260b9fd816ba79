#!/usr/bin/env bash
# fold_metrics --errors: its counts and means against plain sums by awk over predictions.csv and flim_info --cells; and runs in which one
# figure of the cells decides which of them are wrong, so that the table must rank it first.
# Usage: test_errors.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

errors() { call "$1" "$build/fold_metrics" run --errors --replicates 0 "${@:2}"; } # errors EXPECTED_EXIT ARGS...

simulate d.h5 --cells 120 --bins 32 --photons 1500 --donor-t0 3 --donor-background 8
"$build/train_cv" --data d.h5 --preset tiny --folds 3 --epochs 2 --batch 16 --device cpu --workers 2 --out run >log 2>&1
code=$?
[ "$code" = 4 ] && { echo "skipped: no CPU backend"; exit 77; }
[ "$code" = 0 ] || { echo "FAILED: train_cv exited with $code"; tail -3 log; exit 1; }
"$build/flim_info" d.h5 --cells cells.csv >/dev/null || exit 1

# Makes the cells wrong that a rule on cells.csv names, a third of them all: those with the least (or most: -gr) of a column.
make_wrong() { # make_wrong COLUMN ORDER: wrong.txt has their indices
    tail -n +2 cells.csv | sort -s -t, -k"$1,$1$2" | head -40 | cut -d, -f1 >wrong.txt
    take_wrong wrong.txt
}
take_wrong() { # take_wrong FILE: exactly the cells in it are predicted wrongly
    for file in run/fold_*/predictions.csv; do
        awk -F, -v OFS=, 'NR == FNR { wrong[$1]; next } FNR > 1 { $5 = $1 in wrong ? 1 - $4 : $4 } 1' "$1" "$file" >new && mv new "$file"
    done
}

field() { awk -F, -v table="$1" -v row="$2" -v class="$3" -v at="$4" '$3 == table && $2 == row && $4 == class { print $at; exit }' e.csv; }

# ---- every figure is found where it is the cause; column of cells.csv, its name
column() { head -1 cells.csv | tr , '\n' | grep -nx "$1" | cut -d: -f1; }
for figure in photons mask_pixels peak_bin background_per_bin snr lifetime_ns spread_pixels; do
    for order in g gr; do
        make_wrong "$(column "$figure")" "$order"
        errors 0 --csv e.csv
        first=$(awk -F, '$3 == "difference" && $4 == "" { print $2; exit }' e.csv)
        # The simulated cells are discs: their area and their spread are one thing.
        [[ $figure =~ mask_pixels|spread_pixels && $first =~ mask_pixels|spread_pixels ]] && first=$figure
        check "$figure decides ($order), and the table has $first first" test "$first" = "$figure"
        check "the sentence under the tables names it" grep -qE "separates wrong from right cells most: .*, $([ $order = g ] && echo lower || echo higher) in wrong" out
        g=$(field difference "$figure" "" 23)
        check "wrong cells have $([ $order = g ] && echo less || echo more): g = $g" test "$(awk -v g="$g" -v o=$order 'BEGIN { print (o == "g") == (g < 0) }')" = 1
    done
done

# ---- a figure that only differs between the classes: all errors are in one class, at random
tail -n +2 cells.csv | awk -F, '$5 == "activated" && $1 % 3 { print $1 }' >random.txt
tail -n +2 cells.csv | awk -F, '$5 == "quiescent" && $1 % 20 == 0 { print $1 }' >>random.txt
take_wrong random.txt
errors 0
check "the class's own lifetime is not taken for a cause" grep -qE "cells most: lifetime, ns, lower in wrong ones .*It does so in no class alone" out

# ---- a figure that only differs between the groups: the later half of the donors, whose decays begin later, has the errors, at random
tail -n +2 cells.csv | awk -F, '($3 ~ /donor_[456]/ && $1 % 2) || ($3 !~ /donor_[456]/ && $1 % 16 < 2) { print $1 }' >random.txt
take_wrong random.txt
errors 0
check "a donor's own peak bin is not taken for a cause" grep -qE "cells most: (peak bin|background), higher in wrong ones .*Within most groups it does not" out

# ---- counts and means are exact
make_wrong "$(column photons)" g
errors 0 --csv e.csv
for class in 0 1; do
    kind=(TN FP) name=quiescent
    [ "$class" = 1 ] && kind=(TP FN) name=activated
    for right in 1 0; do
        want=$(cat run/fold_*/predictions.csv | awk -F, -v c=$class -v r=$right '$4 == c && ($5 == c) == r' | wc -l)
        check "${kind[1 - right]}: $want cells" test "$(field outcome "${kind[1 - right]}" "$name" 6)" = "$want"
    done
done
moments() { # moments WRONG: n, mean and sd of the photons of cells that are wrong (1) or right (0)
    awk -F, -v want="$1" 'NR == FNR { wrong[$1]; next } FNR > 1 && ($1 in wrong) == want { n++; s += $6; q += $6 * $6 }
        END { printf "%d %.6g %.6g\n", n, s / n, sqrt((q - s * s / n) / (n - 1)) }' wrong.txt cells.csv
}
of_csv() { echo "$(field difference photons "" "$1") $(printf %.6g "$(field difference photons "" $(($1 + 1)))") $(printf %.6g "$(field difference photons "" $(($1 + 2)))")"; }
check "wrong cells: $(moments 1), in the table $(of_csv 17)" test "$(moments 1)" = "$(of_csv 17)"
check "right cells: $(moments 0), in the table $(of_csv 20)" test "$(moments 0)" = "$(of_csv 20)"
check "groups come to all wrong cells" test "$(awk -F, '$3 == "group" { n += $7; m += $8 + $9 + $10 + $11 } END { print n, m }' e.csv)" = "40 120"
check "every row has as many fields as the head" test "$(awk -F, '{ print NF }' e.csv | sort -u | wc -l)" = 1

# ---- the other forms say the same
errors 0 --json e.json --md e.md
check "training against validation: each fold's figures are those of history.csv, and the verdicts those of the rule" python3 - <<'PY'
import csv, json, math
run = json.load(open("e.json"))["runs"][0]
fits = run["errors"]["training_against_validation"]
splits = json.load(open("run/splits.json"))["folds"]
rows = list(csv.DictReader(open("e.csv")))
def close(a, b): return abs(a - b) < 1e-8 * max(1, abs(b))
for fit, fold in zip(fits, run["folds"]):
    history = {int(r["epoch"]): r for r in csv.DictReader(open("run/fold_%d/history.csv" % fit["fold"]))}
    assert fit["chosen_epoch"]["epoch"] == fold["best_epoch"] and fit["last_epoch"]["epoch"] == max(history)
    for point in "chosen_epoch", "last_epoch":
        for key in "train_loss", "val_loss", "train_accuracy", "val_accuracy":
            assert close(fit[point][key], float(history[int(fit[point]["epoch"])][key])), (fit, point, key)
    n, c = len(splits[fit["fold"]]["val"]), fit["chosen_epoch"]
    share = (c["val_accuracy"] * n + 2) / (n + 4)
    gap, se = c["train_accuracy"] - c["val_accuracy"], math.sqrt(share * (1 - share) / (n + 4))
    want = ("underfits" if fit["last_epoch"]["train_accuracy"] < fit["most_common_class"] + 0.05
            else "overfits" if gap >= 0.1 and gap >= 2 * se else "sound")
    assert close(fit["accuracy_gap"], gap) and close(fit["gap_se"], se) and fit["verdict"] == want, fit
    mine = [r for r in rows if r["fold"] == str(fit["fold"])]
    assert [r["table"] for r in mine] == ["fit at the chosen epoch", "fit at the last epoch"] and mine[0]["row"] == want, mine
    assert close(float(mine[0]["accuracy_gap"]), gap) and close(float(mine[1]["val_loss"]), fit["last_epoch"]["val_loss"]), mine
assert len(fits) == 4 and fits[3]["fold"] is None
assert close(fits[3]["accuracy_gap"], sum(f["accuracy_gap"] for f in fits[:3]) / 3), fits
PY
cp run/config.yaml kept.yaml
for sampler in balanced class-group natural group-balanced; do
    sed "s/^sampler: .*/sampler: $sampler/" kept.yaml >run/config.yaml
    errors 0 --json s.json
    check "what is common to training by --sampler $sampler" python3 - "$sampler" <<'PY'
import json, sys
run = json.load(open("s.json"))["runs"][0]
cells = [sum(row) for row in run["confusion"]]
want = 0.5 if sys.argv[1] in ("balanced", "class-group") else max(cells) / sum(cells)
assert all(abs(f["most_common_class"] - want) < 1e-12 for f in run["errors"]["training_against_validation"]), want
assert want == 0.5 or want > 0.6
PY
done
cp kept.yaml run/config.yaml
errors 0
check "the terminal has a row per fold and their mean" test "$(grep -cE '^    (fold [0-9]|mean) .* (overfits|underfits|sound\*?|unknown)$' out)" = 4
check "so has Markdown" test "$(grep -cE '^\| (fold [0-9]|mean) \|.* (overfits|underfits|sound|unknown) \|$' e.md)" = 4
check "JSON: the number of tests" grep -q '"tests": 21' e.json
check "Markdown: $(grep -c '^| ' e.md) rows" grep -q '^40 of 120 cells are predicted wrongly. What separates' e.md
errors 0
check "the terminal says by what p is adjusted" grep -q "p Holm: allows for all 21 tests" out
check "lines fit 80 columns" test "$(sed -n '/^  errors: /,/separates wrong/p' out | sed '$d' | awk '{ print length($0) }' | sort -n | tail -1)" -le 80
call 0 "$build/fold_metrics" run --replicates 0 --json plain.json
check "without --errors nothing is said of them" test "$(grep -c 'errors' out plain.json | grep -vc ':0')" = 0

if command -v gnuplot >/dev/null; then
    errors 0 --html e.html
    check "the page has training against validation" grep -q 'Training against validation' e.html
    check "the page has the sentence and a row per test" test "$(grep -c 'separates wrong from right cells most\|<td>[0-9]*/[0-9]*</td>' e.html)" = 22
fi

# ---- errors and pictures read the data once; what children have read counts for the shell that waited for them
bytes_read() { bash -c '"$@" >/dev/null 2>&1; awk "/^rchar/ { print \$2 }" /proc/$$/io' _ "$build/fold_metrics" run --replicates 0 "$@"; }
if command -v gnuplot >/dev/null && [ -r /proc/self/io ]; then
    simulate big.h5 --cells 120 --bins 128 --photons 20000 --donor-t0 3 --donor-background 8
    "$build/train_cv" --data big.h5 --preset nano --folds 2 --epochs 1 --batch 16 --device cpu --workers 2 --fold 0 --out once >/dev/null 2>&1
    mv run kept && mv once run
    none=$(bytes_read --html p.html --no-pictures) once=$(bytes_read --html p.html) both=$(bytes_read --html p.html --errors)
    check "--errors --html reads what --html reads ($none bytes without pictures, $once with, $both with errors, too)" \
        test $((2 * (both - none))) -lt $((3 * (once - none)))
    mv run once && mv kept run
fi

# ---- no data, no errors
mv d.h5 moved.h5
errors 0 --json e.json
check "the tables say that the data is missing, and what to do" grep -q "no photons, lifetimes, .*d.h5.*--data" out
check "what predictions alone give is there" grep -qE "^    FN +activated +[0-9]+ +0\.[0-9]{3} " out
check "JSON: the reason" grep -q '"no_differences_because": ".*d.h5' e.json
errors 0 --data moved.h5
check "data that has moved can be named" grep -q "separates wrong from right cells most" out
simulate other.h5 --cells 120 --bins 32 --seed 4
errors 0 --data other.h5
check "other data is refused" grep -q "not the data of the run" out
for file in run/fold_*/predictions.csv; do
    awk -F, -v OFS=, 'FNR > 1 { $5 = $4 } 1' "$file" >new && mv new "$file"
done
errors 0 --data moved.h5
check "a run without errors has none" grep -q "No cell is predicted wrongly" out
finish
