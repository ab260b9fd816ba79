#!/usr/bin/env bash
# train_cv --log-json: every line is a JSON object whose fields and types are those that docs/train_cv.md lists for its event, over
# runs that end well, resume, fail, have stages, a refit and a final model.  Usage: test_log_json.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
simulate d.h5
cat >events.py <<'PY'
"""events.py DOCUMENT FILE EVENT...: checks every line of FILE; the events in their order, each once, must be among its own."""
import json, math, re, sys

types = {"text": str, "int": int, "number": (int, float), "bool": bool, "object": dict}
known = {}
for names, fields in re.findall(r"^\| ([a-z_, ]+) \| [^|]+ \| ([^|]+) \|$", open(sys.argv[1]).read().split("`--log-json` prints")[1].split("\n## ")[0], re.M):
    table = dict(re.findall(r"(\w+) ((?:text|int|number|bool|object)\??)", re.sub(r"\(.*?\)", "", fields)))
    known |= {name: table for name in names.split(", ") if name != "event"}
assert len(known) == 11, list(known)
events = [json.loads(line, parse_constant=lambda x: sys.exit(f"{x} is no JSON")) for line in open(sys.argv[2])]
for e in events:
    want = {"event": "text", "time": "number"} | known[e["event"]]
    assert list(e)[:2] == ["event", "time"] and set(e) == set(want), (set(e) ^ set(want), e)
    assert 1.6e9 < e["time"] < 4e9
    for key, kind in want.items():
        if e[key] is None:
            assert kind.endswith("?"), (key, e)
        else:
            assert isinstance(e[key], types[kind.rstrip("?")]) and (kind == "bool") == (type(e[key]) is bool), (key, kind, e)
    for metrics in (e.get(k) for k in ("metrics", "mean", "sd", "pooled")):
        assert metrics is None or all(v is None or math.isfinite(v) for v in metrics.values()) and "roc_auc" in metrics, e
assert all(a["time"] <= b["time"] + 0.01 for a, b in zip(events, events[1:]))
for name in sys.argv[3:]:
    name, _, rest = name.partition(":")
    field, _, value = rest.partition("=")
    assert any(e["event"] == name and (not field or str(e[field]) == value) for e in events), f"no {name} {rest}"
assert not events or events[-1]["event"] == "run_end", events[-1]
PY
events() { check "events of $1: ${*:2}" python3 events.py "$top/docs/train_cv.md" "$@"; }
train=("$build/train_cv" --data d.h5 --preset tiny --batch 4 --device cpu --workers 2 --cv stratified --log-json)

call 0 "${train[@]}" --folds 2 --epochs 2 --out run
cp out run.jsonl
check "nothing but events: $(head -c 200 err)" test ! -s err
events run.jsonl run_start:run=run split:fold=1 fold_start:resumed=False epoch:best=True epoch:epoch=2 estimate:epochs_left=4 fold_end:status=done summary:folds_done=2 run_end:status=done
check "an epoch of each fold, in order" test "$(grep -o '"event": "epoch".*"epoch": [0-9]*' run.jsonl | grep -o '"fold": [0-9]*\|"epoch": [0-9]*' | tr -d '\n')" = '"fold": 0"epoch": 1"fold": 0"epoch": 2"fold": 1"epoch": 1"fold": 1"epoch": 2'
check "the estimate comes before the first epoch ends, once" bash -c 'test "$(grep -n "\"estimate\"\|\"epoch\", " run.jsonl | head -2 | grep -c estimate)" = 1 && test "$(grep -c "\"event\": \"estimate\"" run.jsonl)" = 1'
check "train.log has the words" grep -q "^fold 1 epoch 2/2 | lr" run/train.log
check "train.log has the estimate" grep -q "^Estimate: at most about .* for all 4 epochs, at .* s per batch" run/train.log
call 0 "${train[@]}" --folds 2 --dry-run
events out run_start:run=None split:fold=0 run_end:status=done
call 0 "${train[@]}" --folds 2 --epochs 1 --refit --final --out more
events out fold_start:training=refit fold_start:training=final fold_end:fold=None
printf 'stages:\n  - {name: first, epochs: 1}\n  - {name: second, epochs: 2, lr: 1e-4}\n' >stages.yaml
call 0 "${train[@]}" --folds 2 --config stages.yaml --out stages
events out epoch:stage=first epoch:stage=second run_start:epochs=3

call 0 "${train[@]}" --folds 2 --epochs 1 --jobs 2 --out jobs
events out run_start:run=jobs epoch:fold=0 epoch:fold=1 fold_end:fold=1 summary:folds_done=2 run_end:epochs_trained=None
check "two workers: one start, one end" test "$(grep -c '"event": "run_\(start\|end\)"' out)" = 2

# ---- ends that are none
call 2 "${train[@]}" --folds 2 --out run
events out error:kind=usage run_end:status=failed
check "the error is on standard error, too, which leads elsewhere" grep -q "^train_cv: error: run already contains a run" err
"${train[@]}" --folds 2 --out run >both 2>&1
events both error:kind=usage
check "both streams in one: the error appears once" test "$(grep -c 'already contains a run' both)" = 1
"${train[@]}" --folds 2 --epochs 200000 --out stopped >out 2>err &
child=$!
for _ in $(seq 200); do grep -q '"event": "epoch"' out && break; sleep 0.1; done
kill -INT $child
wait $child
check "interrupted: exit code 130" test $? = 130
events out estimate note run_end:status=interrupted
check "a run of hours has a hint" grep -q '"note".*that is long; what takes less: ' out
call 0 "$build/train_cv" --resume --resume-override --epochs 2 --out stopped --log-json
events out run_start:resumed=True run_end:status=done
finish
