#!/usr/bin/env bash
# Nothing that is right is refused: the same cells, stored in every way that people's programs store them, are read by flim_info,
# train_cv, predict and flim_repack, and give the same numbers.
# Usage: test_same_cells.sh BUILD_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/lib.sh
source "$here/../lib.sh"
python=/usr/bin/python3
$python -c 'import h5py, numpy' 2>/dev/null || { echo "skipped: no h5py"; exit 77; }
export OMP_NUM_THREADS=1
train=("$build/train_cv" --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --workers 2)
check "the files are written" $python "$here/same_cells.py" "$work"
call 0 "${train[@]}" --data plain.h5 --out model
call 0 "$build/predict" --model model --data plain.h5 --out plain.csv --device cpu
[ "$failures" = 0 ] || { finish; exit 1; }

files=(all_*.h5)
[ -z "${FLIM_SHORT:-}" ] || mapfile -t files < <(printf '%s\n' all_*.h5 | awk 'NR % 3 == 1')
for file in "${files[@]}"; do
    order=()
    [ "${file#all_axes_}" = "$file" ] || order=(--axes "$(basename "${file#all_axes_}" .h5)")
    call 0 "$build/flim_info" "$file" "${order[@]}"
    call 0 "${train[@]}" --data "$file" "${order[@]}" --dry-run
    call 0 "$build/predict" --model model --data "$file" "${order[@]}" --out p.csv --device cpu
    check "$file gives plain.h5's predictions" cmp plain.csv p.csv
done
# The ways that HDF5's library alone reads, written anew in the best layout.
for file in all_packed all_view all_layout_cut all_matlab all_counts_big_f8; do
    rm -f new.h5
    call 0 "$build/flim_repack" $file.h5 new.h5
    call 0 "$build/predict" --model model --data new.h5 --out p.csv --device cpu
    check "$file.h5, repacked, gives plain.h5's predictions" cmp plain.csv p.csv
done

# Groups under other names: leaving one out leaves the same cells out.
tests_of() { $python -c 'import json, sys; print(sorted(f["test"] for f in json.load(open(sys.argv[1] + "/splits.json"))["folds"]))' "$1"; }
for file in plain group_*; do
    call 0 "${train[@]}" --data "$(basename "$file" .h5).h5" --cv leave-one-group-out --fold 0 --out "run_$(basename "$file" .h5)"
    check "$file: the folds are plain.h5's" test "$(tests_of "run_$(basename "$file" .h5)")" = "$(tests_of run_plain)"
done
finish
