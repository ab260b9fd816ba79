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
says "1 of 60 cells have no group: /group is '-9223372036854775808', the least 64-bit integer"
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
call 0 "$build/flim_info" words.h5 --json words.json
check "flim_info shows it" grep -qE '^group_doubtful +warning +3  1, 3, 50' "$work/out"
check "flim_info's JSON has it" $python -c '
import json
assert json.load(open("words.json"))[0]["findings"] == json.load(open("run/summary.json"))["findings"]'
call 3 "$build/flim_info" empty.h5
check "flim_info shows missing groups" grep -qE '^group_missing +error +10  10, 11, 12, 13, 14, ...' "$work/out"

echo "$checks checks, $failures failures"
exit $((failures > 0))
