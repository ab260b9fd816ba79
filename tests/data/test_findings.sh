#!/usr/bin/env bash
# What is odd in a file, as the programs say it: train_cv before it trains, in its log and summary.json; flim_info in its table.
# Usage: test_findings.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
python=/usr/bin/python3
$python -c 'import h5py, numpy' 2>/dev/null || { echo "skipped: no h5py"; exit 77; }
train=("$build/train_cv" --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --workers 2)
look() { # look EXPECTED_EXIT FILE... [FLAG...]: what train_cv says of the data, without training
    local want=$1 files=()
    shift
    while [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; do files+=(--data "$1"); shift; done
    call "$want" "${train[@]}" "${files[@]}" --out never --dry-run "$@"
}
not_said() { check "stderr does not say '$1'" bash -c '! grep -qF -- "$1" "$2"' _ "$1" "$work/err"; }

# write("name.h5", group=..., label=..., counts=..., mask=..., name=..., **attributes) makes a file; "good" data are its defaults:
# 60 cells of 10 x 7 x 7, two classes, six donors.
cat >make.py <<'PY'
import h5py
import numpy as np

N, T, H, W = 60, 10, 7, 7
rng = np.random.default_rng(7)
label = np.arange(N) % 2
donor = np.array([f"D{i // 2 % 6 + 1}" for i in range(N)], dtype=object)
counts = rng.poisson(8 * np.exp(-np.arange(T) / (2 + label[:, None])), (H, W, N, T)).transpose(2, 3, 0, 1).astype("u2")
y, x = np.mgrid[:H, :W]
mask = np.repeat(((y - 3) ** 2 + (x - 3) ** 2 <= 9)[None], N, 0).astype("u1")


def write(path, attributes={}, **columns):
    columns = {"counts": counts, "label": label, "group": donor, **columns}
    with h5py.File(path, "w") as f:
        for key, value in columns.items():
            if value is None:
                continue
            if value.dtype == object:
                f.create_dataset(key, data=value, dtype=h5py.string_dtype())
            else:
                f[key] = value
        f.attrs.update(attributes)
PY
PYTHONPATH=. $python - <<'PY'
from make import *
write("good.h5")
empty = donor.copy(); empty[10:20] = ""
write("empty.h5", group=empty)
number = np.array([int(d[1:]) for d in donor]); number[4] = -2**63
write("least.h5", group=number)
fill = np.array([int(d[1:]) for d in donor], "i4"); fill[30:40] = -2147483647
write("fill.h5", group=fill)
words = donor.copy(); words[[1, 3, 50]] = "nan"
write("words.h5", group=words)
bom = donor.copy(); bom[[i for i in range(N) if donor[i] == "D3"][:5]] = "\ufeffD3"
write("bom.h5", group=bom)
write("zeros.h5", group=np.array([d.replace("D", "D0") for d in donor], dtype=object))
for file, names in {"case": ["act", "Act"], "hidden": ["act", "act\u200b"], "words": ["act", "inact"]}.items():
    write(f"class_{file}.h5", attributes={"class_names": names})
write("own.h5", group=np.array([f"c{i}" for i in range(N)], dtype=object))
with h5py.File("never.h5", "w") as f: # strings that were never written
    f["counts"], f["label"] = counts, label
    f.create_dataset("group", (N,), h5py.string_dtype())[:50] = donor[:50]
PY

look 0 good.h5
not_said "warning"
look 3 empty.h5
says "10 of 60 cells have no group: /group is '' in them, cell 10 first"
look 3 never.h5
says "10 of 60 cells have no group: /group is '' in them, cell 50 first"
look 3 least.h5
says "1 of 60 cells has no group: /group is '-9223372036854775808', the smallest 64-bit integer"
look 3 fill.h5
says "10 of 60 cells have no group: /group is '-2147483647', netCDF's fill value of 32-bit integers in them, cell 30 first"
look 0 empty.h5 --cv stratified
says "10 of 60 cells have no group"
look 3 empty.h5 --cv leave-one-group-out
look 3 empty.h5 --cv stratified --sampler group-balanced
look 3 empty.h5 --cv stratified --holdout-group D1
look 0 words.h5
says "3 of 60 cells have the group 'nan'"
says "(cells 1, 3, 50)"
look 0 bom.h5
says "'D3' and '\\ufeffD3' differ only by invisible characters"
look 0 good.h5 zeros.h5 # across files
says "'D01' and 'D1' differ only by leading zeros"
look 0 class_words.h5
not_said "warning"
look 0 class_hidden.h5
says "classes 'act' and 'act\\u200b' differ only by invisible characters: they are treated as different; are they one class?"
look 0 class_case.h5
says "classes 'act' and 'Act' differ only by case: they are treated as different; are they one class? (cells 1, 3, 5, 7, 9, ...)"
call 0 "$build/flim_info" class_case.h5
check "flim_info shows classes that look alike" grep -qE '^classes_alike +warning +30  1, 3, 5, 7, 9, ...' "$work/out"
call 0 "$build/flim_info" class_case.h5 --no-scan
check "also without a scan" grep -qE '^classes_alike +warning' "$work/out"
look 0 own.h5
says "60 of 60 groups have one cell only"

look 0 bom.h5 --holdout-group D3
says "holdout_group 'D3': group '\\ufeffD3' differs only by invisible characters and is not held out"
look 0 bom.h5 --holdout-group D3 --holdout-group $'\ufeffD3'
not_said "is not held out"
look 2 good.h5 --holdout-group d03
says "holdout_group 'd03': no such group among the 6 of the data, did you mean 'D3', which differs only by case and leading zeros"

# ---- the same in the run's folder, and as flim_info has it
call 0 "${train[@]}" --data words.h5 --out run
says "3 of 60 cells have the group 'nan'"
check "train.log says it" grep -qF "3 of 60 cells have the group 'nan'" run/train.log
check "summary.json says it" $python -c '
import json
found = json.load(open("run/summary.json"))["findings"]
assert [f["kind"] for f in found] == ["group_doubtful"], found
assert found[0]["severity"] == "warning" and found[0]["count"] == 3 and found[0]["cells"] == [1, 3, 50], found
assert "nan" in found[0]["text"]'
call 0 "$build/fold_metrics" run --html page.html
says "data: 3 of 60 cells have the group 'nan'"
check "the page says it" grep -q "3 of 60 cells have the group" page.html
call 0 "$build/flim_info" words.h5 --json words.json
check "flim_info shows it" grep -qE '^group_doubtful +warning +3  1, 3, 50' "$work/out"
check "flim_info's JSON has it" $python -c '
import json
assert json.load(open("words.json"))[0]["findings"] == json.load(open("run/summary.json"))["findings"]'
call 3 "$build/flim_info" empty.h5
check "flim_info shows missing groups" grep -qE '^group_missing +error +10  10, 11, 12, 13, 14, ...' "$work/out"

# ---- cells without photons or counts, masks that belong to something else
PYTHONPATH=. $python - <<'PY'
from make import *
dark = counts.copy(); dark[[5, 17]] = 0
write("dark.h5", counts=dark)
write("night.h5", counts=0 * counts)
# Photons in an L of each cell's own, which no flip or turn leaves where it was.
def shape(i):
    m = np.zeros((H, W), "u1")
    m[0:4, i % 2] = 1
    m[3, i % 2 : 3 + i % 3] = 1
    return m
own = np.array([shape(i) for i in range(N)])
lit = (counts * own[:, None]).astype("u2")
lit[:, :, 6, 6] += 1 # a little light elsewhere
write("own_mask.h5", counts=lit, mask=own)
write("transposed.h5", counts=lit, mask=own.transpose(0, 2, 1))
write("rows.h5", counts=lit, mask=own[:, ::-1])
write("columns.h5", counts=lit, mask=own[:, :, ::-1])
write("turned.h5", counts=lit, mask=np.rot90(own, 1, (1, 2)))
write("half.h5", counts=lit, mask=own[:, ::-1, ::-1])
write("shifted.h5", counts=lit, mask=np.roll(own, (1, 2), (1, 2)))
write("inverted.h5", counts=lit, mask=1 - own)
write("next.h5", counts=lit, mask=np.roll(own, 1, 0))
write("everywhere.h5", counts=lit, mask=1 + 0 * own)
write("soft.h5", counts=lit, mask=np.where(own, 0.97, 0.004) * (rng.random(own.shape) < 0.9))
instances = 7 * own; instances[3, 6, 6] = 12; instances[9, 6, 5] = 12
write("instances.h5", counts=lit, mask=instances)
write("bytes.h5", counts=lit, mask=255 * own)
write("one_number.h5", counts=lit, mask=(own * np.arange(1, N + 1)[:, None, None]).astype("u1")) # each cell its own number
bare = own.copy(); bare[[2, 40]] = 0
write("bare.h5", counts=lit, mask=bare)
away = own.copy(); away[11] = 0; away[11, 6, 0] = 1
write("away.h5", counts=lit, mask=away)
anywhere = np.zeros_like(own); anywhere[:, 2:, :] = 1
write("anywhere.h5", counts=np.maximum(counts, 1), mask=anywhere)
clipped = counts.copy(); clipped[23, 2, 3, 3] = 65535
write("clipped.h5", counts=clipped)
write("clipped4.h5", counts=np.where(clipped == 65535, 2**31 - 1, counts).astype("i4"))
write("log.h5", counts=np.log1p(counts).astype("f4"))
write("twice.h5", counts=(np.log1p(counts) / 10).astype("f4"))
write("normal.h5", counts=(counts / counts.max()).astype("f4"))
write("smooth.h5", counts=(counts + 0.3 * rng.random(counts.shape) * (counts > 0)).astype("f4"))
write("float.h5", counts=counts.astype("f8"))
write("seconds.h5", attributes={"time_range_ns": 1.25e-8})
write("picoseconds.h5", attributes={"time_range_ns": 12500.0})
write("micro.h5", attributes={"time_range_ns": 0.0125})
write("ns.h5", attributes={"time_range_ns": 12.5})
PY
look 0 dark.h5
says "2 of 60 cells have no photons"
says "(cells 5, 17)"
look 3 night.h5
says "none of the 60 cells has a photon"
call 3 "$build/flim_info" night.h5
for file in own_mask bytes one_number float ns; do
    look 0 $file.h5
    not_said "warning"
done
wrong_mask() { # FILE WORDS: train_cv and flim_info say where the masks belong
    look 0 "$1.h5"
    says "$2: do they belong to these cells?"
    call 0 "$build/flim_info" "$1.h5"
    check "flim_info says of $1: $2" grep -qF "$2: do they" "$work/out"
}
wrong_mask transposed "if each is transposed"
wrong_mask rows "if each is flipped top to bottom"
wrong_mask columns "if each is flipped left to right"
wrong_mask half "if each is turned by 180 degrees"
wrong_mask inverted "if each is inverted"
wrong_mask next "if each is that of the cell after"
look 0 shifted.h5
says "if each is shifted by up to three pixels"
look 0 turned.h5
check "a quarter turn is seen" grep -qE "if each is turned by (90|270) degrees" "$work/err"
look 0 transposed.h5 --mask-counts # the photons that the mask will zero are looked at, too
says "if each is transposed"
look 0 everywhere.h5
says "the mask is inside everywhere in 60 of 60 cells"
look 0 anywhere.h5
says "no more than anywhere else"
look 0 soft.h5
says "values between 0 and 1, from 0.004 to 0.97"
look 0 instances.h5
says "several numbers in one mask in 2 cells, 7 and 12 in cell 3"
look 0 bare.h5
says "2 of 60 cells have an empty mask"
look 0 away.h5
says "1 of 60 cells has photons outside of the mask only"
says "(cell 11)"
look 0 clipped.h5
says "1 of 60 cells has voxels at the largest number that uint16"
look 0 clipped4.h5
says "1 of 60 cells has voxels at the largest number that int32"
look 0 log.h5
says "they look like log(1 + count); expected photon counts"
look 0 twice.h5
says "they look like log(1 + count) / 10"
look 0 normal.h5
says "they look like counts times a constant"
look 0 smooth.h5
says "they look like neither counts nor a known function of counts"
look 0 seconds.h5
says "time_range_ns is 1.25e-08, 1.25e-09 ns per bin: is it in seconds, 12.5 ns?"
look 0 picoseconds.h5
says "is it in picoseconds, 12.5 ns?"
look 0 micro.h5
says "is it in microseconds, 12.5 ns?"
call 0 "$build/flim_info" own_mask.h5 transposed.h5 --together --json both.json
check "the share of photons inside is shown per file" test "$(grep -c 'photons are inside (' "$work/out")" = 2
check "the share of photons inside is what the file says" env PYTHONPATH=. $python -c '
import json, h5py, numpy as np
for entry in json.load(open("both.json"))[0]["files"]:
    with h5py.File(entry["path"]) as f:
        photons, mask = f["counts"][:].sum(1, dtype="f8"), f["mask"][:] != 0
    share = ((photons * mask).sum((1, 2)) / photons.sum((1, 2))).mean()
    assert abs(share - entry["photons_inside_mask"]) < 1e-6, (share, entry)'

# ---- copies in different folds, and a hold-out of one class
PYTHONPATH=. $python - <<'PY'
from make import *
def again(path, change, label_of_copy=label):
    write(path, counts=np.concatenate([counts, change(counts)]), label=np.concatenate([label, label_of_copy]),
          group=np.concatenate([donor, np.array(["E" + d[1:] for d in donor], dtype=object)]))
again("copies.h5", lambda c: c)
again("labelled.h5", lambda c: c, 1 - label)
again("doubled.h5", lambda c: 2 * c)
again("rolled.h5", lambda c: np.roll(c, 3, 1))
again("flipped.h5", lambda c: c[:, :, ::-1])
again("quarter.h5", lambda c: np.rot90(c, 1, (2, 3)))
again("all_at_once.h5", lambda c: 3 * np.roll(np.rot90(c, 3, (2, 3))[:, :, ::-1], 5, 1))
again("scaled.h5", lambda c: (c * np.float32(0.37)).astype("f4"))
again("logged.h5", lambda c: np.log1p(c).astype("f4"))
again("thinned.h5", lambda c: rng.binomial(c, 0.9).astype("u2"))
again("nudged.h5", lambda c: c + (np.arange(T * H * W).reshape(T, H, W) == 100).astype("u2"))
one = np.array([f"D{i % 6}" for i in range(N)], dtype=object)
one[::7] = "D7"
write("one.h5", group=np.where((label == 1) & (np.arange(N) < 20), "D8", one).astype(object))
PY
for which in "copies:copies of each other" "labelled:of them have another label than the cell they copy" \
    "doubled:times a factor" "rolled:rolled in time" "flipped:copies of each other" "quarter:copies of each other" \
    "all_at_once:times a factor" "scaled:times a factor" "logged:times a factor"; do
    look 0 "${which%%:*}.h5" --folds 3
    says "${which#*:}"
    says "not tested in the same fold"
    call 0 "$build/flim_info" "${which%%:*}.h5"
    check "flim_info says of ${which%%:*}: 120 cells" grep -qE "^(copies|multiples|rolled_copies) +warning +120  0, 1, 2, 3, 4, ..." "$work/out"
done
PYTHONPATH=. $python - <<'PY'
from make import *
write("named.h5", {"class_names": ["rest", "active"]}, counts=counts[:, ::-1])
write("renamed.h5", {"class_names": ["rest", "inert"]}, counts=counts[:, ::-1])
write("third.h5", {"class_names": ["rest", "active", "dead"]}, counts=counts[:, ::-1])
PY
for files in "good.h5 named.h5" "named.h5 good.h5"; do
    # shellcheck disable=SC2086 # two files
    look 0 $files --folds 3
    says "of 2 files some have no attribute class_names: label 0 is taken there for 'rest'"
done
look 3 named.h5 renamed.h5
says "2 and 2 names, class 1 is 'inert' and 'active'"
look 3 named.h5 third.h5
says "3 and 2 names, class 2 is 'dead' and '(none)'"
look 0 good.h5 --cv leave-one-group-out
says "--folds 2 has no effect: --cv leave-one-group-out makes 6 folds, one per group"
for file in thinned nudged; do
    look 0 $file.h5 --folds 3
    not_said "not tested in the same fold"
done
call 0 "$build/train_cv" --data copies.h5 --preset tiny --batch 16 --device cpu --out never --dry-run --test-groups D1 --val-groups D2
says "copies of each other, as they are, flipped or turned"
says "not tested in the same fold"
seq 60 119 >second_half.txt
look 0 copies.h5 --folds 3 --exclude second_half.txt
not_said "copies of each other"
cp good.h5 twin.h5
look 0 good.h5 twin.h5 --folds 3 --cv group
says "120 cells are copies of each other, as they are, flipped or turned"
says "within one fold: each counts more than once"
not_said "not tested in the same fold"
look 0 one.h5 --holdout-group D8 --cv stratified
says "all 10 held-out cells are of one class, '1'"
look 0 good.h5 --holdout-group D1
not_said "held-out cells are of one class"

# ---- splits by number, where cells have numbers as names
PYTHONPATH=. $python - <<'PY'
import json
from make import *
order = rng.permutation(N)
text = lambda numbers: np.array([str(i) for i in numbers], dtype=object)
write("permuted.h5", name=text(order))
write("thousands.h5", name=text(order + 1000))
write("in_order.h5", name=text(range(N)))
write("twice_named.h5", name=text(order // 2))
write("numbers.h5", name=order.astype("i4"))
half = [[int(i) for i in range(N) if i // 12 % 2 == k] for k in (0, 1)]
json.dump([{"train": half[1], "val": half[0]}, {"train": half[0], "val": half[1]}], open("nnunet.json", "w"))
json.dump({"folds": [{"train": half[1], "test": half[0]}, {"train": half[0], "test": half[1]}]}, open("folds.json", "w"))
far = [[i + 1000 for i in h] for h in half]
json.dump([{"train": far[1], "val": far[0]}, {"train": far[0], "val": far[1]}], open("far.json", "w"))
json.dump([{"train": text(half[1]).tolist(), "val": text(half[0]).tolist()},
           {"train": text(half[0]).tolist(), "val": text(half[1]).tolist()}], open("texts.json", "w"))
json.dump({"mode": "stratified", "folds": [{"train": half[1], "test": half[0]}, {"train": half[0], "test": half[1]}]},
          open("mode.json", "w"))
json.dump({"by name": sorted(int(np.flatnonzero(order == i)[0]) for i in half[0]), "by index": half[0]}, open("expected.json", "w"))
PY
tested() { # tested OUT KEY: fold 0 of the run tests what expected.json has under KEY
    check "$1 reads $2" $python -c '
import json, sys
assert json.load(open(sys.argv[1] + "/splits.json"))["folds"][0]["test"] == json.load(open("expected.json"))[sys.argv[2]]' "$1" "$2"
}
for file in nnunet folds; do
    for data in permuted numbers; do
        look 3 $data.h5 --splits $file.json
        says "$file.json: its numbers can be read in two ways:"
        says "say which with --splits-by index or --splits-by name"
        call 0 "${train[@]}" --data $data.h5 --splits $file.json --splits-by index --out by_index_$data.$file
        tested by_index_$data.$file "by index"
        call 0 "${train[@]}" --data $data.h5 --splits $file.json --splits-by name --out by_name_$data.$file
        tested by_name_$data.$file "by name"
    done
    for data in in_order twice_named good; do
        look 0 $data.h5 --splits $file.json
    done
done
call 0 "${train[@]}" --data permuted.h5 --splits mode.json --out by_index
tested by_index "by index"
look 2 permuted.h5 --splits mode.json --splits-by name
says "mode.json: numbers in the splits file of a run count cells"
look 3 good.h5 --splits nnunet.json --splits-by name
says "the data has no /name"
look 3 twice_named.h5 --splits nnunet.json --splits-by name
says "several cells of the data are named"
look 3 thousands.h5 --splits far.json --splits-by index
look 0 permuted.h5 --splits texts.json --splits-by index # texts are names whatever numbers are
call 2 "${train[@]}" --out by_index_permuted.nnunet --resume --splits-by name
says "splits_by (run: index, this call: name)"
call 0 "${train[@]}" --out by_index_permuted.nnunet --resume --splits-by index
call 0 "${train[@]}" --data thousands.h5 --splits far.json --out far
tested far "by name"
call 0 "${train[@]}" --data permuted.h5 --splits texts.json --out texts
tested texts "by name"
look 0 permuted.h5 --splits texts/splits.json # a run's own file counts cells
call 0 "${train[@]}" --out texts --resume

echo "$checks checks, $failures failures"
exit $((failures > 0))
