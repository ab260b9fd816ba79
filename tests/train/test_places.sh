#!/usr/bin/env bash
# Weights and checkpoints belong to one fold of one run: in another's place they are refused, both named, by every program that reads
# them.  And several models given to predict are averaged.  Usage: test_places.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
train=$build/train_cv
options=(--preset tiny --folds 2 --epochs 2 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
simulate d.h5
simulate new.h5 --seed 8
call 0 "$train" --data d.h5 "${options[@]}" --cv group --holdout-group donor_2 --out whole
call 0 "$train" --data d.h5 "${options[@]}" --cv group --holdout-group donor_3 --out other
again() {
    rm -rf r
    cp -r whole r
}

# ---- a checkpoint of another fold
call 143 env FLIM_AIM=train:3:15 "$faulty" --data d.h5 "${options[@]}" --out begun
mkdir -p begun/fold_1/checkpoint
cp begun/fold_0/checkpoint/state.ckpt begun/fold_1/checkpoint/
call 2 "$train" --resume --fold 1 --out begun
says "begun/fold_1/checkpoint/state.ckpt belongs to another fold: fold 0 there, fold 1 here"
rm -r begun/fold_1/checkpoint
cp -r begun older
/usr/bin/python3 - <<'PY' # as a version without folds, class names, time range and masks in it wrote them
import hashlib, json, struct, glob
record = json.load(open("older/resume.json"))
record["accepted"] = [text.split(", class_names")[0] for text in record["accepted"]]
for key in ("class_names", "time_range_ns", "mask"):
    del record["identity"][key]
json.dump(record, open("older/resume.json", "w"))
for path in glob.glob("older/fold_0/checkpoint/*.ckpt"):
    payload = open(path, "rb").read()[84:]
    n, = struct.unpack("<Q", payload[:8])
    who = payload[8:8 + n]
    assert who.startswith(b"fold 0, ")
    first, rest = who[8:].split(b"\n", 1)
    who = first.split(b", class_names")[0] + b"\n" + rest
    payload = struct.pack("<Q", len(who)) + who + payload[8 + n:]
    open(path, "wb").write(b"FLIMCKPT" + struct.pack("<IQ", 4, len(payload)) + hashlib.sha256(payload).hexdigest().encode() + payload)
PY
craft() { # craft FIELD VALUE: a checkpoint with another number, its checksum made right
    rm -rf crafted
    cp -r begun crafted
    rm -f crafted/fold_0/checkpoint/state.previous.ckpt
    /usr/bin/python3 - "$1" "$2" <<'PY'
import hashlib, struct, sys
fields = ["parameters", "statistics", "epoch", "calls", "batch", "accumulate", "skipped_before"]
path = "crafted/fold_0/checkpoint/state.ckpt"
payload = bytearray(open(path, "rb").read()[84:])
n, = struct.unpack("<Q", payload[:8])
struct.pack_into("<q", payload, 8 + n + 8 * fields.index(sys.argv[1]), int(sys.argv[2]))
open(path, "wb").write(b"FLIMCKPT" + struct.pack("<IQ", 4, len(payload)) + hashlib.sha256(payload).hexdigest().encode() + payload)
PY
    call 3 "$train" --resume --out crafted
    says "crafted/fold_0/checkpoint"
}
craft epoch -400
says "epoch is -400"
craft epoch 2
craft calls -1
craft calls 4611686018427387904
craft calls 1000
says "1000 batches of 16 inside an epoch of"
craft batch 0
craft accumulate -3
craft parameters 17

call 0 "$train" --resume --out begun
call 0 "$train" --resume --out older
check "an older checkpoint is accepted, and it is said" grep -q "fold 0: its checkpoint is of an older version" older/train.log
call 0 "$build/fold_metrics" older
call 0 "$build/predict" --model older --data new.h5 --out p.csv "${device[@]:0:2}"
rm p.csv
check "with the same result" test "$(digest older)" = "$(digest begun)"

# ---- weights of another fold
again
cp whole/fold_0/best.safetensors r/fold_1/best.safetensors
wrong="r/fold_1/best.safetensors has the weights of fold 0, but was expected to be fold 1"
call 3 "$build/predict" --model r --data new.h5 --out p.csv "${device[@]:0:2}"
says "$wrong"
call 3 "$build/predict" --model r/fold_1/best.safetensors --data new.h5 --out p.csv "${device[@]:0:2}"
says "$wrong"
call 3 "$build/fold_metrics" r
says "$wrong"
rm r/holdout_predictions.csv
call 3 "$train" --resume --out r
says "$wrong"
check "no file was written" test ! -e p.csv -a ! -e r/holdout_predictions.csv

# ---- of another run's same fold
again
cp other/fold_1/best.safetensors r/fold_1/best.safetensors
for program in "predict --model r --data new.h5 --out p.csv --device cpu" "fold_metrics r"; do
    # shellcheck disable=SC2086
    call 3 "$build"/$program
    says "r/fold_1/best.safetensors belongs to another run"
    says "$(sha256sum r/splits.json | cut -c1-16)"
    says "$(sha256sum other/splits.json | cut -c1-16)"
done

# ---- the final model, which has seen all cells, in a fold's place
call 0 "$train" --data d.h5 "${options[@]}" --epochs 1 --final --out final
cp final/final/best.safetensors final/fold_1/best.safetensors
for program in "predict --model final --data new.h5 --out p.csv --device cpu" "fold_metrics final"; do
    # shellcheck disable=SC2086
    call 3 "$build"/$program
    says "final/fold_1/best.safetensors has the weights of no fold"
done

# ---- of a run with the same folds, but trained otherwise
call 0 "$train" --data d.h5 "${options[@]}" --splits whole/splits.json --seed 9 --lr 2e-3 --out same_folds
again
cp same_folds/splits.json r/splits.json
check "they have the same file of folds" cmp whole/splits.json same_folds/splits.json
cp same_folds/fold_1/best.safetensors r/fold_1/best.safetensors
call 3 "$build/fold_metrics" r
says "r/fold_1/best.safetensors belongs to another run"
call 3 "$build/predict" --model r --data new.h5 --out p.csv "${device[@]:0:2}"
check "both are shown" grep -qE "seed 9 there, seed 42 here.*lr 0.002 there, lr 0.001 here" err

# ---- taken out of a run, weights go anywhere
cp whole/fold_0/best.safetensors a.safetensors
cp other/fold_1/best.safetensors b.safetensors
call 0 "$build/predict" --model a.safetensors --data new.h5 --out a.csv "${device[@]:0:2}"
call 0 "$build/predict" --model b.safetensors --data new.h5 --out b.csv "${device[@]:0:2}"

# ---- several models are averaged
call 0 "$build/predict" --model a.safetensors --model b.safetensors --data new.h5 --out both.csv "${device[@]:0:2}"
check "the probabilities are the means" /usr/bin/python3 - <<'PY'
import csv
a, b, both = ([float(r["prob_1"]) for r in csv.DictReader(open(f))] for f in ("a.csv", "b.csv", "both.csv"))
assert len(a) == 72 and any(abs(x - y) > 1e-4 for x, y in zip(a, b))
assert all(abs((x + y) / 2 - z) < 1e-6 for x, y, z in zip(a, b, both))
PY
call 0 "$build/predict" --model whole --model other --data new.h5 --out runs.csv "${device[@]:0:2}"
check "two runs of two folds are four models" grep -q "72 cells, 4 models" out
call 2 "$build/predict" --model a.safetensors --model a.safetensors --data new.h5 --out p.csv "${device[@]:0:2}"
says "a.safetensors is given twice"
ln -s a.safetensors link.safetensors
call 2 "$build/predict" --model a.safetensors --model ./link.safetensors --data new.h5 --out p.csv "${device[@]:0:2}"
says "link.safetensors is given twice"
call 0 "$train" --data d.h5 "${options[@]}" --preset small --epochs 1 --fold 0 --out small
call 2 "$build/predict" --model a.safetensors --model small --data new.h5 --out p.csv "${device[@]:0:2}"
says "an ensemble needs one architecture"

# ---- folders
call 0 "$build/predict" --model whole/fold_0 --data new.h5 --out folder.csv "${device[@]:0:2}"
call 0 "$build/predict" --model whole/fold_0/best.safetensors --data new.h5 --out file.csv "${device[@]:0:2}"
check "a fold's folder stands for its weights" cmp folder.csv file.csv
check "the last line names the file" test "$(tail -n 1 out)" = "written: file.csv"
mkdir repeated empty
cp -r whole repeated/seed_1
call 2 "$build/predict" --model repeated --data new.h5 --out p.csv "${device[@]:0:2}"
says "repeated has runs of 1 seed: name them one by one, as in repeated/seed_1"
call 3 "$build/predict" --model empty --data new.h5 --out p.csv "${device[@]:0:2}"
says "cannot read empty"

# ---- which cells the weights have seen
call 0 "$build/predict" --model whole --data d.h5 --out p.csv "${device[@]:0:2}"
says "60 of 72 cells were seen by at least one of the models"
call 0 "$build/predict" --model whole --data new.h5 --out p.csv "${device[@]:0:2}"
check "none of new cells is" grep -q "none of the 72 cells was seen by the weights" out
check "without a warning" test "$(grep -c 'seen' err)" = 0
call 0 "$build/flim_repack" d.h5 packed.h5
call 0 "$build/predict" --model whole --data packed.h5 --out p.csv "${device[@]:0:2}"
says "60 of 72 cells were seen by"
call 0 "$build/predict" --model whole --data d.h5 --no-scan --out p.csv "${device[@]:0:2}"
says "d.h5 has the labels, groups and names of the data that whole was trained on"

finish
