#!/usr/bin/env bash
# pretrain: what it sees and what it never sees, what it writes, what it refuses; killed at random moments (3 times; FLIM_LONG=1: 30) it
# ends in the undisturbed run's files, byte for byte.
# Usage: test_pretrain.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
"$build/flim_info" k.h5 --cells cells.csv >/dev/null || exit 1 # index, name, group, ...
pretrain=$build/pretrain
options=(--mask-ratio 0.6 --contrastive 0.1 --preset nano --epochs 4 --warmup-epochs 1 --batch 16 --accumulate 2 --lr 3e-3 "${device[@]}" --workers 2)

# Times aside, all that a pretraining leaves.
same() { (cd "$1" && sha256sum encoder.safetensors splits.json && cut -d, -f1-15 pretraining/history.csv | sha256sum) 2>&1 | sha256sum; }
# about FILE EXPRESSION: of the encoder's provenance p, its tensors' names and shapes t, its other metadata m.
about() {
    python3 - "$1" "$2" <<'END'
import base64, json, struct, sys
with open(sys.argv[1], "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
m = header.pop("__metadata__")
t = {name: tuple(about["shape"]) for name, about in header.items()}
p = json.loads(m["provenance"])
cells = lambda key: len(base64.b64decode(p["cells"][key])) // 8
sys.exit(not eval(sys.argv[2]))
END
}

# ---- what it writes
call 0 "$pretrain" --data k.h5 "${options[@]}" --groups-out donor_2,donor_5 --val-groups donor_3 --out whole
check "the end says what comes next" grep -q "Next: train_cv --pretrained whole/encoder.safetensors" err out
check "an encoder has the classifier's tensors, and no others" about whole/encoder.safetensors \
    't["stem.conv.weight"] == (4, 2, 7, 1, 1) and t["res3.skip.bn.running_var"] == (16,) and not any(n.startswith(("head", "decoder", "projector")) for n in t)'
check "and says what it is" about whole/encoder.safetensors \
    'p["kind"] == "pretraining" and p["classes"] == [] and p["fold"] == -1 and p["files"] == ["k.h5"] and "class_names" not in m'
check "it names the donors that it saw" about whole/encoder.safetensors 'p["donors"] == ["donor_1", "donor_3", "donor_4", "donor_6"]'
check "and their cells, apart" about whole/encoder.safetensors 'cells("train") == 36 and cells("val") == 12 and cells("inherited") == 0'
check "history.csv has the columns of a pretraining" grep -q "^epoch,lr,train_loss,pairs_found,hidden_loss,bits_per_photon,val_hidden_loss,val_bits_per_photon,grad_norm,cells" whole/pretraining/history.csv
check "the warm-up begins at a hundredth" test "$(sed -n 2p whole/pretraining/history.csv | cut -d, -f2)" = 3e-05
check "it learns" python3 -c '
import csv
rows = list(csv.DictReader(open("whole/pretraining/history.csv")))
assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])'
check "no checkpoint is left" test -z "$(find whole -name '*.ckpt' -o -name '*.tmp')"
call 0 "$pretrain" --data k.h5 "${options[@]}" --groups-out donor_2 --groups-out donor_5 --val-groups donor_3 --workers 1 --cache none --out again
check "the same call gives the same bytes, whatever the threads and the cache" test "$(same again)" = "$(same whole)"
call 2 "$build/predict" --model whole --data k.h5 --out p.csv --device cpu
says "fine-tune it with train_cv --pretrained whole/encoder.safetensors"
call 3 "$build/fold_metrics" whole
says "whole is a pretraining, which has no test results"
call 0 "$build/predict" --model whole --data k.h5 --embeddings folder.npy --device cpu --workers 2
call 0 "$build/predict" --model whole/encoder.safetensors --data k.h5 --embeddings file.npy --device cpu --workers 2
check "a pretraining's folder stands for its encoder" cmp folder.npy file.npy
call 3 "$build/train_cv" --data k.h5 --preset nano --folds 2 --epochs 1 "${device[@]}" --pretrained whole --out tuned
says "cannot read whole: it is a folder; its weights are whole/encoder.safetensors"
call 0 "$pretrain" --resume --out whole
check "a run that is done is left as it is" test "$(same again)" = "$(same whole)"

