#!/usr/bin/env bash
# One split by named groups or by a file, and cells that are left out by --fraction and --exclude: from flim_info's table to a
# summary, resumed to equal bytes; and what is refused.
# Usage: test_one_split.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
train=$build/train_cv
options=(--preset tiny --epochs 2 --batch 16 --lr 1e-3 "${device[@]}" --workers 2)
json() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))" "$@"; }
groups_of() { # groups_of RUN: those that are tested
    tail -n +2 "$1/fold_0/predictions.csv" | cut -d, -f3 | sort -u | tr '\n' ' '
}

# ---- named groups
call 0 "$train" --data k.h5 "${options[@]}" --train-groups donor_1,donor_2,donor_3 --val-groups donor_4 --test-groups donor_6 --out named
check "only what was named is tested" test "$(groups_of named)" = "donor_6 "
check "one fold, 36 + 12 + 12 cells, 12 unused" test "$(json named/splits.json '[len(d["folds"])] + [len(d["folds"][0][p]) for p in ("train","val","test")] + [len(d["unused"])]')" = "[1, 36, 12, 12, 12]"
check "the table says that it is one split" grep -q "one split (group)" out
check "the simple models have been fitted to it" test "$(wc -l <named/baseline_decay.csv)" = 13
check "the mean of one fold is its value, its sd undefined" python3 -c '
import json
d = json.load(open("named/summary.json"))
assert d["mean"]["accuracy"] == d["folds"][0]["metrics"]["accuracy"] == d["pooled"]["accuracy"] and d["sd"]["accuracy"] is None'
call 0 "$build/fold_metrics" named --csv m.csv
check "fold_metrics shows it" grep -q "^named,fold 0,36,12,12," m.csv
call 143 env FLIM_AIM=train:4:15 "$faulty" --data k.h5 "${options[@]}" --train-groups donor_1 --train-groups donor_2 --train-groups donor_3 \
    --val-groups donor_4 --test-groups donor_6 --out again
call 0 "$train" --resume --out again
check "repeated flags mean the same; resumed, the files are those" test "$(digest again)" = "$(digest named)"
call 0 "$train" --data k.h5 "${options[@]}" --test-groups donor_5,donor_6 --dry-run
check "all others train, less a validation set" grep -qE "^ +0 +train +36 |^ *0  train +(24|36)" out

# ---- the same split as a file, with or without the word folds
python3 - <<'PY'
import json
f = json.load(open("named/splits.json"))["folds"][0]
json.dump(f, open("one.json", "w"))
json.dump({"folds": [f]}, open("folds.json", "w"))
PY
for file in one folds; do
    call 0 "$train" --data k.h5 "${options[@]}" --splits $file.json --out $file
    check "$file.json: the same predictions" cmp $file/fold_0/predictions.csv named/fold_0/predictions.csv
done
call 0 "$train" --data k.h5 "${options[@]}" --splits one.json --final --refit --out all
check "its final model learns from the 60 cells that it names" test "$(json all/final/summary.json 'd["n_train"]')" = 60

# ---- left out: cells that flim_info's table shows as dim; the rest is as a file without them
call 0 "$build/flim_info" k.h5 --cells cells.csv
check "a row per cell" test "$(wc -l <cells.csv)" = 73
dim=10
(head -1 cells.csv && tail -n +2 cells.csv | sort -t, -k6,6n | head -$dim) >dim.csv
tail -n +2 dim.csv | cut -d, -f2 >dim.txt
call 0 "$train" --data k.h5 "${options[@]}" --folds 2 --cv stratified --exclude dim.csv --out rows
check "it is said how many" grep -q "$((72 - dim)) of 72 cells are used: $dim left out by --exclude, 0 by --fraction" out
check "none of them is tested" test "$(cat rows/fold_*/predictions.csv | grep -v index | cut -d, -f1 | sort | comm -12 - <(tail -n +2 dim.csv | cut -d, -f1 | sort) | wc -l)" = 0
check "all others are" test "$(cat rows/fold_*/predictions.csv | grep -cv index)" = $((72 - dim))
call 0 "$train" --data k.h5 "${options[@]}" --folds 2 --cv stratified --exclude dim.txt --out names
check "by name or by row, they are the same" test "$(digest names)" = "$(digest rows)"
rm dim.txt
call 0 "$train" --resume --out names
check "a resumed run needs the list no more" test "$(digest names)" = "$(digest rows)"
call 2 "$train" --resume --resume-override --out names --exclude dim.csv
says "this cannot be overridden"

