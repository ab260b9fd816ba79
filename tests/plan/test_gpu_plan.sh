#!/usr/bin/env bash
# gpu_plan as users call it, and what train_cv makes of plans: --batch auto, --lr-scale, --checkpoint-activations, --on-oom,
# --price-per-hour.
# Usage: test_gpu_plan.sh BUILD_DIR
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"

run() { call "$2" "$build/$1" "${@:3}"; } # run PROGRAM EXPECTED_EXIT ARGS...: with output in $work/out and $work/err

# ---- gpu_plan
run gpu_plan 0 --help
check "--help names --apply" grep -q -- --apply out
run gpu_plan 2 --gpu L44
check "an unknown card names the nearest" grep -q "did you mean 'l4'" err
run gpu_plan 2 --gpu-memory 24XB
run gpu_plan 0 --list # of any build
check "--list has every card, with its rates and precisions" test "$(grep -cE " (tf32 +bf16|fp16 +fp16|- +-)$" out)" = "$(ls "$source"/configs/devices/*.json | wc -l)"
check "a card that is too old is marked" grep -qE "^v100 .* 7\.0 .*not supported" out
run gpu_plan 0 --list --json
check "and so does its JSON" python3 -c '
import json
cards = {c["file"]: c for c in json.load(open("out"))["cards"]}
assert cards["t4"]["auto"] == "fp16" and cards["h100"]["auto"] == "tf32" and cards["h100"]["amp"] == "bf16", cards
assert not cards["v100"]["supported"] and all(c["bandwidth_gb"] > 0 for c in cards.values()), cards
'
run gpu_plan 4 --gpu V100
for way in --auto "--gpu auto"; do # the card that is there, if there is one
    # shellcheck disable=SC2086
    "$build/gpu_plan" $way >out 2>err
    check "$way plans for the card at hand, or says why there is none" grep -qE "^Card: |no NVIDIA driver|without CUDA|no visible" out err
done
if "$build/gpu_plan" --gpu L4 >out 2>err; then
    check "the L4's table has parameters" grep -q "^  parameters .* device .* MiB" out
    check "and a recommendation" grep -q "^Recommended: " out
    for card in T4 "RTX 6000" "RTX 3090" A6000 A30 "RTX 4080" "RTX 5090" B200 L4 A10 A100-40 A100-80 L40S RTX4090 "RTX 6000 Ada" H100 H200; do
        begun=$(date +%s)
        run gpu_plan 0 --gpu "$card" --json
        check "$card took less than 10 s" test $(($(date +%s) - begun)) -lt 10
        check "$card's JSON" python3 -c '
import json
j = json.load(open("out"))
p = j["plan"]
best = p["suggestions"][p["recommended"]]
assert best["effective_batch"] == 64 and best["fits"], best
assert p["same"]["effective_batch"] == 64 and p["same"]["lr_linear"] == 1e-3, p["same"]
most = p["largest"]
assert most["batch"] >= max(s["batch"] for s in p["suggestions"] if s["precision"] == most["precision"] and s["checkpoint_activations"] == most["checkpoint_activations"]), most
assert abs(most["lr_linear"] / 1e-3 - most["effective_batch"] / 64) < 1e-9 and abs(most["lr_sqrt"] / 1e-3 - (most["effective_batch"] / 64) ** 0.5) < 1e-9
for s in p["suggestions"]:
    assert s["verdict"] == ("too much" if s["share"] > 0.95 else "tight" if s["share"] > 0.85 else "good" if s["share"] > 0.6 else "has room"), s
assert all(s["device_bytes"] <= 0.85 * j["card"]["memory_bytes"] for s in p["suggestions"])
assert sum(c["bytes"] for c in best["components"] if c["place"] == "device") == best["device_bytes"]
'
    done
    mv out plain
    for form in "--json --gpu H200" "--json - --gpu H200" "--gpu H200 --json=-"; do
        # shellcheck disable=SC2086
        run gpu_plan 0 $form
        check "gpu_plan $form" cmp out plain
    done
    run gpu_plan 0 --gpu A100
    check "a name that two cards have is the smaller one's" grep -q "^Card: NVIDIA A100-PCIE-40GB" out
    mkdir default && printf 'preset: tiny\nbatch: 24\n' >default/flimcv.yaml
    check "./flimcv.yaml is planned, as train_cv would take it" bash -c \
        'cd default && "$0/gpu_plan" --gpu L4 | grep -q "^Suggestions for preset tiny" && "$0/gpu_plan" --gpu L4 | grep -q "^As set: batch 24 "' "$build"
    # A file that is no library stands in cuDNN's place: as where it is not installed.
    mkdir none && echo none >none/libcudnn.so.9
    LD_LIBRARY_PATH=$work/none "$build/gpu_plan" --gpu L4 --json >out 2>err
    check "where cuDNN is not installed the plan says so" grep -q "^warning: cuDNN .* is not installed here: .* 256 MiB" err
    check "and so does its JSON" python3 -c '
