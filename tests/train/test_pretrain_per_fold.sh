#!/usr/bin/env bash
# train_cv --pretrain-per-fold: no cell of a fold's test or validation set, nor one that is held out, has any part in its encoder (by
# what the encoder says it saw, and by other photons in those cells); what it makes is what pretrain makes; killed anywhere and
# resumed, shared among workers, moved, it ends in the same bytes; a stage of kind pretraining is the same; what is refused.
# Usage: test_pretrain_per_fold.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
simulate k.h5 --height 9 --width 9
simulate more.h5 --height 9 --width 9 --seed 4
simulate large.h5 --height 11 --width 11 --seed 4
train=$build/train_cv
own="--epochs 2 --warmup-epochs 1 --batch 8 --accumulate 1 --lr 3e-3"
common=(--data k.h5 --preset nano --folds 2 --cv group --epochs 2 --batch 16 --lr 3e-3 "${device[@]}" --workers 2)
options=("${common[@]}" --pretrain-per-fold --pretraining "$own")

# Of a run: all that does not depend on when and how it went, the encoders and their histories too.
all() { echo "$(digest "$1") $(cd "$1" && sha256sum */pretraining/encoder.safetensors */pretraining/splits.json && cut -d, -f1-15 */pretraining/pretraining/history.csv)" | sha256sum; }
tensors() { # sha256 of the tensors of a weight file, its header left out
    python3 -c '
import hashlib, struct, sys
data = open(sys.argv[1], "rb").read()
print(hashlib.sha256(data[8 + struct.unpack("<Q", data[:8])[0]:]).hexdigest())' "$1"
}
cat >about.py <<'P'
"""about.py RUN FOLD EXPRESSION: of the encoder's provenance e, the fold's weights' w, the splits' fold f, names of groups g(cells)."""
import base64, csv, json, struct, sys
def provenance(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return json.loads(header["__metadata__"]["provenance"])
def cells(p, *keys):
    text = b"".join(base64.b64decode(p["cells"][k]) for k in keys)
    return {text[i:i + 8] for i in range(0, len(text), 8)}
run, k = sys.argv[1], sys.argv[2]
splits = json.load(open(run + "/splits.json"))
f = splits["folds"][int(k)] if k != "final" else None
folder = run + ("/final" if k == "final" else "/fold_" + k)
e = provenance(folder + "/pretraining/encoder.safetensors")
w = provenance(folder + "/best.safetensors")
group = [row["group"] for row in csv.DictReader(open("cells.csv"))]
g = lambda list: sorted({group[i] for i in list})
sys.exit(not eval(sys.argv[3]))
P
call 0 "$build/flim_info" --cells cells.csv k.h5

# ---- what it sees
call 0 "$train" "${options[@]}" --final --holdout-group donor_6 --out whole
want=$(all whole)
for k in 0 1; do
    check "fold $k: its encoder saw its training set, all of it, and no other cell" python3 about.py whole $k \
        'cells(e, "train", "val") == cells(w, "train") and len(cells(e, "train", "val")) == len(f["train"]) and not cells(e, "inherited")'
    check "fold $k: none of the groups that it tests, validates or holds out" python3 about.py whole $k \
        'e["donors"] == g(f["train"]) and not set(e["donors"]) & set(g(f["test"] + f["val"]) + ["donor_6"])'
    check "fold $k: and says which fold's it is, of these splits" python3 about.py whole $k \
        'e["fold"] == '$k' and e["folds"] == 2 and e["splits_sha256"] == w["splits_sha256"] and e["kind"] == "pretraining"'
    check "fold $k: its weights inherit that" python3 about.py whole $k 'cells(w, "inherited") == cells(e, "train", "val")'
    check "fold $k: its history is kept" test "$(wc -l <whole/fold_$k/pretraining/pretraining/history.csv)" = 3
    check "fold $k: no checkpoint is left" test -z "$(find whole/fold_$k -name '*.ckpt' -o -name '*.tmp')"
done
check "the final model's saw all cells but those that are held out" python3 about.py whole final \
    'e["fold"] == -1 and len(cells(e, "train", "val")) == len(group) - group.count("donor_6") and "donor_6" not in e["donors"]'
check "the summary names it" python3 -c '
import json
s = json.load(open("whole/summary.json"))
assert "epochs=2 batch=8" in s["pretraining"]["settings"] and s["holdout_cells_seen_by_init_weights"] == 0
assert all(f["test_cells_seen_by_init_weights"] == 0 for f in s["folds"]), s["folds"]'
check "so does the table" grep -q "^Each fold started from an encoder that was pretrained on its own training set" out
check "so does the run's identity" grep -q '"pretraining": "per fold ' whole/resume.json
check "an estimate says that pretraining is not in it" grep -q "the pretraining of further folds comes on top" whole/train.log
call 0 "$build/fold_metrics" whole --html page.html
check "so does the report" grep -q "pretrained on its own training set" page.html
for folder in fold_0 final; do
    call 0 "$build/predict" --data k.h5 --model whole/$folder --out of_folder.csv
    call 0 "$build/predict" --data k.h5 --model whole/$folder/best.safetensors --out of_file.csv
    check "the folder $folder stands for its weights, though it holds a pretraining" cmp of_folder.csv of_file.csv
done
call 2 "$build/predict" --data k.h5 --model whole/fold_0/pretraining --out none.csv
says "is a pretraining, whose encoder tells no classes apart"
python=$(for p in python3 /usr/bin/python3; do $p -c 'import h5py' 2>/dev/null && echo $p && break; done)
if [ -n "$python" ]; then
    "$python" - <<'P'
import h5py, json, shutil
f = json.load(open("whole/splits.json"))
never = set(f["folds"][0]["test"] + f["folds"][0]["val"] + f["holdout"])
shutil.copy("k.h5", "other.h5")
shutil.copy("k.h5", "renamed.h5")
with h5py.File("other.h5", "a") as h:
    for i in never:
        h["counts"][i] = h["counts"][i][::-1] + 3
with h5py.File("renamed.h5", "a") as h: # every cell of k.h5 once more, under a group that is trained on
    h["group"][:] = [h["group"][f["folds"][0]["train"][0]]] * len(h["group"])
    del h["label"]
shutil.copy("more.h5", "odd.h5")
with h5py.File("odd.h5", "a") as h:
    h["group"][0] = h["group"][0].decode().replace("donor_", "Donor-")
    h["counts"][1] = 0
# The same cells otherwise: flipped, turned, in twice the counts, later in time, with a mask of their own; and all of these.
make = {"flipped": lambda c: c[..., ::-1], "turned": lambda c: c.swapaxes(2, 3), "doubled": lambda c: 2 * c,
        "rolled": lambda c: c[:, list(range(-3, c.shape[1] - 3))], "masked": lambda c: c}
make["all"] = lambda c: make["flipped"](make["turned"](make["doubled"](make["rolled"](c))))
for name, change in make.items():
    shutil.copy("renamed.h5", name + ".h5")
    with h5py.File(name + ".h5", "a") as h:
        h["counts"][...] = change(h["counts"][...])
        if name in ("masked", "all"):
            h["mask"][:, 4, 2:] = 1 - h["mask"][:, 4, 2:]
        elif name in ("flipped", "turned"): # as the counts
            h["mask"][...] = change(h["mask"][...][:, None])[:, 0]
P
    call 0 "$train" "${options[@]/#k.h5/other.h5}" --final --holdout-group donor_6 --out other
    check "other photons in the cells that it may not see change no bit of fold 0's encoder" \
        test "$(tensors other/fold_0/pretraining/encoder.safetensors)" = "$(tensors whole/fold_0/pretraining/encoder.safetensors)"
    check "but of fold 1's, which sees some of them" \
        test "$(tensors other/fold_1/pretraining/encoder.safetensors)" != "$(tensors whole/fold_1/pretraining/encoder.safetensors)"
    call 0 "$train" "${options[@]}" --holdout-group donor_6 --pretraining-data renamed.h5 --fold 0 --out copies
    check "copies of cells that it may not see are not seen under another name, either" python3 about.py copies 0 \
        'cells(e, "train", "val") == cells(w, "train")'
    check "those of its training set are" grep -q "Cells: $((2 * $(python3 -c 'import json; print(len(json.load(open("copies/splits.json"))["folds"][0]["train"]))') - 2)) to train on" copies/fold_0/pretraining/train.log
    train_cells=$(python3 -c 'import json; print(len(json.load(open("copies/splits.json"))["folds"][0]["train"]))')
    "$python" - <<'P'
import h5py, shutil
shutil.copy("more.h5", "spelt.h5")
with h5py.File("spelt.h5", "a") as h:
    h["group"][:] = [g.decode().replace("donor_", "Donor-") for g in h["group"][:]]
P
    call 0 "$train" "${options[@]}" --pretraining-data odd.h5 --dry-run
    says "warning: --pretraining-data: 1 of 72 cells has no photons"
    says "warning: --pretraining-data: groups 'Donor-"
    call 0 "$train" "${options[@]}" --pretraining-data spelt.h5 --fold 0 --out spelt
    check "the log names it" grep -q "^note: group 'Donor-1' of the further files differs only by .* from 'donor_1'" spelt/fold_0/pretraining/train.log
    check "a donor whose name is written otherwise there is the same donor" grep -q "^Cells: 46 to train on, 2 " spelt/fold_0/pretraining/train.log
    check "and counted so" grep -q "24 of the 72 of --pretraining-data" spelt/train.log
    check "one fold has no further ones whose pretraining takes time" test "$(grep -c "further folds" spelt/train.log)" = 0
    for likeness in flipped turned doubled rolled masked all; do
        call 0 "$train" "${options[@]}" --holdout-group donor_6 --pretraining-data $likeness.h5 --fold 0 --out $likeness
        check "copies that are $likeness are not seen, either" grep -q "^Cells: $((2 * train_cells - 2)) to train on, 2 " $likeness/fold_0/pretraining/train.log
        check "and not promised" grep -q "fold 0: pretraining on the $train_cells cells of its training set and $train_cells of the 72 of" $likeness/train.log
    done
fi
call 0 "$train" "${options[@]}" --pretraining-data more.h5 --dry-run
says_out() { check "stdout says '$1'" grep -qE -- "$1" out; }
says_out "Pretraining per fold: .* epochs=2 batch=8"
says_out "fold 0: pretraining on the 24 cells of its training set and 24 of the 72 of --pretraining-data"
call 0 "$train" "${options[@]}" --pretraining-data more.h5 --fold 1 --dry-run
check "of one fold its own pretraining alone" test "$(grep -o 'fold [0-9]: pretraining on' out)" = "fold 1: pretraining on"
check "a dry run makes nothing" test ! -e runs
call 0 "$train" "${options[@]}" --pretraining-data more.h5 --out more
check "further files: the cells of groups that the fold trains on, and no others" python3 about.py more 0 \
    'e["donors"] == g(f["train"]) and e["files"] == ["k.h5", "more.h5"] and len(cells(e, "train", "val")) == 48 and cells(e, "train", "val") > cells(w, "train")'
mv more.h5 kept.h5
simulate more.h5 --height 9 --width 9 --seed 5
rm -f more/fold_1/DONE
call 3 "$train" --resume --out more
says "counts was"
mv -f kept.h5 more.h5
call 0 "$train" --resume --out more

# ---- it is what the program pretrain makes
# shellcheck disable=SC2086
call 0 "$build/pretrain" --data k.h5 --preset nano "${device[@]}" --workers 1 $own --splits whole --fold 1 --train-set-only --out alone
check "pretrain --splits RUN --fold K --train-set-only makes the same bytes" cmp alone/encoder.safetensors whole/fold_1/pretraining/encoder.safetensors
call 0 "$train" "${common[@]}" --holdout-group donor_6 --pretrained alone/encoder.safetensors --fold 1 --out from
check "and --pretrained the same weights" test "$(tensors from/fold_1/best.safetensors)" = "$(tensors whole/fold_1/best.safetensors)"
printf 'stages:\n  - name: pre\n    kind: pretraining\n    epochs: 2\n    warmup_epochs: 1\n    batch: 8\n    accumulate: 1\n    lr: 3e-3\n  - probe epochs=1 freeze_encoder=true\n  - tune epochs=1\n' >stages.yaml
call 0 "$train" --config stages.yaml "${common[@]}" --holdout-group donor_6 --fold 0 --out staged
check "a stage of kind pretraining makes the same encoder" cmp staged/fold_0/pretraining/encoder.safetensors whole/fold_0/pretraining/encoder.safetensors
check "and is followed by the others" test "$(cut -d, -f27 staged/fold_0/history.csv | tr '\n' ' ')" = "stage probe tune "
check "config.yaml gives the same run" bash -c "cd staged && '$train' --config config.yaml --print-config | cmp - config.yaml"

# ---- stopped, killed, resumed, shared, moved
stopped=("${options[@]}" --final --holdout-group donor_6 --out)
for at in "train:1:9" "line=fold 0 pretraining epoch 1:1:9" "rename=state.ckpt:2:9" "rename=encoder.safetensors:1:9" \
    "rename=pretraining/DONE:1:9" "train:8:9" "line=fold 1 pretraining epoch 2:1:15" "line=final model pretraining epoch 1:1:9"; do
    rm -rf r
    env FLIM_AIM="$at" "$faulty" "${stopped[@]}" r >out 2>err
    check "stopped at $at" test $? -gt 128
    check "there is a run to resume" test -e r/config.yaml
    call 0 "$train" --resume --out r
    check "stopped at $at and resumed: the undisturbed run's bytes" test "$(all r)" = "$want"
done
check "a signal is told of once, with what resumes the run" test "$(grep -c "interrupted; resume with: train_cv --resume --out r" err)" -le 1
call 143 env FLIM_AIM=train:2:15 "$faulty" "${stopped[@]}" here
check "it says how to resume the run, not the pretraining" test "$(grep -o 'resume with: .*' out err | grep -c 'train_cv --resume --out here$')" = 1
mv here moved
call 0 "$train" --resume --out moved
check "a run folder that has moved: the same bytes" test "$(all moved)" = "$want"
call 0 "$train" "${stopped[@]}" jobs --jobs 2
check "two workers end in the same bytes" test "$(all jobs)" = "$want"
FLIM_AIM=train:2:9 "$faulty" "${stopped[@]}" part --fold 1 >/dev/null 2>&1
call 0 "$train" --resume --out part --jobs 2
check "workers continue a pretraining that was killed" test "$(all part)" = "$want"
FLIM_AIM="line=fold 0 pretraining epoch 1:1:19" "$faulty" "${stopped[@]}" busy >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do grep -qs "pretraining epoch 1" busy/train.log && break; sleep 0.05; done
call 2 "$train" --resume --out busy --fold 0
says "in use by another process"
kill -KILL $pid
wait $pid 2>/dev/null
call 0 "$train" "${options[@]}" --seeds 1,2 --fold 0 --out seeds
check "each seed has an encoder of its own" bash -c '! cmp -s seeds/seed_1/fold_0/pretraining/encoder.safetensors seeds/seed_2/fold_0/pretraining/encoder.safetensors'
call 1 env FLIM_INFINITE_CELL=0 "$faulty" "${options[@]}" --out failed
check "a pretraining that is not finite fails its fold" grep -q "pretraining" failed/fold_*/FAILED
cp -r whole swapped
rm -f swapped/fold_0/DONE
cp whole/fold_1/pretraining/encoder.safetensors swapped/fold_0/pretraining/
call 3 "$train" --resume --out swapped
says "fold"

# ---- refused, before a folder is made
bad() { # bad TEXT ARGS...
    makes_no_run "$1" "$train" "${common[@]}" "${@:2}"
}
bad "needs pretrain_per_fold" --pretraining "--epochs 3"
bad "needs pretrain_per_fold" --pretraining-data more.h5
bad "preset is the run's" --pretrain-per-fold --pretraining "--preset tiny"
bad "did you mean --epochs" --pretrain-per-fold --pretraining "--epoch 3"
bad "must be fewer than epochs" --pretrain-per-fold --pretraining "--epochs 3 --warmup-epochs 3"
bad "more than 256 words" --pretrain-per-fold --pretraining "$(printf -- '--epochs 2 %.0s' {1..200})"
bad "must be even" --pretrain-per-fold --pretraining "--contrastive 0.1 --batch 7"
bad "give one of them" --pretrain-per-fold --pretrained alone/encoder.safetensors
bad "give one of them" --pretrain-per-fold --init-weights x
bad "give one of them" --pretrain-per-fold --parallel data
bad "leave --no-scan out" --pretrain-per-fold --no-scan
bad "--contrastive-pairs class says what a pair is" --pretrain-per-fold --pretraining "--contrastive-pairs class"
bad "--masked-loss squared is about hidden voxels" --pretrain-per-fold --pretraining "--masked-loss squared --mask-ratio 0 --contrastive 0.1"
bad "--contrastive-pairs class says what a pair is" --stages "a kind=pretraining contrastive_pairs=class"
bad "is of kind training" --stages "a kind=pretrain"
bad "is the first stage" --stages b --stages "a kind=pretraining"
bad "is the first stage" --stages "a kind=pretraining" --stages "b kind=pretraining"
bad "give one of them" --stages "a kind=pretraining" --pretrain-per-fold
bad "dropout is the run's" --stages "a kind=pretraining dropout=0.1"
bad "one of them is of kind pretraining" --stages "a kind=pretraining" --stages b --stage b
call 3 "$train" "${options[@]}" --pretraining-data large.h5 --out bad
call 2 "$train" "${options[@]}" --pretraining-data k.h5 --out bad
says "k.h5 is given twice"
check "nor by a file that is the data" test ! -e bad
call 2 "$train" --resume --out whole --pretraining "--epochs 3"
says "pretraining (run:"
finish
