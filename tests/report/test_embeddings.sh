#!/usr/bin/env bash
# fold_metrics --embeddings: the components of a file of predict --embeddings against NumPy's SVD, on the terminal, in every file and on
# the page; what is refused: no such file, another data set's (the first cell that differs is named), another run's or model's.
# Usage: test_embeddings.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
simulate few.h5 --cells 12
call 0 "$build/train_cv" --data k.h5 --preset nano --folds 3 --cv group --holdout-group donor_6 --epochs 1 "${device[@]}" --batch 16 --out run
call 0 "$build/predict" --model run --data k.h5 "${device[@]}" --embeddings three.h5 --out p.csv
call 0 "$build/predict" --model run/fold_1/best.safetensors --data k.h5 "${device[@]}" --embeddings one.h5 --out q.csv
call 0 "$build/predict" --model run --data few.h5 "${device[@]}" --embeddings few_e.h5 --out r.csv
call 0 "$build/fold_metrics" run --embeddings three.h5 --json three.json --md three.md --replicates 0
cp out three
check "a table per fold" test "$(grep -cE '^  fold [012] +1 ' three)" = 3
check "and in Markdown" test "$(grep -c '^| fold [012] | [1-5] |' three.md)" = 15
call 0 "$build/fold_metrics" run --embeddings one.h5 --json one.json --replicates 0
check "one model is named by its fold" grep -qE "^  fold 1 +1 " out

call 0 "$build/predict" --data k.h5 --model run/fold_2 --model run/fold_0 --embeddings turned.h5 --out p.csv
call 0 "$build/fold_metrics" run --embeddings turned.h5 --replicates 0
check "models are named by what they are, in whatever order" test "$(grep -oE '^  fold [0-9] +1 ' out | awk '{ print $2 }' | paste -sd ' ')" = '2 0'

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
    x, label, group, names = f["embedding"][:], f["label"][:], f["group"][:], f["class_name"][:]
    fold, splits, weights = f["fold"][:], f["splits_sha256"][:], f["weights_sha256"][:]
    assert list(fold) == [0, 1, 2] and len(set(splits)) == 1 and len(set(weights)) == 3 and len(f.attrs["data_sha256"]) == 64
def write(path, **what):
    with h5py.File(path, "w") as f:
        for name, value in what.items():
            f[name] = value
bad = x.copy()
bad[0, 3, 2] = float("nan")
write("bare.h5", embedding=x)
write("same.h5", embedding=0 * x + 1, label=label, class_name=names, group=group)
write("nan.h5", embedding=bad)
write("flat.h5", embedding=x[0])
write("short.h5", embedding=x, label=label[1:], class_name=["a", "b"])
write("unnamed.h5", embedding=x, label=label, class_name=["a"])
write("groups.h5", embedding=x, group=group[1:])
write("folds.h5", embedding=x, fold=[1, 2])
write("hashes.h5", embedding=x, fold=fold, splits_sha256=splits[1:], weights_sha256=weights)
known = dict(embedding=x, label=label, class_name=names, group=group, fold=fold, splits_sha256=splits, weights_sha256=weights)
write("known.h5", **known)
for cell in 5, 40, list(group).index(b"donor_6"):  # the last one is held out
    other = label.copy()
    other[[cell, -1]] = 1 - other[[cell, -1]]
    write(f"label_{cell}.h5", **{**known, "label": other})
    other = group.astype("S16")
    other[[cell, -1]] = b"elsewhere"
    write(f"group_{cell}.h5", **{**known, "group": other})
    print(cell, names[label[cell]].decode(), names[1 - label[cell]].decode(), group[cell].decode(), file=open("cells", "a"))
