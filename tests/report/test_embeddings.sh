#!/usr/bin/env bash
# fold_metrics --embeddings: the components of a file of predict --embeddings against NumPy's SVD, on the terminal, in every file and on
# the page; what is refused.
# Usage: test_embeddings.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
simulate few.h5 --cells 12
call 0 "$build/train_cv" --data k.h5 --preset nano --folds 3 --cv group --epochs 1 "${device[@]}" --batch 16 --out run
call 0 "$build/predict" --model run --data k.h5 "${device[@]}" --embeddings three.h5 --out p.csv
call 0 "$build/predict" --model run/fold_1/best.safetensors --data k.h5 "${device[@]}" --embeddings one.h5 --out q.csv
call 0 "$build/predict" --model run --data few.h5 "${device[@]}" --embeddings few_e.h5 --out r.csv
call 0 "$build/fold_metrics" run --embeddings three.h5 --json three.json --md three.md --replicates 0
cp out three
check "a table per fold" test "$(grep -cE '^  fold [012] +1 ' three)" = 3
check "and in Markdown" test "$(grep -c '^| fold [012] | [1-5] |' three.md)" = 15
call 0 "$build/fold_metrics" run --embeddings one.h5 --json one.json --replicates 0
check "one model is no fold" grep -qE '^  model 0 +1 ' out

python=$(for p in python3 /usr/bin/python3; do $p -c 'import h5py, numpy' 2>/dev/null && echo $p && break; done)
if [ -n "$python" ]; then
    cat >compare.py <<'P'
import json, sys, h5py, numpy as np
with h5py.File(sys.argv[1]) as f:
    x, label, group = f["embedding"][:].astype(float), f["label"][:], f["group"][:]
said = json.load(open(sys.argv[2]))["embeddings"]
assert said["cells"] == x.shape[1] and said["features"] == x.shape[2] and said["groups"] == len(set(group)), said
def eta(score, sets):
    between = sum((score[sets == k].mean() - score.mean()) ** 2 * (sets == k).sum() for k in set(sets))
    return between / ((score - score.mean()) ** 2).sum()
assert len(said["models"]) == len(x)
for m, model in enumerate(said["models"]):
    u, s, _ = np.linalg.svd(x[m] - x[m].mean(0), full_matrices=False)  # no covariance: another way than the program's
    share = s**2 / (s**2).sum()
    assert abs(model["effective_dimensions"] * (share**2).sum() - 1) < 1e-6, model
    assert len(model["components"]) == 5
    for k, one in enumerate(model["components"]):
        want = share[k], eta(u[:, k], label), eta(u[:, k], group)
        got = one["share_of_variance"], one["eta_squared_class"], one["eta_squared_group"]
        assert np.allclose(got, want, atol=1e-5), (m, k, got, want)
P
    check "shares and eta squared are NumPy's" "$python" compare.py three.h5 three.json
    check "of one model, too" "$python" compare.py one.h5 one.json
    "$python" - <<'P'
import h5py
with h5py.File("three.h5") as f:
    x, label, group = f["embedding"][:], f["label"][:], f["group"][:]
def write(path, **what):
    with h5py.File(path, "w") as f:
        for name, value in what.items():
            f[name] = value
bad = x.copy()
bad[0, 3, 2] = float("nan")
write("bare.h5", embedding=x)
write("same.h5", embedding=0 * x + 1, label=label, class_name=["a", "b"], group=group)
write("nan.h5", embedding=bad)
write("flat.h5", embedding=x[0])
write("short.h5", embedding=x, label=label[1:], class_name=["a", "b"])
write("unnamed.h5", embedding=x, label=label, class_name=["a"])
write("groups.h5", embedding=x, group=group[1:])
P
    call 0 "$build/fold_metrics" run --embeddings bare.h5 --replicates 0
    check "without labels and groups eta squared is not known" grep -qE '^  fold 0 +1 +0\.[0-9]+ +n/a +n/a' out
    call 0 "$build/fold_metrics" run --embeddings same.h5 --replicates 0
    check "features that do not vary have no components" grep -qE '^  fold 0 +1 +n/a +n/a +n/a' out
    for refused in "nan.h5:not finite" "flat.h5:not (M,n,C)" "short.h5:not one integer per cell" "unnamed.h5:has no class_name" "groups.h5:a text per cell"; do
        call 3 "$build/fold_metrics" run --embeddings "${refused%%:*}" --replicates 0
        says "${refused#*:}"
    done
fi
call 3 "$build/fold_metrics" run --embeddings few_e.h5 --replicates 0
says "has embeddings of 12 cells"
call 3 "$build/fold_metrics" run --embeddings k.h5 --replicates 0
says "embedding"
if command -v gnuplot >/dev/null; then
    call 0 "$build/fold_metrics" run --embeddings three.h5 --html page.html --replicates 0 --no-pictures
    check "the page has both plots and the table" test "$(grep -c 'alt="Principal components by' page.html)" = 2
    check "and a contents' line" grep -q "What the network sees: principal components" page.html
    call 0 "$build/fold_metrics" run --html plain.html --replicates 0 --no-pictures
    check "without the file there is no such section" bash -c '! grep -q "What the network sees" plain.html'
fi
finish
