#!/usr/bin/env bash
# Data and weights that do not belong together: bins of another width, masks from elsewhere, class names that have changed, counts that
# were swapped, starting weights that have seen the test cells, numbers that are not finite, finished folds that are not whole.
# Usage: test_provenance_checks.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
python=/usr/bin/python3
if ! $python -c 'import h5py, numpy' 2>/dev/null; then
    echo "left out: $python has no h5py or numpy"
    exit 77
fi
train=$build/train_cv predict=$build/predict
options=(--preset tiny --folds 2 --epochs 1 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
edit() { # edit FROM TO PYTHON: a copy of a data file, changed by a line of Python
    cp "$1" "$2"
    $python -c "
import h5py, numpy as np
f = h5py.File('$2', 'r+')
def put(name, value):
    del f[name]
    f[name] = value
$3" || fail "python: $3"
}
simulate d.h5
simulate new.h5 --seed 8
call 0 "$train" --data d.h5 "${options[@]}" --out whole

# ---- bins of another width
edit d.h5 wide.h5 "f.attrs['time_range_ns'] = 25.0"
edit d.h5 rounded.h5 "f.attrs['time_range_ns'] = np.float32(12.5) * np.float32(1 + 2e-7)"
edit new.h5 silent.h5 "del f.attrs['time_range_ns']"
edit new.h5 new_wide.h5 "f.attrs['time_range_ns'] = 25.0"
edit new.h5 seconds.h5 "f.attrs['time_range_ns'] = 1.25e-8"
call 3 "$train" --data d.h5 --data new_wide.h5 "${options[@]}" --out mixed
says "new_wide.h5: time_range_ns is 25"
says "that of d.h5 is 12.5"
check "no folder was made" test ! -e mixed
call 3 "$build/flim_repack" d.h5 new_wide.h5 joined.h5
says "new_wide.h5: time_range_ns is 25"
"$build/flim_info" --together d.h5 new_wide.h5 >out 2>err
check "flim_info --together says so" grep -q "time_range_ns is 25" out err
call 3 "$predict" --model whole --data new_wide.h5 --out p.csv "${device[@]:0:2}"
says "new_wide.h5: time_range_ns is 25"
says "was trained on 12.5"
call 3 "$predict" --model whole --data seconds.h5 --out p.csv "${device[@]:0:2}"
says "time_range_ns is 1.25e-08"
call 3 "$train" --data new_wide.h5 "${options[@]}" --init-weights whole/fold_0/best.safetensors --out mixed
says "time_range_ns is 25"
call 0 "$predict" --model whole --data rounded.h5 --out p.csv "${device[@]:0:2}"
call 0 "$predict" --model whole --data silent.h5 --out p.csv "${device[@]:0:2}"
says "silent.h5 has no time_range_ns"
call 0 "$train" --data d.h5 --data silent.h5 "${options[@]}" --dry-run
says "silent.h5 has no time_range_ns; using that of d.h5, 12.5 ns"
resumed() { # resumed FILE TEXT: a run that was started with d.h5 is to go on with another file in its place
    rm -rf r
    cp -r begun r
    cp "$1" live.h5
    call 3 "$train" --resume --out r
    says "$2"
    call 3 "$train" --resume --resume-override --out r
    says "cannot be overridden"
}
cp d.h5 live.h5
call 143 env FLIM_AIM=train:3:15 "$faulty" --data live.h5 "${options[@]}" --epochs 3 --out begun
resumed wide.h5 "time_range_ns was 12.5 and is 25"

# ---- masks from elsewhere
edit new.h5 bare.h5 "del f['mask']"
call 3 "$predict" --model whole --data bare.h5 --out p.csv "${device[@]:0:2}"
says "bare.h5 has no /mask, and whole/fold_0/best.safetensors was trained with masks from its file"
says "--any-mask"
call 0 "$predict" --model whole --data bare.h5 --any-mask --out p.csv "${device[@]:0:2}"
says "--any-mask: bare.h5 has no /mask"
says "whether the weights have seen these cells in training cannot be told"
call 0 "$train" --data bare.h5 "${options[@]}" --fold 0 --out without
call 0 "$predict" --model without --data bare.h5 --out p.csv "${device[@]:0:2}"
call 3 "$predict" --model without --data d.h5 --out p.csv "${device[@]:0:2}"
says "d.h5 has a /mask, and without/fold_0/best.safetensors was trained without one"
call 3 "$predict" --model without --model whole --data d.h5 --out p.csv "${device[@]:0:2}"
says "masks from the counts"
call 0 "$train" --data d.h5 "${options[@]}" --fold 0 --init-weights without/fold_0/best.safetensors --out from_without
says "was trained with masks from the counts, this run has them from the file"
edit d.h5 live_bare.h5 "del f['mask']"
resumed live_bare.h5 "mask was file and is counts"

# ---- class names that have changed
edit d.h5 turned.h5 "f.attrs['class_names'] = f.attrs['class_names'][::-1]"
resumed turned.h5 "class_names was quiescent/activated and is activated/quiescent"
call 0 "$train" --data turned.h5 "${options[@]}" --out turned
call 3 "$predict" --model whole --model turned --data new.h5 --out p.csv "${device[@]:0:2}"
says "class 0 is 'quiescent' in whole/fold_0/best.safetensors and 'activated' in turned/fold_0/best.safetensors"
call 3 "$predict" --model turned --data new.h5 --out p.csv "${device[@]:0:2}"
says "class 0 is 'quiescent' in new.h5"
edit d.h5 enum.h5 "
t = h5py.enum_dtype({'activated': 0, 'quiescent': 1}, basetype='i1')
v = f['label'][:].astype('i1')
del f['label']
f.create_dataset('label', data=v, dtype=t)"
call 3 "$train" --data enum.h5 "${options[@]}" --dry-run
says "enum.h5: /label is an enumeration that calls class 0 'activated', and class_names calls it 'quiescent'"
edit enum.h5 enum_alone.h5 "del f.attrs['class_names']"
call 0 "$train" --data enum_alone.h5 "${options[@]}" --dry-run
check "without class_names its names are the classes'" grep -q "activated  *quiescent" out
edit d.h5 bool.h5 "put('label', f['label'][:].astype(bool))"
call 0 "$train" --data bool.h5 "${options[@]}" --dry-run
check "a boolean names nothing" grep -q "quiescent  *activated" out
edit d.h5 equal.h5 "f.attrs['class_names'] = np.array(['same', 'same'], dtype=h5py.string_dtype())"
call 3 "$train" --data equal.h5 "${options[@]}" --dry-run
says "equal.h5: attribute class_names: classes 0 and 1 are both 'same'"

# ---- --resume without reading the counts again
edit d.h5 swapped.h5 "c = f['counts'][:]; put('counts', c[::-1].copy())"
resumed swapped.h5 "counts was "
call 0 "$train" --resume --no-scan --out r
says "--no-scan: the counts are not compared with those that the run was started with"
check "the summary keeps it" grep -q "resumed with --no-scan" r/summary.json
cp d.h5 live.h5
rm r/fold_1/DONE
call 0 "$train" --resume --out r
check "and so does the next one's" grep -q "resumed with --no-scan" r/summary.json
cp swapped.h5 live.h5
rm r/fold_1/DONE
call 3 "$train" --resume --out r
says "counts was "
check "an undisturbed run says nothing of the kind" test "$(grep -c unchecked whole/summary.json)" = 0

# ---- starting weights that have seen the test cells
call 0 "$train" --data d.h5 "${options[@]}" --init-weights whole/fold_0/best.safetensors --out second
says "whole/fold_0/best.safetensors has seen "
seen=$($python - <<'PY'
import json
folds = json.load(open("whole/splits.json"))["folds"]
old = set(folds[0]["train"]) | set(folds[0]["val"])
new = json.load(open("second/splits.json"))["folds"]
print(*[len(old & set(f["test"])) for f in new])
PY
)
check "as many as the splits say: $seen" $python -c "
import json
for where in [json.load(open('second/summary.json'))['folds']] + [[json.load(open(f'second/fold_{k}/summary.json')) for k in (0, 1)]]:
    assert [f['test_cells_seen_by_init_weights'] for f in where] == [$(tr ' ' ',' <<<"$seen")], where
assert sum([$(tr ' ' ',' <<<"$seen")]) > 0"
check "a run that began at random does not speak of it" test "$(grep -c seen whole/summary.json)" = 0
call 0 "$build/fold_metrics" second
says "had seen $((${seen/ /+})) of 72 test cells"
edit d.h5 renamed.h5 "f['name'][...] = f['name'][:][::-1]; put('label', 1 - f['label'][:])"
call 0 "$train" --data renamed.h5 "${options[@]}" --cv stratified --init-weights second/fold_1/best.safetensors --out third
says "second/fold_1/best.safetensors has seen 72 of 72 test cells" # of its own, and of the weights that it began with
call 0 "$train" --data d.h5 "${options[@]}" --cv group --holdout-group donor_2 --init-weights second/fold_1/best.safetensors --out held
says "has seen 12 of the 12 cells that are held out"
check "the summary keeps that, too" grep -q '"holdout_cells_seen_by_init_weights": 12' held/summary.json
call 0 "$train" --data new.h5 "${options[@]}" --init-weights whole/fold_0/best.safetensors --out fresh
check "others have seen none" grep -q "has seen none of the 72 test cells" fresh/train.log
check "and that is no warning" test "$(grep -c seen err)" = 0
call 0 "$train" --data new.h5 "${options[@]}" --no-scan --init-weights whole/fold_0/best.safetensors --fold 0 --out blind
says "cannot be checked: --no-scan"
call 0 "$build/fold_metrics" blind
says "is not known in 1 of 1 folds"
$python - <<'PY' # as an older version wrote it
import json, struct
raw = open("whole/fold_0/best.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8:8 + n])
assert header["__metadata__"].pop("provenance")
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("old.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + n:])
PY
call 0 "$train" --data new.h5 "${options[@]}" --init-weights old.safetensors --fold 0 --out from_old
says "the file does not list the cells it was trained on"
call 0 "$predict" --model old.safetensors --data bare.h5 --out p.csv "${device[@]:0:2}"
check "predict says what it cannot check" grep -q "1 of 1 weight files carry no provenance" out

# ---- another number of classes: the last layer starts from random weights
edit d.h5 three.h5 "v = f['label'][:]; v[::5] = 2; put('label', v); f.attrs['class_names'] = np.array(['a', 'b', 'c'], dtype=h5py.string_dtype())"
call 0 "$train" --data three.h5 "${options[@]}" --init-weights whole/fold_0/best.safetensors --out three
says "its last layer (head.fc2) starts from random weights"
call 3 "$predict" --model three --data d.h5 --out p.csv "${device[@]:0:2}"

# ---- what is not finite
$python - <<'PY' || fail "python"
import json, struct, numpy as np
raw = open("whole/fold_0/best.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8:8 + n])
def change(path, edit):
    data = bytearray(raw[8 + n:])
    h = json.loads(raw[8:8 + n])
    h["__metadata__"].pop("sha256")
    edit({k: np.frombuffer(data, np.float32, offset=v["data_offsets"][0], count=(v["data_offsets"][1] - v["data_offsets"][0]) // 4)
          for k, v in h.items() if k != "__metadata__"})
    text = json.dumps(h).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + bytes(data))
def extreme(t):
    for k in t:
        if k.endswith("conv.weight") or "conv1.weight" in k or "fc" in k and k.endswith("weight"):
            t[k][:] = 1e30
def variance(t):
    t["stem.conv.weight"][:] *= np.float32(1e25)
change("extreme.safetensors", extreme)
change("variance.safetensors", variance)
PY
call 1 "$predict" --model extreme.safetensors --data new.h5 --out extreme.csv "${device[@]:0:2}"
says "the network's output for cell "
says "extreme.safetensors"
check "no predictions were written" test ! -e extreme.csv
call 1 "$train" --data d.h5 "${options[@]}" --cv group --holdout-group donor_2 --init-weights variance.safetensors --out overflow
check "no fold with a variance that no program reads is done" test ! -e overflow/fold_0/DONE -a ! -e overflow/fold_1/DONE
check "they have failed, and say why" grep -qE "not (a )?finite" overflow/fold_0/FAILED
for again in 1 2; do
    call 1 "$train" --resume --out overflow
    check "resumed ($again), it ends in the same way" test -e overflow/fold_0/FAILED
done

# ---- finished folds that are not whole are found before anything is trained
broken() { # broken FILE COMMAND TEXT
    rm -rf r
    cp -r whole r
    rm r/fold_1/DONE
    (cd r/fold_0 && eval "$2" "$1")
    call 3 "$train" --resume --out r
    says "fold 0 is marked as done, but $3"
    says "remove r/fold_0/DONE and resume"
    check "nothing was trained" test ! -e r/fold_1/DONE
    rm r/fold_0/DONE
    call 0 "$train" --resume --out r
    check "that is the way on" test "$(digest r)" = "$(digest whole)"
}
broken best.safetensors "rm" "cannot read r/fold_0/best.safetensors"
broken best.safetensors "truncate -s 5000" "r/fold_0/best.safetensors"
broken predictions.csv "sed -i 3d" "r/fold_0/predictions.csv"
broken summary.json "rm" "cannot read r/fold_0/summary.json"
finish