write("class.h5", **{**known, "class_name": names[::-1]})
write("names.h5", **{**known, "name": [f"n{i}" for i in range(len(label))]})
write("wide.h5", **{**known, "embedding": x[:, :, :8]})
write("splits.h5", **{**known, "splits_sha256": [splits[0], splits[0], b"0" * 64]})
write("weights.h5", **{**known, "weights_sha256": weights[::-1]})
write("unknown.h5", **{**known, "fold": [-1, -1, 65535], "splits_sha256": [b"", b"", splits[0]]})
P
    call 0 "$build/fold_metrics" run --embeddings bare.h5 --replicates 0
    check "without labels and groups eta squared is not known" grep -qE '^  model 0 +1 +0\.[0-9]+ +n/a +n/a' out
    call 0 "$build/fold_metrics" run --embeddings same.h5 --replicates 0
    check "features that do not vary have no components" grep -qE '^  model 0 +1 +n/a +n/a +n/a' out
    for refused in "nan.h5:not finite" "flat.h5:not (M,n,C)" "short.h5:not one integer per cell" "unnamed.h5:has no class_name" "groups.h5:a text per cell" \
        "folds.h5:/fold is not one integer per model" "hashes.h5:a hash per model" "class.h5:the class of cell 0 is" "names.h5:the name of cell 0 is 'n0', in the run's predictions 'donor_1_c00001'" \
        "wide.h5:has 8 features per cell" "splits.h5:another run's model (number 2)" "weights.h5:other weights of fold 0"; do
        call 3 "$build/fold_metrics" run --embeddings "${refused%%:*}" --replicates 0
        says "${refused#*:}"
    done
    for taken in known.h5 unknown.h5; do
        call 0 "$build/fold_metrics" run --embeddings $taken --replicates 0
    done
    check "three cells to alter" test "$(wc -l <cells)" = 3
    while read -r cell class other group; do
        call 3 "$build/fold_metrics" run --embeddings "label_$cell.h5" --replicates 0
        says "label_$cell.h5 has embeddings of other data than that of run: the class of cell $cell is '$other', in the run's predictions '$class'"
        call 3 "$build/fold_metrics" run --embeddings "group_$cell.h5" --replicates 0
        says "the group of cell $cell is 'elsewhere', in the run's predictions '$group'"
    done <cells
fi
call 3 "$build/fold_metrics" run --embeddings few_e.h5 --replicates 0
says "has embeddings of 12 cells"
call 3 "$build/fold_metrics" run --embeddings k.h5 --replicates 0
says "embedding"

# ---- of as many cells, but not the run's data, or not its models
simulate shape.h5 --bins 12
small=(--folds 3 --cv group --holdout-group donor_6 --epochs 1 "${device[@]}" --batch 16)
call 0 "$build/train_cv" --data k.h5 --preset nano "${small[@]}" --seed 9 --out reseeded
call 0 "$build/train_cv" --data k.h5 --preset nano "${small[@]}" --splits run/splits.json --lr 3e-3 --out again
call 0 "$build/train_cv" --data k.h5 --preset tiny "${small[@]}" --splits run/splits.json --out wider
call 0 "$build/train_cv" --data shape.h5 --preset nano "${small[@]}" --out shaped
call 0 "$build/pretrain" --data k.h5 --preset nano --epochs 1 --warmup-epochs 0 "${device[@]}" --batch 16 --out encoder
for model in reseeded again wider shaped encoder/encoder.safetensors; do
    data=k.h5
    test $model = shaped && data=shape.h5
    call 0 "$build/predict" --model $model --data $data "${device[@]}" --embeddings "e_${model%%/*}.h5" --out "p_${model%%/*}.csv"
done
call 3 "$build/fold_metrics" run --embeddings e_reseeded.h5 --replicates 0
says "e_reseeded.h5 has embeddings of another run's model (number 0)"
call 3 "$build/fold_metrics" run --embeddings e_again.h5 --replicates 0
says "e_again.h5 has embeddings of"
call 3 "$build/fold_metrics" run --embeddings e_wider.h5 --replicates 0
says "features per cell, those of a network as in run/config.yaml are 16"
call 3 "$build/fold_metrics" run --embeddings e_shaped.h5 --replicates 0
says "e_shaped.h5 has embeddings of other data than that of run: its SHA-256 is"
call 0 "$build/fold_metrics" run --embeddings e_encoder.h5 --replicates 0
check "an encoder is of no run" grep -qE '^  model 0 +1 ' out
if command -v gnuplot >/dev/null; then
    call 0 "$build/fold_metrics" run --embeddings three.h5 --html page.html --replicates 0 --no-pictures
    check "the page has both plots and the table" test "$(grep -c 'alt="Principal components by' page.html)" = 2
    check "and a contents' line" grep -q "What the network sees: principal components" page.html
    call 0 "$build/fold_metrics" run --html plain.html --replicates 0 --no-pictures
    check "without the file there is no such section" bash -c '! grep -q "What the network sees" plain.html'
fi
finish