import json
j = json.load(open("out"))
assert j["card"]["workspace_assumed"] and j["plan"]["suggestions"], j["card"]
'
    for part in parameters gradients "Adam moments" "BatchNorm statistics" "saved activations of res1" \
        "gradients of activations" "input buffers" "CUDA context and libraries" "prefetch buffers"; do
        run gpu_plan 0 --gpu L4
        check "the table has the component $part" grep -qE "^  $part +(device|pinned) +[0-9.]+ [KM]iB$" out
    done
    for size in "nano 4 1" "giant 192 3"; do # shellcheck disable=SC2086
        set -- $size
        run gpu_plan 0 --gpu A100-80 --preset "$1" --json
        check "preset $1 is planned" python3 -c 'import json, sys; n = json.load(open("out"))["network"]; assert [n["width"], n["depth"]] == [int(a) for a in sys.argv[1:]], n' "$2" "$3"
    done
    for width in 4 12 20 40 356; do
        run gpu_plan 0 --gpu L4 --width $width --depth 2 --batch 4 --json
        check "width $width of depth 2 is planned" python3 -c 'import json, sys; n = json.load(open("out"))["network"]; assert n["preset"] == "custom" and n["width"] == int(sys.argv[1]), n' $width
    done
    run gpu_plan 0 --gpu-memory 80 --json
    check "--gpu-memory 80 is 80 GB" python3 -c 'import json; assert json.load(open("out"))["card"]["memory_bytes"] == 80 * 10**9'
    run gpu_plan 0 --gpu-memory 22.5GiB --target-effective-batch 96 --preset xlarge --precision fp32 --json plan.json
    check "--effective-batch is kept" python3 -c '
import json
p = json.load(open("plan.json"))["plan"]
best = p["suggestions"][p["recommended"]]
assert best["batch"] * best["accumulate"] == 96 and best["accumulate"] > 1, best
'
    # ---- the configs for cards: within the margin, and with the figures that their comments name
    for pair in t4:T4 l4:L4 l40s:L40S a100:A100-40 a100:A100-80 h100:H100; do
        config=$source/configs/${pair%%:*}.yaml
        run gpu_plan 0 --gpu "${pair##*:}" --show "$config" --json card.json
        check "$config is within the margin of ${pair##*:}, as its comment says" python3 -c '
import json, re, sys
stages = json.load(open("card.json"))["stages"]
assert len(stages) >= 3 and all(s["fits"] for s in stages), stages
train = stages[0]
assert train["stage"] == "train" and train["share"] <= 0.85, train
said = float(re.search(r"Planned .*: ([0-9.]+) GiB of", open(sys.argv[1]).read()).group(1))
assert abs(train["device_bytes"] / 2**30 / said - 1) < 0.03, (train["device_bytes"] / 2**30, said)
' "$config"
    done
    cat >run.yaml <<'YAML'
# what we run
preset: xlarge
precision: fp32
batch: 64         # too large for an L4
accumulate: 1
stages:
  - name: pretrain
    batch: 128
    precision: bf16
  - fine preset=base batch=16
YAML
    cp run.yaml before.yaml
    run gpu_plan 0 --gpu l4 --show run.yaml
    for stage in "train " "validate" "predict" "pretrain .*bf16" "fine .*base"; do
        check "--show has the stage $stage" grep -qE "^  $stage.* [0-9.]+ +[0-9]+ %  " out
    done
    check "--show says what is over-committed, and what fits" grep -q \
        "train is over-committed: .*checkpoint_activations: auto, or precision: bf16, or batch: 32 with accumulate: 2" err
    cat >odd.yaml <<'YAML'
