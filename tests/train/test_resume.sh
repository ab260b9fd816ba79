#!/usr/bin/env bash
# What --resume refuses, naming each difference, and what --resume-override takes: data, splits, network, precision, settings by flag
# and by hand, damaged and foreign checkpoints, a folder that is in use, a stale lock.
# Usage: test_resume.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
train=$build/train_cv
options=(--preset tiny --folds 2 --epochs 3 --batch 16 --lr 1e-3 --device cpu --workers 2)
call 0 "$train" --data k.h5 "${options[@]}" --out whole
want=$(digest whole)
cp k.h5 d.h5
# Stopped inside the second epoch of fold 0, and (half) inside the first, after one batch of 8 cells.
call 143 env FLIM_AIM=train:3:15 "$faulty" --data d.h5 "${options[@]}" --out begun
call 143 env FLIM_AIM=train:1:15 "$faulty" --data d.h5 "${options[@]}" --batch 8 --out half
again() { # a fresh copy of the stopped run
    rm -rf r
    cp -r "${1:-begun}" r
}
state() { (cd r && find . -type f ! -name train.log ! -name .lock -exec sha256sum {} + | sort) | sha256sum; }
refuses() { # refuses CODE TEXT ARGS...: nothing of the run changes
    local code=$1 text=$2 before
    shift 2
    before=$(state)
    call "$code" "$train" --resume --out r "$@"
    says "$text"
    check "the error is one line: $text" test "$(grep -c . err)" -le 2
    check "a refused --resume $* leaves the run as it was" test "$(state)" = "$before"
}

# ---- flags
again
refuses 2 "lr (run: 0.001, this call: 0.01)" --lr 1e-2
says "add --resume-override"
refuses 2 "precision (run: auto, this call: fp16)" --precision fp16
refuses 2 "tta (run: false, this call: true)" --tta
says "--resume-override"
refuses 2 "seed (run: 42, this call: 7)" --seed 7
says "start a new run"
refuses 2 "augment (run: [auto], this call: [flim])" --augment flim
refuses 2 "preset (run: tiny, this call: small)" --preset small --lr 1e-2
says "lr (run:"
for flag in "--seed 7" "--folds 3" "--preset small" "--monitor f1" "--val-fraction 0.3" "--cv group" "--mask-counts" "--holdout-group D0" \
    "--axes NTXY" "--splits s.json" "--init-weights w" "--refit" "--test-groups D0" "--train-groups D0" "--val-groups D0" "--fraction 0.5" \
    "--exclude s.csv" "--threshold-for kmeans"; do
    # shellcheck disable=SC2086
    refuses 2 "this cannot be overridden" --resume-override $flag
done
call 2 "$train" --resume-override --out r
says "--resume-override needs --resume"
call 0 "$train" --resume --out r --workers 5 --prefetch 2 --cache none --device cpu --checkpoint-minutes 1 --data d.h5 --epochs 3
check "run control, and flags that agree, are taken: the files are the undisturbed run's" test "$(digest r)" = "$want"

# ---- a config beside --resume counts as the flags do
again
printf 'include: below.yaml\nepochs: 3\n' >above.yaml
printf 'preset: tiny\nlr: 0.01\n' >below.yaml
refuses 2 "lr (run: 0.001, this call: 0.01)" --config above.yaml
refuses 2 "lr (run: 0.001, this call: 0.02)" --config above.yaml --lr 0.02
printf 'preset: tiny\nworkers: 3\n' >below.yaml
call 0 "$train" --resume --out r --config above.yaml
check "one that agrees changes nothing" test "$(digest r)" = "$want"
call 0 "$train" --data d.h5 "${options[@]}" --batch auto --fold 0 --out auto
call 0 "$train" --data d.h5 "${options[@]}" --batch auto --out auto --resume # the same call, to go on
call 2 "$train" --resume --out auto --batch 5
says "batch (run: "

