#!/usr/bin/env bash
# stages: trainings one after the other within each fold: what is carried on, one history, killed inside any stage and resumed
# to equal bytes, --stage, what is refused before a run folder is made.
# Usage: test_stages.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5 --height 9 --width 9
train=$build/train_cv
options=(--data k.h5 --preset nano --folds 2 --epochs 2 --batch 16 --lr 1e-2 --device cpu --workers 2 --label-smoothing 0)
cat >curriculum.yaml <<'YAML'
stages:
  - name: pretrain
    epochs: 2
    batch: 8
    augment: thin:1:0.5:1
  - middle epochs=1 lr=1e-3 sampler=natural dropout=0.5
  - fine epochs=2 lr=1e-4 patience=1 mixup=counts
YAML
call 0 "$train" --config curriculum.yaml "${options[@]}" --out whole
want=$(digest whole)
for k in 0 1; do
    check "fold $k has one history with a stage column" python3 -c '
import csv, sys
rows = list(csv.DictReader(open("whole/fold_%s/history.csv" % sys.argv[1])))
assert [r["epoch"] for r in rows] == [str(i + 1) for i in range(len(rows))], rows
assert [r["stage"] for r in rows][:3] == ["pretrain", "pretrain", "middle"] and {r["stage"] for r in rows[3:]} == {"fine"}, rows
assert float(rows[0]["lr"]) == 1e-2 and float(rows[2]["lr"]) == 1e-3 and float(rows[3]["lr"]) == 1e-4, rows
assert int(rows[0]["updates"]) >= 2 * int(rows[2]["updates"]) - 1, rows
' "$k"
    check "fold $k leaves nothing of its stages but the result" bash -c "test -e whole/fold_$k/DONE && ! ls -d whole/fold_$k/stage_* whole/fold_$k/checkpoint/* 2>/dev/null"
done
check "the log says what each stage is and where it starts" grep -q "^Stage fine (3 of 3): .*; from the best weights of the stage before, with a fresh optimizer" whole/train.log
check "and what it needs" test "$(grep -c '^Stage .*GiB planned' whole/train.log)" = 3
check "config.yaml gives the same run" bash -c "cd whole && '$train' --config config.yaml --print-config | cmp - config.yaml"

tensors() { # sha256 of the tensors of a weight file, its header left out: that says the stages
    python3 -c '
import hashlib, struct, sys
data = open(sys.argv[1], "rb").read()
print(hashlib.sha256(data[8 + struct.unpack("<Q", data[:8])[0]:]).hexdigest())' "$1"
}

# ---- one stage that changes nothing is the training itself
call 0 "$train" "${options[@]}" --out plain --fold 0
call 0 "$train" "${options[@]}" --stages only --out only --fold 0
check "one stage without settings has the weights of a plain run" test "$(tensors plain/fold_0/best.safetensors)" = "$(tensors only/fold_0/best.safetensors)"

# ---- the first stage of a fold has its own program, whatever stage the fold before has ended in
for last in "batch=8" "mixup=counts ema=0" "augment=none"; do
    rm -rf both alone
    call 0 "$train" "${options[@]}" --stages "first epochs=1" --stages "last epochs=1 $last" --out both
    call 0 "$train" "${options[@]}" --stages "first epochs=1" --stages "last epochs=1 $last" --out alone --fold 1
    check "fold 1 after a stage with $last has the weights of fold 1 alone" cmp both/fold_1/best.safetensors alone/fold_1/best.safetensors
done

# ---- weights are carried on: a stage that cannot move them ends with the best ones of the stage before
call 0 "$train" "${options[@]}" --stages "first" --stages "still epochs=1 lr=1e-30 weight_decay=0" --out still --fold 0
check "the second stage starts from the first one's best weights" python3 - <<'PY'
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
a, b = tensors("plain/fold_0/best.safetensors"), tensors("still/fold_0/best.safetensors")
assert a.keys() == b.keys()
assert all(a[k] == b[k] for k in a if "running" not in k), [k for k in a if a[k] != b[k]]
PY

# ---- killed inside each stage: 8 calls of train and more per fold, in three stages
calls=$(python3 -c 'import csv; print(*[r["updates"] for r in csv.DictReader(open("whole/fold_0/history.csv"))])')
n=0 kills=
for updates in $calls; do
    kills="$kills $((n + 1)) $((n + updates))" # the first and the last batch of each epoch
    n=$((n + updates))
done
# shellcheck disable=SC2086
for at in $kills; do
    for signal in 9 15; do
        rm -rf r
        env FLIM_AIM=train:$at:$signal "$faulty" --config curriculum.yaml "${options[@]}" --out r >/dev/null 2>&1
        if [ ! -e r/config.yaml ]; then
            fail "signal $signal at batch $at left no run"
            continue
        fi
        call 0 "$train" --resume --out r
        check "killed by $signal at batch $at of fold 0 and resumed: the files are the undisturbed run's" test "$(digest r)" = "$want"
    done
done
call 2 "$train" --resume --out r --stages "pretrain epochs=3"
says "stages ("

# ---- one of them alone
call 0 "$train" --config curriculum.yaml "${options[@]}" --stage middle --out middle --fold 0
check "--stage trains that one alone" test "$(cut -d, -f27 middle/fold_0/history.csv | tr '\n' ' ')" = "stage middle "

# ---- what is refused, before a folder is made
bad() { # bad TEXT ARGS...
    makes_no_run "$1" "$train" "${options[@]}" "${@:2}"
}
bad "did you mean 'middle'" --config curriculum.yaml --stage midle
bad "stage 'middle' is " --stage middle
bad "a changes preset, which is the same for all stages" --stages "a preset=tiny"
bad "a changes seed" --stages "a seed=1"
bad "a changes tta" --stages "a tta=true"
bad "did you mean 'batch'" --stages "a bacth=3"
bad "two have the name 'a'" --stages "a epochs=1" --stages "a epochs=2"
bad "batch auto is found once per run" --stages "a batch=auto"
bad "must be fewer than epochs" --stages "a epochs=1 warmup_epochs=1"
bad "stages and refit" --stages a --refit
bad "stages and on_oom retry" --stages a --on-oom retry
finish
