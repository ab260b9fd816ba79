#!/usr/bin/env bash
# What many groups, cells and classes cost, as the table of docs/performance.md has it: CPU seconds (user) of whole programs, on
# files of small cells (8 bins, 3 x 3 pixels), so that reading them is not what is measured.
# Usage: growth.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/lib.sh"
python=/usr/bin/python3
$python -c 'import h5py, numpy' || { echo "this needs h5py and numpy" >&2; exit 2; }
export OMP_NUM_THREADS=1
TIMEFORMAT=%U

make() { # make FILE CELLS GROUPS CLASSES
    $python - "$@" <<'PY'
import sys, h5py, numpy as np
path, n, groups, classes = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(1)
with h5py.File(path, "w") as f:
    f["counts"] = rng.poisson(2, (n, 8, 3, 3)).astype("u1")
    f["label"] = (np.arange(n) // groups % classes if groups * classes <= n else rng.permutation(np.arange(n) % classes)).astype("i4")
    f.create_dataset("group", data=np.array([f"g{i % groups}" for i in range(n)], dtype=object), dtype=h5py.string_dtype())
PY
}
took() { # took COMMAND...: CPU seconds
    { time "$@" >out 2>err || { echo "failed: $*" >&2; tail -3 err >&2; }; } 2>&1
}
row() { # row WHAT SMALLER SECONDS LARGER SECONDS
    $python -c '
import sys
what, a, s, b, t = sys.argv[1:]
a, b, s, t = int(a), int(b), max(float(s), .001), max(float(t), .001)
print(f"| {what} | {a:,}: {s:.2f} s | {b:,}: {t:.2f} s | x {b / a:.3g} -> x {t / s:.3g} |")' "$@"
}
look() { # look FILE [FLAG...]: train_cv up to its folds
    local file=$1
    shift
    took "$build/train_cv" --data "$file" --folds 5 --device cpu --workers 1 --dry-run "$@"
}

echo "| what | smaller | larger | growth |"
echo "|---|---|---|---|"
make g1.h5 100000 25000 2
make g2.h5 100000 100000 2
row "train_cv up to its folds, groups of 100,000 cells" 25000 "$(look g1.h5)" 100000 "$(look g2.h5)"
row "flim_info, groups of 100,000 cells" 25000 "$(took "$build/flim_info" g1.h5)" 100000 "$(took "$build/flim_info" g2.h5)"
make c1.h5 25000 6 2
make c2.h5 100000 6 2
row "train_cv up to its folds, cells of 6 groups" 25000 "$(look c1.h5)" 100000 "$(look c2.h5)"
make k1.h5 20000 10 255
make k2.h5 20000 10 1000
row "train_cv up to its folds, classes of 20,000 cells" 255 "$(look k1.h5)" 1000 "$(look k2.h5)"
make l1.h5 8000 1000 2
make l2.h5 8000 4000 2
row "leave-one-group-out, groups of 8,000 cells (folds x cells)" 1000 "$(look l1.h5 --cv leave-one-group-out)" \
    4000 "$(look l2.h5 --cv leave-one-group-out)"
for k in 64 255 1000; do
    make m$k.h5 $((4 * k)) 4 $k
    "$build/train_cv" --data m$k.h5 --folds 2 --epochs 1 --batch 64 --device cpu --preset tiny --workers 1 --no-scan --out m$k >out 2>err ||
        tail -3 err
done
row "fold_metrics, 100 replicates, classes of 4 cells each (classes x cells)" 64 "$(took "$build/fold_metrics" m64 --replicates 100)" \
    255 "$(took "$build/fold_metrics" m255 --replicates 100)"
row "fold_metrics, the same" 255 "$(took "$build/fold_metrics" m255 --replicates 100)" 1000 "$(took "$build/fold_metrics" m1000 --replicates 100)"

# A checkpoint holds the history of its fold, so that its size, and the cost of writing it, grow with the epochs.
make e.h5 12 3 2
train() { # train EPOCHS
    took "$build/train_cv" --data e.h5 --folds 2 --fold 0 --batch 64 --device cpu --preset tiny --workers 1 --patience 0 --epochs "$1" --out "e$1"
}
row "train_cv, epochs of one fold of 6 cells" 500 "$(train 500)" 4000 "$(train 4000)"
