#!/usr/bin/env bash
# --refit and --final: what they train on, for how long and at which learning rates; the same bits as a run that trains on those cells
# from the start; and, killed at any of their places, the undisturbed run's files.
# Usage: test_refit.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
train=$build/train_cv
options=(--preset tiny --folds 2 --epochs 3 --batch 16 --lr 1e-2 "${device[@]}" --workers 2)
json() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))" "$@"; }

call 0 "$train" --data k.h5 "${options[@]}" --refit --final --out whole
want=$(digest whole)
check "nothing is left of the checkpoints" test -z "$(find whole -name checkpoint)"
for k in 0 1; do
    check "fold $k: the refit learns from training and validation set" test "$(json whole/fold_$k/summary.json 'd["refit"]["n_train"]-d["n_train"]-d["n_val"]')" = 0
    cat >look.py <<PY
import csv, json
d = json.load(open("whole/fold_$k/summary.json"))
first, refit = (list(csv.DictReader(open("whole/fold_$k/%shistory.csv" % p))) for p in ("", "refit/"))
chosen = first[:d["best_epoch"]]
updates = sum(int(r["updates"]) for r in chosen)
assert updates == sum(int(r["updates"]) for r in refit) == d["refit"]["updates"], (updates, refit)
per, per_refit = int(first[0]["updates"]), int(refit[0]["updates"])
for j, r in enumerate(refit): # each epoch at the rate that the fold had after as many updates
    assert r["lr"] == first[min(j * per_refit // per, len(first) - 1)]["lr"], (j, r["lr"])
    assert int(r["cells"]) == min(d["refit"]["n_train"], (updates - j * per_refit) * 16), (j, r["cells"])
    assert not r["val_loss"]
PY
    check "fold $k: as many updates, at the learning rates of the same updates" python3 look.py
done
cat >look.py <<'PY'
import csv, json, statistics
f = [json.load(open("whole/fold_%d/summary.json" % k)) for k in (0, 1)]
d, run = json.load(open("whole/final/summary.json")), json.load(open("whole/summary.json"))
assert d["n_train"] == 72 and d["epochs"] == min(x["best_epoch"] for x in f) == statistics.median_low([x["best_epoch"] for x in f])
assert abs(d["threshold"] - sum(x["threshold"] for x in f) / 2) < 1e-12
assert d["expected_score"]["pooled"] == run["pooled"] and d["expected_score"]["mean"] == run["mean"]
h = list(csv.DictReader(open("whole/final/history.csv")))
assert len(h) == d["epochs"] and all(int(r["cells"]) == 72 for r in h)
PY
check "the final model: all cells, the median of the chosen epochs, the folds' score" python3 look.py
call 0 "$build/predict" --model whole/final/best.safetensors --data k.h5 --out final.csv "${device[@]:0:2}"
check "predict takes it, with the folds' threshold" grep -q "threshold $(json whole/final/summary.json '"%.4f" % d["threshold"]')" out
call 0 "$build/predict" --model whole --data k.h5 --out run.csv "${device[@]:0:2}"
check "the run is the mean of its folds, not of the final model" grep -q "72 cells, 2 models" out

# ---- a refit is the run that learns from both parts from the start, if that takes as many updates at the same rates: here two per
#      epoch either way, and the first or the last epoch is chosen
call 0 "$train" --data k.h5 "${options[@]}" --batch 18 --fold 0 --refit --out both
epochs=$(json both/fold_0/summary.json 'd["best_epoch"]')
check "the first or the last epoch is chosen" test "$epochs" = 1 -o "$epochs" = 3
python3 - <<'PY'
import json
d = json.load(open("both/splits.json"))
for f in d["folds"]:
    f["train"], f["val"] = sorted(f["train"] + f["val"]), []
json.dump(d, open("joined.json", "w"))
PY
call 0 "$train" --data k.h5 "${options[@]}" --batch 18 --epochs "$epochs" --fold 0 --splits joined.json --val-fraction 0 --out joined
check "it takes as many updates" test "$(json both/fold_0/summary.json 'd["refit"]["updates"]')" = $((2 * epochs))
check "the same logits for every test cell" cmp <(cut -d, -f1,6 both/fold_0/predictions.csv) <(cut -d, -f1,6 joined/fold_0/predictions.csv)

# ---- killed: in the refit of fold 0 (after its own three epochs), between epochs, before its checkpoints, in the final model, at DONE
per=$(json whole/fold_0/summary.json '(d["n_train"] + 15) // 16 * d["epochs"]')
places=("train:$((per + 1)):9" "rename=fold_0/DONE:1:9" "line=final model epoch 1:1:15")
if [ -n "${FLIM_SHORT:-}" ]; then
    echo "left out (FLIM_SHORT): seven other places"
else
    places+=("train:$((per + 3)):15" "rename=refit/checkpoint:2:9" "rename=fold_0/best:1:9" "rename=final/checkpoint:1:9" "rename=final/best:1:9"
        "rename=final/summary:1:9" "rename=final/DONE:1:9")
fi
for at in "${places[@]}"; do
    rm -rf r
    call $((128 + ${at##*:})) env FLIM_AIM="$at" "$faulty" --data k.h5 "${options[@]}" --refit --final --out r
    call 0 "$train" --resume --out r
    check "killed at $at, the files are the undisturbed run's" test "$(digest r)" = "$want"
    check "killed at $at, no checkpoint is left" test -z "$(find r -name checkpoint)"
done

# ---- the final model can be had afterwards; --refit cannot
call 0 "$train" --data k.h5 "${options[@]}" --refit --out late
check "without --final there is none" test ! -e late/final
call 0 "$train" --resume --final --out late
check "asked for afterwards, it is the same" test "$(digest late)" = "$want"
call 0 "$train" --resume --final --out late
check "once is enough" grep -q "the final model is already done" out
call 2 "$train" --resume --resume-override --out late --no-refit
says "this cannot be overridden"
call 0 "$train" --data k.h5 "${options[@]}" --fold 0 --final --out one
check "it waits for all folds" grep -q "the final model is trained once all folds are done; fold 1 is not" out
check "and is not there" test ! -e one/final
call 0 "$train" --data k.h5 "${options[@]}" --fold 0 --val-fraction 0 --refit --out none
check "without a validation set there is nothing to refit on" grep -q "fold 0: no validation set, so there is nothing to refit on" out
finish