# ---- data
change() { # change CODE NAMES PYTHON: d.h5 is made from k.h5 by a line of Python
    if ! /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
        echo "left out: changed data, /usr/bin/python3 has no h5py"
        return
    fi
    again
    cp k.h5 d.h5
    /usr/bin/python3 -c "
import h5py, numpy as np
f = h5py.File('d.h5', 'r+')
def put(name, value):
    del f[name]
    f[name] = value
$3" || fail "python: $3"
    refuses 3 "$1"
    for name in $2; do check "the error names $name" grep -qE "(: |, )$name was [^ ]+ and is [^ ]+" err; done
    refuses 3 "cannot be overridden" --resume-override
    cp k.h5 d.h5
}
change "this differs from how" labels "v = f['label'][:]; v[[0, 1]] = v[[1, 0]] if v[0] != v[1] else 1 - v[[0, 1]]; put('label', v)"
change "this differs from how" groups "v = f['group'].asstr()[:] if f['group'].dtype.kind == 'O' else f['group'][:].astype(str); v[0] = v[-1]; put('group', v.astype('S16'))"
change "this differs from how" "cells labels groups names" "
for name in list(f):
    if f[name].shape and f[name].shape[0] == 72: put(name, f[name][:71])"
change "this differs from how" "shape" "put('counts', f['counts'][:, :12])"
change "this differs from how" counts "v = f['counts'][:]; v[3, 2, 10, 10] += 1; put('counts', v)"
again
mkdir -p moved && cp k.h5 moved/there.h5
refuses 2 "data (run: [d.h5], this call: [moved/there.h5])" --data moved/there.h5
call 0 "$train" --resume --resume-override --out r --data moved/there.h5
says "data [d.h5] -> [moved/there.h5]"
check "that is no other run" test "$(grep -c 'from here on the run is another one' err)" = 0
check "the same data in another place: the undisturbed run's files" test "$(digest r)" = "$want"

cp whole/fold_0/best.safetensors w.safetensors
call 0 "$train" --data k.h5 "${options[@]}" --init-weights w.safetensors --out from_w
call 143 env FLIM_AIM=train:3:15 "$faulty" --data k.h5 "${options[@]}" --init-weights w.safetensors --out cut_w
mv w.safetensors moved/
call 3 "$train" --resume --out cut_w
says "cannot read w.safetensors"
call 2 "$train" --resume --out cut_w --init-weights moved/w.safetensors
says "init_weights (run: w.safetensors, this call: moved/w.safetensors)"
call 2 "$train" --resume --resume-override --out cut_w --init-weights whole/fold_1/best.safetensors
says "Of these, init_weights cannot be overridden"
call 0 "$train" --resume --resume-override --out cut_w --init-weights moved/w.safetensors
check "the same weights in another place: the undisturbed run's files" test "$(digest cut_w)" = "$(digest from_w)"

# ---- splits, network, settings changed by hand
again
sed -i '0,/"val": \[/s//"val": [ /' r/splits.json
refuses 2 "splits was "
says "cannot be overridden"
again
sed -i 's/^preset: .*/preset: small/' r/config.yaml
refuses 2 "width was 8 and is 16"
says "cannot be overridden"
again
sed -i 's/^threshold_for: .*/threshold_for: f1/' r/config.yaml
refuses 2 "threshold_for was balanced_accuracy and is f1"
again
sed -i 's/^dropout: .*/dropout: 0.5/; s/^sampler: .*/sampler: natural/' r/config.yaml
refuses 2 "dropout was 0.25 and is 0.5, sampler was balanced and is natural"
says "--resume-override"
call 0 "$train" --resume --resume-override --out r
says "dropout was 0.25 and is 0.5, sampler was balanced and is natural"
again
sed -i 's/"device": "cpu"/"device": "cuda"/; s/"precision": "fp32"/"precision": "tf32"/' r/resume.json
sed -i 's/device cpu/device cuda/; s/precision fp32/precision tf32/' r/resume.json
refuses 2 "device was cuda and is cpu, precision was tf32 and is fp32"

# ---- override: listed, kept in resume.json and config.yaml, and good for a plain --resume afterwards
again
call 143 env FLIM_AIM=train:1:15 "$faulty" --resume --resume-override --out r --lr 5e-4 --epochs 4 --patience 0
says "--resume-override: epochs 3 -> 4"
says "--resume-override: lr 0.001 -> 0.0005"
says "--resume-override: patience 20 -> 0"
says "the run differs from an undisturbed one in its numbers"
check "resume.json keeps what was overridden" grep -q "epochs was 3 and is 4, lr was 0.001 and is 0.0005" r/resume.json
check "config.yaml has the new settings" bash -c "grep -q '^epochs: 4' r/config.yaml && grep -q '^lr: 0.0005' r/config.yaml && grep -q '^resume: false' r/config.yaml"
call 0 "$train" --resume --out r
check "four epochs were trained" test "$(wc -l <r/fold_0/history.csv)" = 5 -a "$(wc -l <r/fold_1/history.csv)" = 5
check "the first row is the old run's" cmp <(sed -n 2p whole/fold_0/history.csv | cut -d, -f1-13) <(sed -n 2p r/fold_0/history.csv | cut -d, -f1-13)
call 2 "$train" --resume --out r --lr 1e-3
says "lr (run: 0.0005, this call: 0.001)"
again
for at in "rename=resume.json:1" "rename=config.yaml:1"; do # killed while it overrides: the run goes on, as before or as asked
    again
    call 137 env FLIM_AIM="$at:9" "$faulty" --resume --resume-override --out r --lr 5e-4
    call 0 "$train" --resume --out r
    check "killed at $at, it goes on" test -e r/summary.json