"$pretrain" --help >help
awk '/^## Every flag/ { found = 1 } found && /^```/ { inside = !inside; next } inside' "$top/docs/pretrain.md" >documented
check "the flags of docs/pretrain.md are --help's" diff help documented

# ---- what it never sees
python=$(for p in python3 /usr/bin/python3; do $p -c 'import h5py' 2>/dev/null && echo $p && break; done)
if [ -n "$python" ]; then
    "$python" - <<'END'
import h5py, shutil
shutil.copy("k.h5", "other.h5")
with h5py.File("other.h5", "a") as f:
    for i, group in enumerate(f["group"][:]):
        if group in (b"donor_2", b"donor_5"):
            f["counts"][i] = f["counts"][i][::-1] + 3
shutil.copy("k.h5", "unlabelled.h5")
with h5py.File("unlabelled.h5", "a") as f:
    del f["label"]
shutil.copy("k.h5", "pool.h5")
with h5py.File("pool.h5", "a") as f:
    f["group"][:] = b"pool"
for name, kind in ("hot.h5", "u4"), ("scaled.h5", "f4"):
    with h5py.File("k.h5") as f, h5py.File(name, "w") as g:
        counts = f["counts"][:].astype(kind)
        if name == "hot.h5":
            counts[7, 3, 4, 4] = 2000000000
        g["counts"] = counts if name == "hot.h5" else counts / counts.max() / 3
        for key in ("group", "label", "mask"):
            if key in f:
                g[key] = f[key][:]
shutil.copy("k.h5", "odd.h5")
with h5py.File("odd.h5", "a") as f:
    theirs = [i for i, group in enumerate(f["group"][:]) if group == b"donor_2"]
    f["group"][:] = [b"Donor-2" if i in theirs[::2] else group for i, group in enumerate(f["group"][:])]
    f["counts"][theirs[1]] = 0
END
    call 0 "$pretrain" --data other.h5 "${options[@]}" --groups-out donor_2,donor_5 --val-groups donor_3 --out unseen
    check "the photons of donors that are left out change no bit of a weight" python3 - <<'END'
def tensors(path):
    import struct
    data = open(path, "rb").read()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]
assert tensors("unseen/encoder.safetensors") == tensors("whole/encoder.safetensors")
END
    call 0 "$pretrain" --data unlabelled.h5 "${options[@]}" --groups-out donor_2,donor_5 --val-groups donor_3 --out nolabel
    check "labels change no bit" test "$(cut -d, -f3 nolabel/pretraining/history.csv)" = "$(cut -d, -f3 whole/pretraining/history.csv)"
    call 3 "$pretrain" --data unlabelled.h5 "${options[@]}" --contrastive-pairs class --out no
    call 0 "$pretrain" --data unlabelled.h5 --data k.h5 "${options[@]}" --epochs 2 --mask-ratio 0 --batch-from donor --out both
fi
call 0 "$build/train_cv" --data k.h5 --preset nano --folds 3 --cv group --epochs 1 "${device[@]}" --out run
call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --contrastive 0 --splits run --fold 1 --out fold
check "a fold of a run: none of its test cells, and where it belongs is said" about fold/encoder.safetensors \
    'p["fold"] == 1 and p["folds"] == 3 and p["splits_sha256"] == "'"$(sha256sum <run/splits.json | cut -c1-64)"'" and cells("train") + cells("val") == 72 - '"$(python3 -c 'import json; print(len(json.load(open("run/splits.json"))["folds"][1]["test"]))')"