batch: auto
stages:
  - a batch=auto preset=tiny
  - b batch=8 eval_batch=512 precision=fp32
  - c batch=100000
  - d batch=64 preset=xlarge precision=fp32
YAML
    # What is advised is tried: with it the stage fits.
    run gpu_plan 0 --gpu t4 --show odd.yaml --cells 3000 --json odd.json
    check "stages: auto batches are found, an eval batch is blamed where it is the cause, 2^31 elements are a row" python3 -c '
import json
j = json.load(open("odd.json"))
rows = {s["stage"]: s for s in j["stages"]}
assert j["data"]["training_cells"] == 3000 and j["network"]["preset"] == "base", j
assert rows["train"]["fits"] and rows["a"]["fits"] and rows["train"]["batch"] > 64 and rows["a"]["batch"] > rows["train"]["batch"], rows
assert not rows["b"]["fits"] and rows["b"]["advice"].startswith("eval_batch: "), rows["b"]
assert not rows["c"]["fits"] and "2^31" in rows["c"]["error"] and "batch: " in rows["c"]["advice"], rows["c"]
assert not rows["d"]["fits"] and "checkpoint_activations" not in rows["d"]["advice"], rows["d"]
fixed = ["  - b batch=8 precision=fp32 " + rows["b"]["advice"].replace(": ", "=")]
for name, more in ("c", ""), ("d", " preset=xlarge precision=fp32"):
    for i, advice in enumerate(rows[name]["advice"].split(", or ")):
        words = " ".join(w.replace(": ", "=") for w in advice.split(" (")[0].split(" with "))
        fixed.append("  - %s%d%s batch=64 %s" % (name, i, more, words) if "batch" not in words else "  - %s%d%s %s" % (name, i, more, words))
open("fixed.yaml", "w").write("batch: 8\nstages:\n" + "\n".join(fixed) + "\n")
'
    run gpu_plan 0 --gpu t4 --show fixed.yaml --cells 3000 --json fixed.json
    check "what --show advises fits" python3 -c '
import json
rows = json.load(open("fixed.json"))["stages"]
assert len(rows) >= 6 and all(s["fits"] for s in rows), [(s["stage"], s["fits"]) for s in rows]
'
    run gpu_plan 0 --gpu l4 --show odd.yaml --precision bf16 --json -
    check "flags hold for the stages, too, and warnings stay out of the JSON" python3 -c '
import json
rows = json.load(open("out"))["stages"]
assert {s["stage"]: s["precision"] for s in rows if "precision" in s}["a"] == "bf16", rows
'
    check "they are on stderr" grep -q "^warning: c is over-committed" err
    "$build/flim_simulate" --out parts.h5 --cells 73 --donors 6 --bins 16 --photons 200 --seed 3 >/dev/null || exit 1
    for cv in "--cv stratified" "--cv group"; do
        # shellcheck disable=SC2086 # two words
        "$build/train_cv" --data parts.h5 --folds 4 $cv --dry-run >table 2>&1
        run gpu_plan 0 --gpu l4 --data parts.h5 --set folds=4 --set "cv=${cv#--cv }" --json parts.json
        check "$cv: the training set is the largest of the folds that train_cv makes" python3 -c '
import json, re
want = max(int(n) for n in re.findall(r"train +([0-9]+)", open("table").read()))
j = json.load(open("parts.json"))
assert j["data"]["training_cells"] == want, (j["data"], want)
assert max(s["batch"] for s in j["plan"]["suggestions"]) <= want, j["plan"]["suggestions"]
assert j["plan"]["suggestions"][j["plan"]["recommended"]]["effective_batch"] == min(64, want)
'
        for fold in 0 1 2 3; do
            run gpu_plan 0 --gpu l4 --data parts.h5 --set folds=4 --set "cv=${cv#--cv }" --set fold=$fold --json fold.json
            check "$cv: fold $fold alone takes the same" python3 -c '