done

# ---- fewer and more epochs than the checkpoint has
again
call 0 "$train" --resume --resume-override --out r --epochs 1
check "an epoch in progress is finished, and is the last" test "$(wc -l <r/fold_1/history.csv)" = 2

# ---- another batch: the same effective size goes on where the checkpoint stands
cells() { sed -n 2p "$1/fold_0/history.csv" | cut -d, -f11; }
updates() { sed -n 2p "$1/fold_0/history.csv" | cut -d, -f12; }
again half
call 0 "$train" --resume --resume-override --out r --batch 4 --accumulate 2
says "batch 8 -> 4"
says "accumulate 1 -> 2"
check "every cell of the epoch was seen once" test "$(cells r)" = "$(cells whole)"
check "the updates are those of 8 cells each" test "$(updates r)" = $((($(cells r) + 7) / 8))
again half
call 2 "$train" --resume --resume-override --out r --batch 16
says "its checkpoint is 8 cells inside an epoch"
call 0 "$train" --resume --resume-override --out r --batch 2
check "a batch that divides the place will do" test "$(cells r)" = "$(cells whole)"
check "the updates are one of 8, then of 2 cells" test "$(updates r)" = $((1 + ($(cells r) - 7) / 2))

# ---- damaged and foreign checkpoints: the previous one with a notice, else an error that names the file
again
newest=r/fold_0/checkpoint/state.ckpt previous=r/fold_0/checkpoint/state.previous.ckpt
check "there are two checkpoints" test -s $newest -a -s $previous
head -c 1000 $newest >cut.ckpt && cp cut.ckpt $newest
call 0 "$train" --resume --out r
says "resuming from r/fold_0/checkpoint/state.previous.ckpt instead"
check "with the previous one, the files are the undisturbed run's" test "$(digest r)" = "$want"
again
: >$newest
rm $previous
refuses 3 "$newest: not a checkpoint of flimcv (0 bytes)"
again
cp half/fold_0/checkpoint/state.ckpt other.ckpt
call 143 env FLIM_AIM=train:3:15 "$faulty" --data k.h5 "${options[@]}" --seed 5 --out foreign
cp foreign/fold_0/checkpoint/state.ckpt $newest
refuses 2 "belongs to another run: "
says "seed 5 there, seed 42 here"

# ---- weights that were saved predict what was predicted before they were saved
call 0 "$build/predict" --model whole/fold_0/best.safetensors --data k.h5 --out again.csv --device cpu --batch 5
check "predict gives the logits of predictions.csv again" bash -c "
    cut -d, -f1,6 again.csv | tail -n +2 | sort >a; cut -d, -f1,6 whole/fold_0/predictions.csv | tail -n +2 | sort >b
    test \"\$(wc -l <b)\" -gt 10 && test -z \"\$(comm -13 a b)\""

# ---- two on one folder; a lock that a kill has left
again
FLIM_AIM=line=resuming:1:19 "$faulty" --resume --out r >/dev/null 2>&1 & # stopped in its tracks
other=$!
for _ in $(seq 100); do [ "$(cut -d' ' -f3 /proc/$other/stat 2>/dev/null)" = T ] && break; sleep 0.1; done
call 2 "$train" --resume --out r --fold 0
says "fold 0 of r is in use by another process (process $other on $(uname -n))"
check "it is found before the data is read" bash -c '! grep -q Data: out'
kill -9 $other
wait $other 2>/dev/null
call 0 "$train" --resume --out r
check "a stale lock is recognised" grep -q "stale lock: process $other on $(uname -n)" out
check "after all that the files are the undisturbed run's" test "$(digest r)" = "$want"
call 0 "$train" --resume --out r
check "a clean end leaves no stale lock" bash -c '! grep -q stale out'
finish