# A run that uses half of the cells: those of tested donors that it leaves aside are not seen, either, nor is a copy of one.
call 0 "$build/train_cv" --data k.h5 --preset nano --folds 3 --cv group --fraction 0.5 --epochs 1 "${device[@]}" --out half
tested=$(python3 - <<'END'
import csv, json
donor = [c["group"] for c in csv.DictReader(open("cells.csv"))]
print(*sorted({donor[i] for i in json.load(open("half/splits.json"))["folds"][0]["test"]}))
END
)
call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --contrastive 0 --splits half --fold 0 --out halved
check "no cell of a donor that the fold tests" about halved/encoder.safetensors "len('$tested'.split()) == 2 and not set('$tested'.split()) & set(p['donors']) and len(p['donors']) == 4"
if [ -n "$python" ]; then # pool.h5 has the cells of k.h5, all of one group
    call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --contrastive 0 --splits half --fold 0 --train-set-only --pretraining-data pool.h5 --val-fraction 0 --out pooled
    expected=$(python3 - <<'END'
import csv, json
donor = [c["group"] for c in csv.DictReader(open("cells.csv"))]
fold = json.load(open("half/splits.json"))["folds"][0]
out = {donor[i] for i in fold["test"] + fold["val"]} - {donor[i] for i in fold["train"]}
print(len(fold["train"]) + sum(d not in out for d in donor))
END
)
    check "nor a copy, under another name, of a cell of such a donor that is in no part" grep -q "Cells: $expected to train on, 0 that are only evaluated" pooled/train.log
fi
call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --contrastive 0 --groups-out donor_2 --no-scan --out unscanned
says "copies of cells that are left out are not looked for (--no-scan)"
awk -F, '$3 == "donor_3" { print $1 }' cells.csv >third.txt
call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --contrastive 0 --exclude third.txt --val-groups donor_3,donor_4 --out excluded
check "what is left out by --exclude is not evaluated" about excluded/encoder.safetensors 'cells("train") == 48 and cells("val") == 12 and "donor_3" not in p["donors"]'
call 0 "$pretrain" --data k.h5 "${options[@]}" --ema 0 --groups-out donor_2,donor_5 --val-groups donor_3 --out last
check "--ema 0: the last weights, and the same losses" test "$(cut -d, -f3,8 last/pretraining/history.csv)" = "$(cut -d, -f3,8 whole/pretraining/history.csv)" \
    -a "$(same last)" != "$(same whole)"
call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --masked-loss squared --contrastive-pairs class --out class
for learns in "--contrastive 0" "--contrastive 0.1" "--contrastive 0.1 --mask-ratio 0" "--contrastive 0 --masked-loss squared"; do
    rm -rf auto
    # shellcheck disable=SC2086
    call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 $learns --val-fraction 0 --batch auto --out auto
    check "$learns --batch auto finds the largest, all views of an epoch" grep -q "^batch: $([[ $learns == *0.1* ]] && echo 144 || echo 72)\$" auto/config.yaml
done

call 0 "$pretrain" --data k.h5 "${options[@]}" --epochs 2 --val-fraction 0 --accumulate 6 --out views
check "two views of a cell: an epoch of 144 has two updates of 96" bash -c 'grep -q "16 x 6 = 96 views per step" views/train.log && ! grep -q "an epoch is one step" views/train.log'
check "history.csv says so" test "$(sed -n 2p views/pretraining/history.csv | cut -d, -f11)" = 2

# ---- what it refuses
call 2 "$pretrain" --data k.h5 --groups-out donor_9 --out no
says "donor_9"
call 2 "$pretrain" --data k.h5 --splits run --out no
says "go together"
call 2 "$pretrain" --data k.h5 --splits run --fold 3 --out no
says "has 3 folds"
call 2 "$pretrain" --data k.h5 --contrastive 0.1 --batch 15 --out no
says "must be even"
call 2 "$pretrain" --data k.h5 --contrastive 0 --mask-ratio 0 --out no
says "nothing to learn"
short=(--preset nano --epochs 1 --warmup-epochs 0 --batch 16 --workers 2 "${device[@]}")
for set in "--contrastive-pairs class --contrastive 0" "--set contrastive_pairs=class"; do
    # shellcheck disable=SC2086
    call 2 "$pretrain" --data k.h5 "${short[@]}" $set --out no
    says "--contrastive-pairs class says what a pair is, and without --contrastive there are none"
