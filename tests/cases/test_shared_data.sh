#!/usr/bin/env bash
# Public FLIM data, beside the project: data files are looked at, split and trained on, arrays imported photon by photon, instrument
# files named.  Skipped where the data are not there.
# Usage: test_shared_data.sh BUILD_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/lib.sh
source "$here/../lib.sh"
data=${FLIM_SHARED:-$here/../../../shared}/data
[ -d "$data" ] || { echo "skipped: no $data"; exit 77; }
train=("$build/train_cv" --preset tiny --device cpu --folds 2 --workers 2 --batch 32)

files=("$data"/*.h5)
check "there are data files" test -e "${files[0]}"
for file in "${files[@]}"; do
    call 0 "$build/flim_info" "$file"
    call 0 "$build/flim_info" --together "$file"
    call 0 "${train[@]}" --data "$file" --dry-run
done
call 3 "$build/flim_info" --together "${files[@]}" # other classes
check "which says so" grep -q "class_names differs" out
[ -n "${FLIM_SHORT:-}" ] || call 0 "${train[@]}" --data "${files[0]}" --fold 0 --epochs 1 --out run

call 0 "$build/flim_import" cells.h5 "$data/cells" --class _tcell=tcell --class _panc1=panc1 --class _yeast=yeast
call 0 "$build/flim_info" cells.h5 --cells cells.csv
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    check "every photon of the arrays is in the data file" /usr/bin/python3 -c '
import csv, glob, sys, numpy as np
rows = list(csv.DictReader(open("cells.csv")))
want = sorted(int(np.load(path).sum()) for path in glob.glob(sys.argv[1] + "/cells/*/*.npy"))
assert sorted(int(row["photons"]) for row in rows) == want and len({row["group"] for row in rows}) == 12' "$data"
else
    echo "left out: photons of the arrays, without numpy"
fi
for file in "$data"/raw/*; do
    [ -f "$file" ] || continue
    call 3 "$build/flim_info" "$file"
    check "$(basename "$file") is named" grep -q "not an HDF5 file" out err
done
finish