import json
of = lambda path: json.load(open(path))["data"]["training_cells"]
assert of("fold.json") == of("parts.json"), (of("fold.json"), of("parts.json"))
'
        done
    done
    check "--show leaves the file" cmp run.yaml before.yaml
    printf 'preset: tiny\nstages:\n  - first batch=8\n  - second bacth=8\n  - third preset=huge\n  - fourth batch=16\n' >wrong.yaml
    run gpu_plan 2 --gpu l4 --show wrong.yaml
    check "a stage that cannot run does not hide the others" bash -c \
        'grep -qE "^  first .* %  " out && grep -qE "^  second +cannot run" out && grep -qE "^  third +cannot run" out && grep -qE "^  fourth .* %  " out'
    check "and each mistake is told" bash -c "grep -q \"second: .*did you mean 'batch'\" err && grep -q \"third: .*'huge' is not one of\" err"
    (cd default && "$build/gpu_plan" --gpu L4 --batch 4096 --apply >/dev/null 2>&1)
    check "--apply alone takes ./flimcv.yaml, and adds what it lacks" bash -c \
        'grep -qx "preset: tiny" default/flimcv.yaml && grep -q "^accumulate: " default/flimcv.yaml && test -e default/flimcv.yaml.backup.1'
    run train_cv 0 --config run.yaml --print-config
    run gpu_plan 0 --gpu l4 --apply run.yaml
    run gpu_plan 0 --gpu l4 --apply run.yaml
    check "--apply keeps comments" grep -q "^batch: 32         # too large for an L4" run.yaml
    check "--apply sets the accumulation" grep -q "^accumulate: 2" run.yaml
    check "the first backup is the config as it was" cmp run.yaml.backup.1 before.yaml
    check "the second one is the first result" cmp run.yaml.backup.2 run.yaml
    printf 'preset: base\nstages:\n  - name: wide   # all at once\n    batch: 8192\n  - follows lr=1e-4\n  - small batch=8 accumulate=4\n' >staged.yaml
    cp staged.yaml staged.before
    run gpu_plan 0 --gpu t4 --apply staged.yaml --json staged.json
    check "--apply writes stages, too, with their cells per update and comments kept" python3 - <<'PY'
import json, re
text, plan = open("staged.yaml").read(), json.load(open("staged.json"))
assert open("staged.yaml.backup.1").read() == open("staged.before").read()
assert "  - name: wide   # all at once\n" in text and "  - follows lr=1e-4\n" in text and "  - small batch=32 accumulate=1\n" in text, text
batch, accumulate = (int(re.search(r"^    %s: (\d+)" % key, text, re.M)[1]) for key in ("batch", "accumulate"))
assert batch * accumulate == 8192 and accumulate > 1, text
assert [(s["stage"], s["fits"]) for s in plan["applied_stages"]] == [("wide", True), ("small", True)], plan["applied_stages"]
PY
    run gpu_plan 0 --gpu t4 --show staged.yaml
    check "and then all of them fit" bash -c '! grep -q over-committed err'
    cp staged.yaml staged.once
    run gpu_plan 0 --gpu t4 --apply staged.yaml
    check "twice is once" cmp staged.yaml staged.once
    # The run's plan gets an accumulation of its own, which its stages have not asked for.
    printf 'preset: giant\nstages:\n  - a batch=32\n  - b batch=16\n  - c lr=1e-4\n' >inherits.yaml
    run gpu_plan 0 --gpu t4 --apply inherits.yaml
    check "a stage keeps its own cells per update, whatever accumulation the run's plan has" python3 - <<'PY'
import re
text = open("inherits.yaml").read()
of = lambda key, at, default: int((re.search(r"\b%s[:=] ?(\d+)" % key, at) or [0, default])[1])
run = {key: of(key, re.sub(r"(?m)^  - .*", "", text), 1) for key in ("batch", "accumulate")}
assert run["accumulate"] > 1 and run["batch"] * run["accumulate"] == 64, text
cells = {line[4]: of("batch", line, run["batch"]) * of("accumulate", line, run["accumulate"]) for line in text.splitlines() if line.startswith("  - ")}
assert cells == {"a": 32, "b": 16, "c": 64}, text
PY
    cp inherits.yaml inherits.once
    run gpu_plan 0 --gpu t4 --apply inherits.yaml
    check "twice is once there, too" cmp inherits.yaml inherits.once
    # ---- pretraining and fine-tuning: flags and a stage are the same plan, which takes as many cells as a fold trains on, in views
    cat >tune.yaml <<'Y'
preset: base
pretrain_per_fold: true
pretraining: --batch 128 --accumulate 4 --contrastive 0.1
Y
    cat >tune_stages.yaml <<'Y'
preset: base
stages:
  - name: pre
    kind: pretraining
    batch: 128
    accumulate: 4
  - tune batch=32
