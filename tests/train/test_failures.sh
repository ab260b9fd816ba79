#!/usr/bin/env bash
# Losses, gradients and outputs that are not finite: the fold is marked as failed, with epoch, batch and cells, keeps its last
# checkpoint and is in no number of the summary; the other folds go on; the run ends with 1, today and when it is resumed.
# Usage: test_failures.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
python=/usr/bin/python3
if ! $python -c 'import numpy' 2>/dev/null; then
    echo "left out: $python has no numpy"
    exit 77
fi
simulate k.h5
common=(--preset tiny --epochs 3 --batch 16 --lr 1e-3 "${device[@]}" --workers 2)
call 0 "$build/train_cv" "${common[@]}" --data k.h5 --folds 3 --out whole

# spoilt: cell 5 is not finite where the program meets it.  gradient: the loss is finite, its gradient is not (a last layer of 1e38 behind a nearly constant first one).
# one.json: cell 5 is tested in fold 0, in no part of fold 1, and trained on in fold 2.
$python - <<'PY' || exit 1
import json, struct, numpy as np
n = 72

def change(edit, path):
    raw = open("whole/fold_0/best.safetensors", "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), bytearray(raw[8 + length:])
    tensor = {k: np.frombuffer(data, np.float32, offset=v["data_offsets"][0],
                               count=(v["data_offsets"][1] - v["data_offsets"][0]) // 4)
              for k, v in header.items() if k != "__metadata__"}
    edit(tensor)
    header["__metadata__"].pop("sha256", None)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + bytes(data))

def gradient(t):
    t["head.fc1.weight"][:] *= 1e-6
    t["head.fc1.bias"][:] = 0
    t["head.bn.weight"][:] = 1
    t["head.fc2.weight"][:] = 1e38
change(gradient, "gradient.safetensors")

parts = [list(range(k, n, 3)) for k in range(3)]
bad = parts[2]            # holds cell 5
parts = [bad, parts[0], parts[1]]
folds = []
for k in range(3):
    rest = [i for i in range(n) if i not in parts[k] and not (k == 1 and i == 5)]
    val = [i for i in rest if i != 5][:12]
    folds.append({"train": [i for i in rest if i not in val], "val": val, "test": parts[k]})
json.dump({"mode": "stratified", "seed": 42, "data": {"n": n}, "folds": folds}, open("one.json", "w"))
PY

# ---- a loss that is not finite, in the first epoch of one fold; test outputs that are not, in another; the third goes on
spoilt=(env FLIM_INFINITE_CELL=5 "$faulty")
call 1 "${spoilt[@]}" "${common[@]}" --data k.h5 --cache none --splits one.json --sampler natural --out loss
says "2 of 3 folds failed"
check "fold 0, tested on the cell, has failed" grep -q "output for cell 5 of the test set is not finite" loss/fold_0/FAILED
check "fold 2, trained on it, names epoch, batch and cell" grep -qE "fold 2: loss or gradient not finite in epoch 1, batch [1-9] \(cells ([0-9]+,)*5[,)]" loss/fold_2/FAILED
check "fold 1 is done" test -e loss/fold_1/DONE -a ! -e loss/fold_1/FAILED
check "no fold is both" test ! -e loss/fold_0/DONE -a ! -e loss/fold_2/DONE
check "a failed fold has no predictions that could be scored" test ! -e loss/fold_0/predictions.csv -a ! -e loss/fold_2/predictions.csv
check "the summary has fold 1 only, and says which have failed" $python -c '
import json
s = json.load(open("loss/summary.json"))
assert [f["fold"] for f in s["folds"]] == [1], s["folds"]
assert [f["fold"] for f in s["failed"]] == [0, 2] and "not finite" in s["failed"][0]["reason"], s["failed"]
assert s["mean"]["accuracy"] == s["folds"][0]["metrics"]["accuracy"]'
check "the table says so" grep -q "2 has failed and is not included" loss/train.log
check "fold 2 keeps what it had" test -z "$(find loss -name '*.tmp')"
before=$(digest loss)
call 1 "${spoilt[@]}" --resume --out loss
check "resumed, the same folds fail in the same way" test "$(digest loss)" = "$before"

# ---- a gradient that is not finite behind a finite loss; batches of 4 x 4 are named as one window
call 1 "$build/train_cv" "${common[@]}" --data k.h5 --folds 3 --init-weights gradient.safetensors --sampler natural --out gradient
says "3 of 3 folds failed"
check "the gradient names its batch" grep -qE "loss or gradient not finite in epoch 1, batch 1 \(cells" gradient/fold_1/FAILED
check "where every fold fails the summary holds nulls" $python -c '
import json
s = json.load(open("gradient/summary.json"))
assert s["folds"] == [] and len(s["failed"]) == 3 and set(s["mean"].values()) == {None}'
call 1 "$build/train_cv" "${common[@]}" --data k.h5 --folds 3 --init-weights gradient.safetensors --batch 4 --accumulate 4 --out window
check "a window of accumulated batches is named as a whole" grep -qE "epoch 1, batches 1 to 4 \(cells ([0-9]+,){15}[0-9]+\)" window/fold_0/FAILED

# ---- a later epoch: the last checkpoint is that of the epoch before, and a smaller learning rate goes on from there
call 1 "$build/train_cv" "${common[@]}" --data k.h5 --folds 2 --batch 64 --lr 1e30 --sampler natural --val-fraction 0 --out later
check "the second epoch is named" grep -q "in epoch 2, batch 1" later/fold_0/FAILED
check "its last checkpoint is kept" test -s later/fold_0/checkpoint/state.ckpt
check "its first epoch stands in history.csv" test "$(wc -l <later/fold_0/history.csv)" = 2
call 1 "$build/train_cv" "${common[@]}" --data k.h5 --folds 2 --batch 64 --lr 1e30 --sampler natural --out validation
check "validation outputs that are not finite fail the fold, too" grep -qE "(of the validation set is not finite after epoch 1|not finite in epoch 2)" validation/fold_0/FAILED

# ---- a signal or a timed checkpoint right after it never makes a checkpoint of it
call 143 env FLIM_AIM=train:3:15 "${spoilt[@]}" "${common[@]}" --data k.h5 --cache none --splits one.json --sampler natural --fold 2 --out cut
check "after a signal the fold has failed all the same" grep -q "not finite in epoch 1" cut/fold_2/FAILED
check "and there is no checkpoint of it" test -z "$(find cut -name '*.ckpt')"
finish
