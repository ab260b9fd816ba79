#!/usr/bin/env bash
# tools/pretraining_worth.py: its table against numbers computed here from its results, what a second call does, and a run that fails.
# Usage: test_pretraining_worth.sh BUILD_DIR
set -u
worth=$(cd "$(dirname "$0")/../../tools" && pwd)/pretraining_worth.py
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "left out: no python3"; exit 77; }
tiny=(--programs "$build" --out worth --device cpu --workers 1 --jobs 2 --seeds 1-2 --preset "--preset nano" --lengths 1 --pretrain-epochs 2 --unlabelled 30
    --labelled 40 --test 20 --pretrain-batch 16 --simulate "--bins 16 --height 7 --width 7" --sets main --arms "rate x 1")
call 0 python3 "$worth" "${tiny[@]}"
cp out table
cat >expected.py <<'P'
import csv, json, math
lines = [json.loads(line) for line in open("worth/results.jsonl")]
score = {(r["arm"], r["seed"]): r["metrics"]["balanced_accuracy"] for r in lines if r["kind"] == "train"}
for arm, seed in score:
    folder = f"worth/main/{'_'.join(''.join(c if c.isalnum() or c in '.-' else ' ' for c in arm).split())}/{seed}"
    assert json.load(open(folder + "/summary.json"))["folds"][0]["metrics"]["balanced_accuracy"] == score[arm, seed]
arm = "masked, encoder's rate x 1, 1 epochs"
a, b = [score[arm, s] for s in (1, 2)], [score["scratch, 1 epochs", s] for s in (1, 2)]
d = [x - y for x, y in zip(a, b)]
half = 12.7062 * abs(d[0] - d[1]) / 2  # Student's t of one degree of freedom, 97.5 %
print(f"| {arm} | 2 | {sum(a) / 2:.3f} ± {abs(a[0] - a[1]) / math.sqrt(2):.3f} |")
print(f"| {sum(d) / 2:+.3f} ({sum(d) / 2 - half:+.3f} to {sum(d) / 2 + half:+.3f}) |")
P
python3 expected.py >expected || cat expected.py
check "an arm's mean and deviation are right" grep -qF -e "$(sed -n 1p expected)" table
check "the difference to scratch and its interval are right" grep -qF -e "$(sed -n 2p expected)" table
check "a pretraining tells bits per photon of a donor it has not seen" python3 - <<'P'
import json
runs = [json.loads(line) for line in open("worth/results.jsonl")]
encoders = [r for r in runs if r["kind"] == "pretrain"]
assert len(encoders) == 4 and all(r["bits_per_photon"] is not None for r in encoders), encoders
P
check "what is tested, pretraining has never seen: no warning of train_cv" bash -c '! grep -rq "seen test cells\|seen of test cells\|cannot be checked" worth/main/*/*/train.log'
lines=$(wc -l <worth/results.jsonl)
call 0 python3 "$worth" "${tiny[@]}"
check "a second call makes nothing again" test "$(wc -l <worth/results.jsonl)" = "$lines"
sed -i '$d' worth/results.jsonl
printf '{"key": "half a li' >>worth/results.jsonl
call 0 python3 "$worth" "${tiny[@]}"
check "a line that was cut is one run to make, and spoils no other" python3 - "$lines" <<'P'
import json, sys
keys = set()
for line in open("worth/results.jsonl"):
    if not line.startswith('{"key": "half'):
        keys.add(json.loads(line)["key"])
assert len(keys) == int(sys.argv[1]), keys
P
call 1 python3 "$worth" "${tiny[@]}" --seeds 3 --train-flags "--lr none"
says "--lr"
call 0 python3 "$worth" "${tiny[@]}" --seeds 3
says "scratch"
call 1 python3 "$worth" "${tiny[@]}" --seeds 4-9 --minutes 0.001
says "not begun"
call 2 python3 "$worth" --out none --programs "$build" --sets real
says "--sets real needs --real FILE"
finish
