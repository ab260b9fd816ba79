#!/usr/bin/env bash
# --diagnostics: its columns against what can be computed beside them, nothing else changed by it, and equal bytes after kills inside
# and between epochs, also with stages, accumulation, a running average and a refit.
# Usage: test_diagnostics.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5 --height 9 --width 9
train=$build/train_cv
options=(--data k.h5 --preset nano --folds 2 --fold 0 --epochs 3 --batch 8 --lr 1e-2 "${device[@]}" --workers 2)
columns=batch_loss_sd,batch_loss_max,inactive_share,dead_channel_share,update_size

# digest, and the columns that do not depend on time
all_of() { # RUN
    digest "$1"
    for h in "$1"/fold_0/history.csv $(ls "$1"/fold_0/refit/history.csv 2>/dev/null); do cut -d, -f1-16,27- "$h"; done
}

call 0 "$train" "${options[@]}" --out off
call 0 "$train" "${options[@]}" --diagnostics --out on
check "off by default, and history.csv is what it was" test "$(head -1 off/fold_0/history.csv | tr , '\n' | wc -l) $(grep -c inactive off/fold_0/history.csv)" = "26 0"
check "on, it has five columns more" test "$(head -1 on/fold_0/history.csv | cut -d, -f27-)" = "$columns"
check "and every other number is the same" test "$(digest on)" = "$(digest off)"
check "the log says what the probe takes" grep -q "a probe of activations takes [0-9]* MiB" on/train.log
call 2 "$train" --resume --out off --diagnostics
says "diagnostics (run: false, this call: true)"

# ---- the figures
call 0 "$train" "${options[@]}" --diagnostics --batch 500 --epochs 1 --out one
call 0 "$train" "${options[@]}" --diagnostics --batch "$(($(tail -1 one/fold_0/history.csv | cut -d, -f11) / 2))" --epochs 1 --out two
# The weights before and after one epoch that starts from known ones; averages are not what is measured.
call 0 "$train" "${options[@]}" --epochs 1 --ema 0 --init-weights off/fold_0/best.safetensors --diagnostics --out moved
check "losses of batches and size of the update" python3 - <<'PY'
import csv, json, math, struct
def rows(run):
    return list(csv.DictReader(open(run + "/fold_0/history.csv")))
def weights(run):
    data = open(run + "/fold_0/best.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    out = []
    for key, v in head.items():
        if key != "__metadata__" and "running" not in key and "num_batches" not in key:
            a, b = v["data_offsets"]
            out += struct.unpack("<%df" % ((b - a) // 4), data[8 + n + a:8 + n + b])
    return out
def close(a, b, by=1e-6):
    return abs(a - b) <= by * max(abs(a), abs(b))
one, = rows("one")
assert one["updates"] == "1" and one["batch_loss_sd"] == "" and close(float(one["batch_loss_max"]), float(one["train_loss"])), one
two, = rows("two")
mean, most, sd = (float(two[key]) for key in ("train_loss", "batch_loss_max", "batch_loss_sd"))
assert two["updates"] == "2" and close(sd, math.sqrt(2) * (most - mean), 1e-5), two # of two batches of one size
for row in rows("on"):
    assert float(row["batch_loss_max"]) >= float(row["train_loss"]) and float(row["batch_loss_sd"]) > 0, row
    assert 0 < float(row["inactive_share"]) < 1 and 0 <= float(row["dead_channel_share"]) < 1, row
before, after = weights("off"), weights("moved")
assert len(before) == len(after) == 14513, (len(before), len(after))
change = math.sqrt(sum((a - b) ** 2 for a, b in zip(after, before))) / math.sqrt(sum(b * b for b in before))
row, = rows("moved")
assert close(float(row["update_size"]), change, 1e-6), (row["update_size"], change)
PY

# ---- killed and resumed
hard=("${options[@]}" --epochs 2 --accumulate 2 --batch 4 --ema 0.9 --refit --checkpoint-minutes 1e-9 --diagnostics)
call 0 "$train" "${hard[@]}" --out whole
want=$(all_of whole)
calls=$(cut -d, -f11 whole/fold_0/history.csv | tail -1) # cells of an epoch
for at in 3 6 $((calls / 4)) $((calls / 4 + 1)) $((calls / 4 + 4)) $((calls / 2 + 5)); do # in both epochs, and in the refit
    for signal in 9 15; do
        rm -rf r
        env FLIM_AIM=train:$at:$signal "$faulty" "${hard[@]}" --out r >/dev/null 2>&1
        if [ ! -e r/config.yaml ]; then
            fail "signal $signal at batch $at left no run"
            continue
        fi
        call 0 "$train" --resume --fold 0 --out r
        check "killed by $signal at batch $at and resumed: the same bytes" test "$(all_of r)" = "$want"
    done
done

# ---- stages
staged=("${options[@]}" --stages "first epochs=1 batch=16" --stages "second epochs=2 lr=1e-3" --diagnostics)
call 0 "$train" "${staged[@]}" --out stages
check "stages have the columns, too, before their name" python3 - <<'PY'
import csv
rows = list(csv.DictReader(open("stages/fold_0/history.csv")))
assert [r["stage"] for r in rows] == ["first", "second", "second"] and all(r["update_size"] and r["inactive_share"] for r in rows), rows
PY
want=$(all_of stages)
for at in 2 7; do
    rm -rf r
    env FLIM_AIM=train:$at:9 "$faulty" "${staged[@]}" --out r >/dev/null 2>&1
    call 0 "$train" --resume --fold 0 --out r
    check "killed at batch $at of two stages: the same bytes" test "$(all_of r)" = "$want"
done
call 2 "$train" "${options[@]}" --stages "first diagnostics=true" --out refused
says "first changes diagnostics"
finish
