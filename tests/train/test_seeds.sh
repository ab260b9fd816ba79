#!/usr/bin/env bash
# --seeds: each run is the one of its seed alone, by one process, by workers and after an interruption; the summary over seeds against
# the formulas of src/results/repeated.h, written once more in Python; fold_metrics computes it anew.
# Usage: test_seeds.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
export OMP_NUM_THREADS=1
simulate k.h5
train=$build/train_cv
options=(--data k.h5 --preset tiny --folds 3 --epochs 2 --batch 16 --lr 1e-3 --workers 1 "${device[@]}")
all() { for s in 1 2 5; do digest "$1/seed_$s"; done; sha256sum "$1/summary.json" "$1/summary.csv" | cut -d' ' -f1; }

call 0 "$train" "${options[@]}" --seeds 1-2,5 --out s
cp out first.out
check "the summary is told" grep -q "^Test-set metrics, 3 of 3 seeds, 9 of 9 folds" out
check "and where it is" grep -qx "Results of all seeds: s" out
call 0 "$train" "${options[@]}" --seed 5 --out alone
check "a run of the list is the run of its seed" test "$(digest alone)" = "$(digest s/seed_5)"
want=$(all s)

call 0 "$train" "${options[@]}" --seeds 1-2,5 --jobs 2 --out w
check "workers end in the same files" test "$(all w)" = "$want"
check "and sum up once" test "$(grep -c '^Test-set metrics, 3 of 3 seeds' out)" = 1
check "after one table per seed" test "$(grep -c '^Test-set metrics, 3 of 3 folds' out)" = 3

# ---- stopped and resumed
FLIM_AIM=line=Seed\ 2:1:15 call 143 "$faulty" "${options[@]}" --seeds 1-2,5 --out i
check "a run that was not begun is none" test ! -e i/seed_5
call 0 "$train" --resume --out i
check "resumed without the list it ends in the same files" test "$(all i)" = "$want"
call 0 "$train" "${options[@]}" --seeds 1-2,5 --resume-or-start --out i
check "the first call once more changes nothing" test "$(all i)" = "$want"

# ---- what is refused
call 2 "$train" "${options[@]}" --seeds 1-2,5 --out s
says "s already contains a run"
call 2 "$train" "${options[@]}" --seeds 1-3 --resume-or-start --out s
says "s was started with other seeds"
call 2 "$train" "${options[@]}" --seeds 1-2 --resume-or-start --out alone
says "alone has a run of one seed"
call 2 "$train" "${options[@]}" --seeds 1-2 --seed 3 --out n
says "--seed and --seeds both say what the seed is"
call 2 "$train" --resume --epochs 9 --out s
says "epochs (run: 2, this call: 9)"
for list in 1-1000000 3-1 1,1 x "1,"; do
    call 2 "$train" "${options[@]}" --seeds $list --out n
done
check "nothing is left of them" test ! -e n

# ---- the figures
cat >figures.py <<'PY'
import json, math, sys
top = json.load(open(sys.argv[1] + "/summary.json"))
runs = [json.load(open(f"{sys.argv[1]}/seed_{s}/summary.json")) for s in (1, 2, 5)]
mean = lambda v: math.fsum(v) / len(v)
var = lambda v: math.fsum((x - mean(v)) ** 2 for x in v) / (len(v) - 1)
checked = 0
for m in top["mean"]:
    values = [[f["metrics"][m] for f in r["folds"]] for r in runs]
    assert all(x is not None for v in values for x in v), m
    test = sum(f["n_test"] for r in runs for f in r["folds"])
    train = sum(f["n_train"] for r in runs for f in r["folds"])
    means, within = [mean(v) for v in values], mean([var(v) for v in values])
    flat = [x for v in values for x in v]
    want = {"mean": mean(means), "sd_over_folds": math.sqrt(within),
            "sd_over_seeds": math.sqrt(max(0, var(means) - within / 3)), "sd_of_seed_means": math.sqrt(var(means)),
            "standard_error": math.sqrt((1 / 9 + test / train) * var(flat)),
            "pooled_mean": mean([r["pooled"][m] for r in runs]), "pooled_sd": math.sqrt(var([r["pooled"][m] for r in runs]))}
    for name, value in want.items():
        assert abs(top[name][m] - value) < 1e-9 or (name == "sd_over_seeds" and abs(top[name][m] ** 2 - value ** 2) < 1e-12), (name, m, top[name][m], value)
        checked += 1
assert checked == 7 * 13 and any(v > 0 for v in top["sd_over_seeds"].values()), checked
PY
check "the figures are those of the formulas" python3 figures.py s

# ---- fold_metrics computes them anew
call 0 "$build/fold_metrics" s --csv again.csv --json again.json
check "fold_metrics prints the same table" bash -c 'diff <(grep -v "^written: " out) <(sed -n "/^Test-set metrics, 3 of 3 seeds/,/^  pooled, sd/p" first.out)'
check "and writes the same files" bash -c 'cmp again.csv s/summary.csv && cmp again.json s/summary.json'
call 0 "$build/fold_metrics" s --csv again.csv --json -
check "standard output is the file alone" cmp out s/summary.json
call 2 "$build/fold_metrics" s --html page.html
says "s has runs of several seeds"
call 2 "$build/fold_metrics" s alone
says "compare them one by one, as in s/seed_1"
call 0 "$build/fold_metrics" s/seed_1 --replicates 0
cp -r s two && rm -r two/seed_2
call 0 "$build/fold_metrics" two --json two.json
check "a seed whose folder is gone counts as one that there is to be" grep -q "^Test-set metrics, 2 of 3 seeds, 6 of 6 folds" out
check "in the file, too" grep -q '"wanted": 3' two.json
rm two/config.yaml
call 0 "$build/fold_metrics" two
check "without a list the seeds are those that are there" grep -q "^Test-set metrics, 2 of 2 seeds" out
rm -r two/seed_1
call 2 "$build/fold_metrics" two --html page.html
says "as in two/seed_5"

finish