done
call 2 "$pretrain" --data k.h5 "${short[@]}" --contrastive 0.1 --mask-ratio 0 --masked-loss squared --out no
says "--masked-loss squared is about hidden voxels, and --mask-ratio is 0"
call 0 "$pretrain" --data k.h5 "${short[@]}" --contrastive 0.1 --mask-ratio 0 --masked-loss poisson --contrastive-pairs view --print-config
printf 'contrastive_pairs: class\nmasked_loss: squared\ncontrastive: 0.1\n' >ways.yaml
call 0 "$pretrain" --data k.h5 "${short[@]}" --config ways.yaml --contrastive 0 --print-config
call 0 "$pretrain" --data k.h5 "${short[@]}" --config ways.yaml --mask-ratio 0 --print-config
call 2 "$pretrain" --data k.h5 "${short[@]}" --config ways.yaml --mask-ratio 0 --masked-loss squared --out no
call 2 "$pretrain" --data k.h5 --groups-out donor_1 --val-groups donor_1 --out no
says "donor_1"
for set in holdout_group=donor_6 test_groups=donor_5 folds=3 fraction=0.3 class_weights=balanced diagnostics=true dry_run=true mixup=input patience=5; do
    call 2 "$pretrain" --data k.h5 "${short[@]}" --set $set --out no
    says "is a setting of train_cv, which a pretraining does not look at"
done
printf 'holdout_group: [donor_6]\n' >shared.yaml
call 2 "$pretrain" --data k.h5 "${short[@]}" --config shared.yaml --out no
says "holdout_group: [donor_6] is a setting of train_cv"
call 0 "$pretrain" --data k.h5 "${short[@]}" --config whole/config.yaml --out no --print-config
if [ -n "$python" ]; then
    call 3 "$pretrain" --data hot.h5 "${short[@]}" --out no
    says "cell 7 has 2000000000 photons in one voxel, and the Poisson loss is of up to 162754"
    call 0 "$pretrain" --data hot.h5 "${short[@]}" --masked-loss squared --out squared
    call 3 "$pretrain" --data scaled.h5 "${short[@]}" --out no
    says "and the Poisson loss is of whole photons"
fi
call 2 "$pretrain" --data k.h5 --out whole
says "pretrain --resume --out whole"
call 2 "$pretrain" --resume --out whole --mask-ratio 0.5
says "mask_ratio (run: 0.6, this call: 0.5)"
check "nothing is made for what is refused" test ! -e no

# ---- killed
kills=$([ "${FLIM_LONG:-0}" = 0 ] && echo 3 || echo 30)
run=(--data k.h5 "${options[@]}" --groups-out "donor_2,donor_5" --val-groups donor_3)
begun=$(date +%s%N)
call 0 "$pretrain" "${run[@]}" --out timed
length=$((($(date +%s%N) - begun) / 1000000))
done_kills=0 wrong=0
while [ $done_kills -lt "$kills" ]; do
    rm -rf cut
    code=1
    while [ $code != 0 ]; do
        if [ -e cut/config.yaml ]; then more=(--resume --out cut); else more=("${run[@]}" --out cut); fi
        "$pretrain" "${more[@]}" >out 2>err &
        pid=$!
        if [ $done_kills -lt "$kills" ]; then
            sleep "$(printf '%d.%03d' $((RANDOM * length / 32768 / 1000)) $((RANDOM * length / 32768 % 1000)))"
            if kill -KILL $pid 2>/dev/null; then done_kills=$((done_kills + 1)); fi
        fi
        wait $pid 2>/dev/null
        code=$?
        case $code in 0 | 137) ;; *)
            wrong=$((wrong + 1))
            cat err
            break ;;
        esac
    done
    [ "$(same cut)" = "$(same whole)" ] || wrong=$((wrong + 1))
done
check "$done_kills kills end in the undisturbed run's bytes" test $wrong = 0
finish