# ---- a share of each class
call 143 env FLIM_AIM=train:3:15 "$faulty" --data k.h5 "${options[@]}" --folds 2 --cv stratified --fraction 0.5 --exclude dim.csv --tta --out half
call 0 "$train" --resume --out half
call 0 "$train" --data k.h5 "${options[@]}" --folds 2 --cv stratified --fraction 0.5 --exclude dim.csv --tta --out whole
mkdir elsewhere && cp whole/fold_0/best.safetensors elsewhere/w.safetensors
call 0 "$build/predict" --model elsewhere/w.safetensors --data k.h5 --out copied.csv
call 0 "$build/predict" --model whole/fold_0/best.safetensors --data k.h5 --out in_place.csv
logits() { cut -d, -f1,6,7 "$1"; }
check "a copy of the weights averages over the symmetries, as the run did" cmp <(logits copied.csv) <(logits in_place.csv)
check "resumed, a fraction's files are those of an undisturbed run" test "$(digest half)" = "$(digest whole)"
check "half of each class, rounded" python3 - <<'PY'
import collections, csv, json
rows = {int(r["index"]): r["label"] for r in csv.DictReader(open("cells.csv"))}
dim = {int(r["index"]) for r in csv.DictReader(open("dim.csv"))}
d = json.load(open("whole/splits.json"))
used = [c for f in d["folds"] for c in f["test"]]
assert not dim & set(used) and len(used) + len(d["unused"]) == 72
had, has = (collections.Counter(rows[c] for c in cells) for cells in ([c for c in rows if c not in dim], used))
assert all(has[c] == int(had[c] / 2 + 0.5) for c in had), (had, has)
PY

# ---- calibrated and corrected scores are what the fold's numbers make of its logits
check "pooled scores by hand" python3 - <<'PY'
import csv, json, math
run = json.load(open("rows/summary.json"))
loss = {"pooled": 0.0, "pooled_calibrated": 0.0, "pooled_prior_corrected": 0.0}
n = right = 0
for fold in run["folds"]:
    c, p = fold["calibration"], fold["prior_shift"]
    assert p["uses_unlabelled_test_cells"] is True and "fewer than 100" in p["note"]
    own = {"plain": 0.0, "after": 0.0}
    rows = list(csv.DictReader(open("rows/fold_%d/predictions.csv" % fold["fold"])))
    for r in rows:
        z, y = float(r["logit_1"]), int(r["label"])
        a = z / c["temperature"] + c["bias"][1] - c["bias"][0]
        s, t = p["prior_of_the_validation_part"], [max(x, 1e-12) for x in p["estimated_prior"]]
        b = a + math.log(t[1] / s[1]) - math.log(t[0] / s[0])
        for k, x in zip(loss, (z, a, b)):
            loss[k] += math.log1p(math.exp(-x if y else x))
        own["plain"] += math.log1p(math.exp(-z if y else z)) / len(rows)
        own["after"] += math.log1p(math.exp(-a if y else a)) / len(rows)
        right += (b > 0) == y
        n += 1
    assert abs(own["plain"] - c["before"]["log_loss"]) < 1e-6 and abs(own["after"] - c["after"]["log_loss"]) < 1e-6
for k in loss:
    assert abs(loss[k] / n - run[k]["log_loss"]) < 1e-5 * max(1, loss[k] / n), (k, loss[k] / n, run[k]["log_loss"])
assert abs(right / n - run["pooled_prior_corrected"]["accuracy"]) < 1e-9
PY

# ---- what is refused
refused() { # refused TEXT ARGS...
    local text=$1
    shift
    rm -rf bad
    call 2 "$train" --data k.h5 "${options[@]}" --out bad "$@"
    says "$text"
    check "no run is left behind by $*" test ! -e bad/config.yaml
}
refused "leave --folds out" --test-groups donor_6 --folds 3
refused "leave --cv out" --test-groups donor_6 --cv group
refused "leave --splits out" --test-groups donor_6 --splits one.json
refused "--train-groups needs --test-groups" --train-groups donor_1
refused "--val-groups needs --test-groups" --val-groups donor_1
refused "test_groups 'donor_7': no such group" --test-groups donor_6,donor_7
refused "named by holdout_group and by test_groups" --test-groups donor_6 --holdout-group donor_6
refused "no group is left to train on" --test-groups donor_1,donor_2,donor_3,donor_4,donor_5,donor_6
echo nobody >list
refused "list:1: 'nobody'" --exclude list
refused "fraction" --fraction 0
refused "--fold 1: there are 1 folds" --test-groups donor_6 --fold 1
seq 0 71 >list
refused "no cells" --exclude list
call 2 "$build/flim_info" k.h5 k.h5 --cells c.csv
says "--together"
finish