Y
    run gpu_plan 0 --gpu l4 --cells 500 --show tune.yaml --json tune.json
    run gpu_plan 0 --gpu l4 --cells 500 --show tune_stages.yaml --json tune_stages.json
    check "the pretraining has a plan beside the training's, and needs more for as many cells" python3 - <<'PY'
import json
flags = {s["stage"]: s for s in json.load(open("tune.json"))["stages"]}
rows = {s["stage"]: s for s in json.load(open("tune_stages.json"))["stages"]}
assert list(flags)[0] == "pretraining" and (flags["pretraining"]["batch"], flags["pretraining"]["accumulate"]) == (128, 4), flags["pretraining"]
assert list(rows)[-2:] == ["pre", "tune"] and rows["pre"]["batch"] == 128 and rows["tune"]["batch"] == 32, list(rows)
assert all(r["fits"] and r["verdict"] for r in list(rows.values()) + list(flags.values()))
assert flags["pretraining"]["device_bytes"] > rows["pre"]["device_bytes"] > flags["train"]["device_bytes"] # projector, decoder, none
PY
    run gpu_plan 0 --gpu l4 --cells 500 --show tune.yaml --set "pretraining=--batch auto --contrastive 0.1" --json auto.json
    run gpu_plan 0 --gpu l4 --cells 500 --config tune.yaml --json both.json
    check "a batch that is to be found is even and at most all views; suggestions tell the pretraining, too" python3 - <<'PY'
import json
found = json.load(open("auto.json"))["stages"][0]
assert found["stage"] == "pretraining" and found["batch"] % 2 == 0 and 128 < found["batch"] <= 1000 and found["fits"], found
both = json.load(open("both.json"))
assert [r["stage"] for r in both["pretraining"]] == ["pretraining"] and both["plan"]["suggestions"], both["pretraining"]
PY
    sed -i 's/batch: 128/batch: 65536/' tune_stages.yaml
    run gpu_plan 0 --gpu t4 --show tune_stages.yaml
    check "a pretraining that does not fit is told, with what does" grep -qE "pre is over-committed: .*what fits: " err
    run gpu_plan 0 --gpu t4 --apply tune_stages.yaml
    run gpu_plan 0 --gpu t4 --show tune_stages.yaml
    check "--apply writes a plan that fits into that stage" bash -c '! grep -q over-committed err'
    run train_cv 0 --config tune_stages.yaml --print-config
    run gpu_plan 2 --show run.yaml --apply run.yaml --gpu l4
    run gpu_plan 2 --profile --gpu l4
    run gpu_plan 2 --profile --show run.yaml --gpu l4
else
    echo "gpu_plan for cards left out: $(cat err)"
fi

# ---- train_cv
"$build/flim_simulate" --out small.h5 --cells 72 --donors 6 --bins 16 --photons 200 --seed 3 >/dev/null || exit 1
common=(--data small.h5 --preset tiny --folds 3 --epochs 2 --lr 1e-3 --device cpu --workers 2 --fold 0)
run train_cv 0 "${common[@]}" --batch auto --out auto --price-per-hour 3.6
batch=$(sed -n 's/^batch: //p' auto/config.yaml)
check "the batch that was found is the training set" grep -q "Batch auto: $batch cells" auto/train.log
check "cost and time are told" bash -c 'grep -q "Time: .* at 3.6 per hour" auto/train.log && grep -q "^Cost: " auto/train.log'
check "planned against used memory is told" grep -q "^Memory: planned " auto/train.log
run train_cv 0 "${common[@]}" --batch "$batch" --out given
check "the search has left no trace: the bits are those of --batch $batch" test "$(digest auto)" = "$(digest given)"
run train_cv 0 "${common[@]}" --batch "$batch" --checkpoint-activations all --out all
check "--checkpoint-activations all has the same bits" test "$(digest all)" = "$(digest given)"
run train_cv 0 --out auto --resume
run train_cv 0 --data small.h5 --preset tiny --folds 5 --cv stratified --epochs 1 --lr 1e-3 --device cpu --workers 2 --batch auto --out parts
check "the batch of folds of different sizes is the largest: no fold is left with a batch of one cell" bash -c '
    parts=$(python3 -c "import json; print(*(len(f[\"train\"]) for f in json.load(open(\"parts/splits.json\"))[\"folds\"]))")
    test "$(echo $parts | tr " " "\n" | sort -nu | wc -l)" -gt 1 &&
    test "$(sed -n "s/^batch: //p" parts/config.yaml)" = "$(echo $parts | tr " " "\n" | sort -n | tail -1)" &&
    test "$(cut -d, -f12 -s parts/fold_*/history.csv | sort -u | tr "\n" " ")" = "1 updates "'
