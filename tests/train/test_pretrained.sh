#!/usr/bin/env bash
# Fine-tuning in whole runs: --pretrained takes the encoder of a file and nothing else of it; --freeze-encoder, --unfreeze-after and
# --encoder-lr-scale do what they say to the saved weights; stopped and resumed, the files are the undisturbed run's; cells and groups
# that the file has seen are counted; what cannot be is refused before a run folder is made.  predict --embeddings writes what the
# head sees.
# Usage: test_pretrained.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
simulate other.h5 --bins 24 --height 15 --width 15 --seed 4 # cells of another size
train=$build/train_cv
options=(--data k.h5 --preset nano --folds 2 --epochs 2 --batch 8 --lr 3e-3 "${device[@]}" --workers 2)
call 0 "$train" "${options[@]}" --out first
file=first/fold_0/best.safetensors

cat >encoder.py <<'P'
"""encoder.py FILE same|other FILE: whether two weight files have the same encoder; encoder.py cut FILE OUT: one without its head."""
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    meta = head.pop("__metadata__")
    return {k: (v, data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}, meta
if sys.argv[1] == "cut":
    tensors, meta = read(sys.argv[2])
    head, body = {}, b""
    for name in sorted(t for t in tensors if not t.startswith("head.")):
        v, bytes_ = tensors[name]
        head[name] = dict(v, data_offsets=[len(body), len(body) + len(bytes_)])
        body += bytes_
    meta = {k: v for k, v in meta.items() if k in ("flimcv_format", "preset", "width", "T", "H", "W", "preprocessing")}
    text = json.dumps(dict(head, __metadata__=meta)).encode()
    text += b" " * (-len(text) % 8)
    open(sys.argv[3], "wb").write(struct.pack("<Q", len(text)) + text + body)
    sys.exit()
a, b = read(sys.argv[1])[0], read(sys.argv[3])[0]
weights = [k for k in a if not k.startswith("head.") and "running" not in k]
heads = [k for k in a if k.startswith("head.") and "running" not in k]
same = all(a[k][1] == b[k][1] for k in weights)
new = any(a[k][1] != b[k][1] for k in heads)
print(len(weights), "tensors of the encoder,", "the same" if same else "others")
sys.exit(0 if weights and new and same == (sys.argv[2] == "same") else 1)
P

# ---- what becomes of the encoder
tune=("${options[@]}" --pretrained "$file" --ema 0 --fold 1)
call 0 "$train" "${tune[@]}" --freeze-encoder --out frozen
check "a frozen encoder keeps its weights, the head does not" python3 encoder.py "$file" same frozen/fold_1/best.safetensors
call 0 "$train" "${tune[@]}" --out tuned
check "else the encoder learns" python3 encoder.py "$file" other tuned/fold_1/best.safetensors
call 0 "$train" "${tune[@]}" --encoder-lr-scale 0.1 --out slow
check "at the rate that was asked for" bash -c '! cmp -s tuned/fold_1/best.safetensors slow/fold_1/best.safetensors'
call 0 "$train" "${tune[@]}" --unfreeze-after 1 --out later
check "the first epoch is the frozen run's" cmp <(sed -n 1,2p frozen/fold_1/history.csv | cut -d, -f1-16) <(sed -n 1,2p later/fold_1/history.csv | cut -d, -f1-16)
check "the second is not" bash -c '! cmp -s <(sed -n 3p frozen/fold_1/history.csv | cut -d, -f1-16) <(sed -n 3p later/fold_1/history.csv | cut -d, -f1-16)'

# ---- an encoder without a head; cells of another size, another number of classes
call 0 python3 encoder.py cut "$file" encoder.safetensors
call 0 "$train" "${tune[@]/#$file/encoder.safetensors}" --out cut
check "the head of the file played no part" cmp tuned/fold_1/predictions.csv cut/fold_1/predictions.csv
call 0 "$train" "${options[@]/#k.h5/other.h5}" --pretrained encoder.safetensors --freeze-encoder --fold 0 --out sized
check "cells of another size" python3 encoder.py "$file" same sized/fold_0/best.safetensors
for program in "predict --data k.h5 --out p.csv --model" "train_cv --data k.h5 --preset nano --device cpu --out x --init-weights"; do
    # shellcheck disable=SC2086
    call 3 "$build"/$program encoder.safetensors
    says "an encoder without a head"
done

# ---- bins of another width: what counts is their width in ns, not how many there are
simulate fine.h5 --bins 32 --seed 5 # 32 bins over the 12.5 ns of k.h5's 16
call 3 "$train" "${options[@]/#k.h5/fine.h5}" --pretrained "$file" --out no
says "fine.h5: time_range_ns is 12.5 (32 bins of 0.3906 ns), and $file was trained on 12.5 (16 bins of 0.7812 ns)"
call 0 "$train" "${options[@]/#k.h5/k.h5}" --pretrained "$file" --freeze-encoder --fold 0 --epochs 1 --out alike
check "of the same bins nothing is said" bash -c '! grep -q "as wide" err'
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    /usr/bin/python3 - <<'P'
import h5py, shutil
def edit(source, target, range_ns):
    shutil.copy(source, target)
    with h5py.File(target, "r+") as f:
        del f.attrs["time_range_ns"]
        if range_ns:
            f.attrs["time_range_ns"] = range_ns
edit("fine.h5", "longer.h5", 25.0)
edit("k.h5", "silent.h5", None)
edit("k.h5", "wide.h5", 25.0)
P
    call 0 "$train" "${options[@]/#k.h5/longer.h5}" --pretrained "$file" --fold 0 --epochs 1 --out longer
    call 3 "$train" "${options[@]/#k.h5/wide.h5}" --pretrained "$file" --out no
    says "wide.h5: time_range_ns is 25 (16 bins of 1.562 ns)"
    for start in --pretrained --init-weights; do
        rm -rf silent
        call 0 "$train" "${options[@]/#k.h5/silent.h5}" $start "$file" --fold 0 --epochs 1 --out silent
        says "silent.h5 has no time_range_ns"
        says "whether the bins are as wide cannot be checked"
    done
    call 0 "$train" "${options[@]}" --pretrained silent/fold_0/best.safetensors --fold 0 --epochs 1 --out from_silent
    says "silent/fold_0/best.safetensors was trained on data without time_range_ns"
    call 0 "$build/pretrain" --data k.h5 --preset nano --epochs 1 --warmup-epochs 0 --batch 16 "${device[@]}" --workers 2 --out pre
    call 3 "$build/predict" --data fine.h5 --model pre/encoder.safetensors "${device[@]:0:2}" --embeddings e.npy
    says "fine.h5: time_range_ns is 12.5 (32 bins of 0.3906 ns), and pre/encoder.safetensors was trained on 12.5 (16 bins of 0.7812 ns)"
    call 0 "$build/predict" --data longer.h5 --model pre/encoder.safetensors "${device[@]:0:2}" --embeddings e.npy
    call 0 "$build/predict" --data silent.h5 --model pre/encoder.safetensors "${device[@]:0:2}" --embeddings e2.npy
    says "silent.h5 has no time_range_ns"
fi

# ---- stopped and resumed
call 0 "$train" "${options[@]}" --pretrained "$file" --unfreeze-after 1 --out whole
want=$(digest whole)
for at in train:1:9 train:6:15 val:1:15 rename=state.ckpt:2:9; do
    rm -rf stopped
    env FLIM_AIM="$at" "$faulty" "${options[@]}" --pretrained "$file" --unfreeze-after 1 --out stopped >/dev/null 2>&1
    check "stopped at $at" test $? -gt 128
    call 0 "$train" --resume --out stopped
    check "stopped at $at and resumed: the undisturbed run's files" test "$(digest stopped)" = "$want"
done
for flag in "--unfreeze-after 2" "--encoder-lr-scale 0.5" "--freeze-encoder"; do
    rm -rf other
    cp -r stopped other
    rm -f other/fold_1/DONE other/summary.json
    # shellcheck disable=SC2086
    call 2 "$train" --resume --out other $flag
done

# ---- what the file has seen
call 0 "$train" "${options[@]}" --pretrained "$file" --out seen
check "cells that it has seen are counted" grep -q "has seen [0-9]* of [0-9]* test cells" seen/train.log
python3 - "$file" donors.safetensors <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
p = json.loads(head["__metadata__"]["provenance"])
p.update(kind="pretraining", donors=["donor_2", "elsewhere"], files=["pre.h5"], classes=[])
head["__metadata__"]["provenance"] = json.dumps(p)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
P
python3 encoder.py cut donors.safetensors /dev/null
call 0 "$train" "${options[@]}" --pretrained donors.safetensors --fold 0 --out donors
check "groups that are tested and were pretrained on are named" grep -qE "was pretrained on cells of 1 of the groups .*\(donor_2\)" donors/train.log

# Groups of another spelling are the same people's: each kind of difference that a pretraining forgets, and a name that is another.
python3 - donors.safetensors <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
def write(path, donors):
    head = json.loads(data[8:8 + n])
    p = json.loads(head["__metadata__"]["provenance"])
    p.update(donors=donors)
    head["__metadata__"]["provenance"] = json.dumps(p)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
write("respelled.safetensors", ["Donor 1", "elsewhere", "donor_02", "\ufeffDONOR-4", "donor_7", "donor_66"])
write("both.safetensors", ["Donor 1", "donor_1"])
P
call 0 "$train" "${options[@]}" --pretrained respelled.safetensors --epochs 1 --out respelled
says "group 'donor_1' of the data differs only by blanks and case and hyphens or underscores from 'Donor 1', which respelled.safetensors was pretrained on"
says "group 'donor_2' of the data differs only by leading zeros from 'donor_02'"
says "group 'donor_4' of the data differs only by "
says "was pretrained on cells of 3 of the groups that are tested here (donor_1, donor_2, donor_4)"
call 0 "$train" "${options[@]}" --pretrained both.safetensors --epochs 1 --out very
says "was pretrained on cells of 1 of the groups that are tested here (donor_1)"
check "the very name, if it is there, is no other spelling" bash -c '! grep -q "differs only by" very/train.log'

# ---- what "none" means: a copy that is stored otherwise is not found, and that is said
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    call 0 "$build/pretrain" --data k.h5 --preset nano --epochs 1 --warmup-epochs 0 --batch 16 "${device[@]}" --workers 2 --out pre_all
    /usr/bin/python3 - <<'P'
import h5py, shutil
def edit(target, change):
    shutil.copy("k.h5", target)
    with h5py.File(target, "r+") as f:
        change(f)
def flip(f):
    f["counts"][:] = f["counts"][:][..., ::-1]
    f["mask"][:] = f["mask"][:][..., ::-1]
def double(f):
    f["counts"][:] = f["counts"][:] * 2
edit("flipped.h5", flip)
edit("doubled.h5", double)
P
    for copy in flipped doubled; do
        call 0 "$train" "${options[@]/#k.h5/$copy.h5}" --pretrained pre_all/encoder.safetensors --epochs 1 --out "$copy"
        check "$copy: what was compared" grep -q "has seen none of the 72 test cells; cells were compared as they are stored" "$copy/train.log"
        call 0 "$build/predict" --data $copy.h5 --model pre_all/encoder.safetensors "${device[@]:0:2}" --embeddings $copy.npy
        check "$copy: by predict, too" grep -q "none of the 72 cells was seen by .*; cells were compared as they are stored" out err
    done
fi

# ---- of the folds that a call trains, as docs/train_cv.md has it: no other fold's test cells are counted
call 0 "$build/pretrain" --data k.h5 --preset nano --epochs 1 --warmup-epochs 0 --batch 16 "${device[@]}" --workers 2 --splits first --fold 0 --out pre0
own=(--data k.h5 --preset nano --epochs 1 --batch 8 "${device[@]}" --workers 2 --splits first/splits.json --pretrained pre0/encoder.safetensors)
call 0 "$train" "${own[@]}" --fold 0 --out own
check "its own fold: none" grep -q "has seen none of the [0-9]* test cells of fold 0" own/train.log
check "and no warning of cells or groups" bash -c '! grep -qE "not a test result|was pretrained on cells of" err own/train.log'
check "of its validation cells it says how many" grep -qE "has seen ([0-9]+) of \1 validation cells: epochs and thresholds" own/train.log
call 0 "$build/pretrain" --data k.h5 --preset nano --epochs 1 --warmup-epochs 0 --batch 16 "${device[@]}" --workers 2 --splits first --fold 0 --train-set-only --out strict0
call 0 "$train" "${own[@]}" --pretrained strict0/encoder.safetensors --fold 0 --out strict
check "with --train-set-only none" bash -c '! grep -q "validation cells: epochs" strict/train.log'
call 0 "$train" "${own[@]}" --fold 1 --out another
says "test cells in training or validation (fold 1: "
says "of the groups that are tested here"
call 0 "$train" "${own[@]}" --out both
says "test cells in training or validation (fold 1: "
call 0 "$train" --data k.h5 --preset nano --epochs 1 --batch 8 "${device[@]}" --workers 2 --folds 2 --cv group --holdout-group donor_2 --pretrained donors.safetensors --fold 0 --out held
check "a group that is held out is named whatever the fold" grep -qE "was pretrained on cells of 1 of the groups .*\(donor_2\)" held/train.log

# ---- refused
call 2 "$train" "${options[@]}" --pretrained "$file" --init-weights "$file" --out no
says "give one"
call 2 "$train" "${options[@]}" --freeze-encoder --out no
says "needs --pretrained"
call 2 "$train" "${options[@]}" --pretrained "$file" --freeze-encoder --unfreeze-after 1 --out no
for flags in --freeze-encoder "--unfreeze-after 1" "--encoder-lr-scale 0.5" "--encoder-lr-scale 1" "--set encoder_lr_scale=0.5" \
    "--encoder-lr-scale 0.5 --init-weights $file" "--stages a --encoder-lr-scale 0.5"; do
    # shellcheck disable=SC2086
    call 2 "$train" "${options[@]}" $flags --out no
    says "needs --pretrained"
done
for stage in freeze_encoder=true unfreeze_after=1 encoder_lr_scale=0.5; do
    call 2 "$train" "${options[@]}" --stages a --stages "b $stage" --out no
    says "stages: b: --"
    says "needs --pretrained"
done
call 2 "$train" "${options[@]}" --pretrained "$file" --freeze-encoder --encoder-lr-scale 0.5 --out no
says "--freeze-encoder trains none"
call 2 "$train" "${options[@]}" --pretrained "$file" --stages "a freeze_encoder=true" --encoder-lr-scale 0.5 --out no
says "--freeze-encoder trains none"
call 2 "$train" "${options[@]}" --pretrained "$file" --stages a --stages "b freeze_encoder=true encoder_lr_scale=0.5" --out no
says "stages: b: --encoder-lr-scale"
for never in 2 3; do
    call 2 "$train" "${options[@]}" --pretrained "$file" --unfreeze-after $never --out no
    says "--unfreeze-after $never: of 2 epochs none would train the encoder"
done
call 2 "$train" "${options[@]}" --pretrained "$file" --stages "a epochs=3" --stages "b epochs=1 unfreeze_after=1" --out no
says "stages: b: --unfreeze-after 1: of 1 epochs"
call 0 "$train" "${options[@]}" --pretrained "$file" --unfreeze-after 2 --stages "a epochs=3" --dry-run
call 0 "$train" "${options[@]}" --pretrained "$file" --encoder-lr-scale 0.5 --stages "a freeze_encoder=true" --stages b --dry-run
call 0 "$train" "${options[@]}" --pretrained "$file" --encoder-lr-scale 0.5 --unfreeze-after 1 --dry-run
call 0 "$train" "${options[@]}" --pretrain-per-fold --encoder-lr-scale 0.5 --dry-run
call 0 "$train" "${options[@]}" --stages "p kind=pretraining epochs=1 warmup_epochs=0 batch=8" --encoder-lr-scale 0.5 --dry-run
call 0 "$train" "${options[@]}" --print-config
cp out printed.yaml
call 0 "$train" --config printed.yaml --dry-run
call 3 "$train" "${options[@]}" --preset tiny --pretrained "$file" --out no
says "choose the size of the weights"
check "no run folder was made" test ! -e no

# ---- embeddings
call 0 "$build/predict" --data k.h5 --model first "${device[@]:0:2}" --embeddings two.npy --out two.csv
call 0 "$build/predict" --data k.h5 --model "$file" "${device[@]:0:2}" --embeddings one.npy --out one.csv
call 0 "$build/predict" --data k.h5 --model encoder.safetensors "${device[@]:0:2}" --embeddings none.npy --out none.csv
check "which is said" grep -q "no classes are predicted" out
check "and none are written" test ! -e none.csv
call 2 "$build/predict" --data k.h5 --model first --embeddings a.csv --out p.csv
says ".npy, .h5 or .hdf5"
cat >shape.py <<'P'
import ast, struct, sys
def read(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    n = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10:10 + n].decode())
    assert (10 + n) % 64 == 0 and head["descr"] == "<f4" and not head["fortran_order"], head
    return head["shape"], data[10 + n:]
two, one, none = read("two.npy"), read("one.npy"), read("none.npy")
assert two[0] == (2, 72, 16) and one[0] == (72, 16), (two[0], one[0])
assert two[1][:len(one[1])] == one[1] and one == none and len(set(one[1])) > 50
P
check "the files are NumPy's, the first model's are its own, and the head plays no part" python3 shape.py
call 0 "$build/predict" --data k.h5 --model first "${device[@]:0:2}" --embeddings two.h5 --out two.csv
cat >hdf5.py <<'P'
import h5py, numpy
f = h5py.File("two.h5")
assert (f["embedding"][:] == numpy.load("two.npy")).all() and f["label"].shape == (72,)
with h5py.File("k.h5") as k:
    assert (f["label"][:] == k["label"][:]).all() and [g.decode() for g in f["group"]] == [g.decode() for g in k["group"]]
P
if /usr/bin/python3 -c 'import h5py, numpy' 2>/dev/null; then
    check "HDF5 holds the same, with labels and groups" /usr/bin/python3 hdf5.py
fi
finish
