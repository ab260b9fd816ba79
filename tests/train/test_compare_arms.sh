#!/usr/bin/env bash
# tools/compare_arms.py: its table against numbers computed here from the runs' own summaries.
# Usage: test_compare_arms.sh BUILD_DIR
set -u
arms_program=$(cd "$(dirname "$0")/../../tools" && pwd)/compare_arms.py
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "left out: no python3"; exit 77; }
"$build/flim_simulate" --out k.h5 --cells 48 --donors 6 --bins 16 --height 7 --width 7 --seed 3 >/dev/null || exit 1
common=(--train-cv "$build/train_cv" --out arms --seeds 3 --metrics "accuracy,log_loss")
flags=(--data k.h5 --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu)
call 0 python3 "$arms_program" "${common[@]}" --jobs 2 --arm 'first=' --arm 'the same=' --arm 'faster=--lr 1e-2' -- "${flags[@]}"
cp out table
check "an arm that is the same differs by nothing" grep -qF '| the same | +0.000 (+0.000 to +0.000) | +0.000 (+0.000 to +0.000) |' table
cat >expected.py <<'PY'
import json, math
score = lambda arm, s: json.load(open(f"arms/{arm}/seed_{s}/summary.json"))["mean"]["log_loss"]
first, faster = [[score(arm, s) for s in (1, 2, 3)] for arm in ("first", "faster")]
d = [b - a for a, b in zip(first, faster)]
mean = sum(d) / 3
half = 4.30265 * math.sqrt(sum((x - mean) ** 2 for x in d) / 2 / 3)  # Student's t of 2 degrees of freedom, 97.5 %
print(f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}) |")
PY
check "the difference and its interval are right" grep -qF -e "$(python3 expected.py)" table
touch arms/marker
call 0 python3 "$arms_program" "${common[@]}" --arm 'first=' --arm 'faster=--lr 1e-2' -- "${flags[@]}"
check "complete runs are not made again" test -z "$(find arms -name best.safetensors -newer arms/marker)"
call 1 python3 "$arms_program" "${common[@]}" --arm 'first=' --arm 'wrong=--lr none' -- "${flags[@]}"
says "--lr"
call 2 python3 "$arms_program" "${common[@]}" --arm 'no equals sign' -- "${flags[@]}"
finish