run train_cv 0 "${common[@]}" --checkpoint-activations auto --batch 8 --out some
check "what auto came to is told" grep -q "^Activation checkpointing: auto: all fits" some/train.log
run train_cv 0 "${common[@]}" --batch auto --eval-batch 50 --out eval
check "an eval batch above the batch found is kept where it fits" grep -q "^eval_batch: 50$" eval/config.yaml
check "and planned: what is planned is used" bash -c \
    'grep -oE "(planned|used) [0-9.]+ GiB" eval/train.log | cut -d" " -f2 | sort -u | wc -l | grep -qx 1'
run train_cv 0 "${common[@]}" --batch 8 --accumulate 2 --lr-scale linear --lr-batch 64 --out linear
run train_cv 0 "${common[@]}" --batch 8 --accumulate 2 --lr 2.5e-4 --out quarter
check "--lr-scale linear is lr x 16 / 64" cmp linear/fold_0/best.safetensors quarter/fold_0/best.safetensors
check "accumulation says what BatchNorm sees" grep -q "BatchNorm uses the statistics of each batch of 8" linear/train.log
run train_cv 0 "${common[@]}" --batch 16 --accumulate 2 --out short
check "a last short window is an update, and none reaches into the next epoch: 36 cells in 16 + 16, 4" \
    bash -c 'test "$(cut -d, -f11,12 short/fold_0/history.csv | tr "\n" " ")" = "cells,updates 36,2 36,2 "'
run train_cv 0 "${common[@]}" --batch 8 --accumulate 2 --lr-scale sqrt --out sqrt
run train_cv 0 "${common[@]}" --batch 32 --accumulate 8 --lr-scale linear --lr-batch 72 --out whole
check "an update has no more cells than the training set: linear is lr x 36 / 72, not x 256 / 72" \
    grep -q "^Learning rate: 0.0005, from 0.001 for 72 cells per update (lr-scale linear; 36 cells now)" whole/train.log
check "and that is told" grep -q "a training set has 36 cells at most" whole/train.log
check "--lr-scale sqrt" grep -q "^Learning rate: 0.0005, from 0.001 for 64 cells" sqrt/train.log

# ---- out of memory: an address space too small for the batch asked for
"$build/flim_simulate" --out large.h5 --cells 72 --donors 6 --bins 128 --photons 200 --seed 3 >/dev/null || exit 1
tight=(--data large.h5 --preset small --folds 3 --epochs 1 --device cpu --workers 1 --prefetch 1 --fold 0 --batch 32 --eval-batch 2 --no-scan --cache none)
limit=
for mib in 200 300 400 500 600 700 800 900 1000 1100; do
    (ulimit -v $((mib * 1024)) && exec "$build/train_cv" "${tight[@]}" --out "stop$mib" >out 2>err </dev/null)
    code=$?
    if [ $code = 5 ] && grep -q "out of host memory: batches" err; then
        limit=$mib
    fi
    [ $code = 0 ] && break
done
if [ -n "$limit" ]; then
    (ulimit -v $((limit * 1024)) && exec "$build/train_cv" "${tight[@]}" --batch auto --out found >out 2>err </dev/null)
    check "--batch auto counts within $limit MiB of address space, not with the machine's memory" test $? = 0
    (ulimit -v $((limit * 1024)) && exec "$build/train_cv" "${tight[@]}" --out retry --on-oom retry >out 2>err </dev/null)
    check "--on-oom retry ends well within $limit MiB of address space, where --batch 32 ends with code 5" test $? = 0
    check "with a smaller batch" grep -qE "^batch: (16|8|4|2|1)$" retry/config.yaml
    # shellcheck disable=SC2016 # the inner shell expands it
    check "and as many cells an update" bash -c \
        'test $(($(sed -n "s/^batch: //p" retry/config.yaml) * $(sed -n "s/^accumulate: //p" retry/config.yaml))) = 32'
else
    echo "--on-oom retry left out: no limit of the address space was between too little for anything and enough"
fi

finish
