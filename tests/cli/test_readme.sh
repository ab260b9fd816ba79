#!/bin/bash
# The README's five lines of Python make a file that train_cv reads.  Called with the build folder.
set -euo pipefail
build=$(cd "$1" && pwd)
readme=$(cd "$(dirname "$0")/../.." && pwd)/README.md
python=/usr/bin/python3
if ! "$python" -c 'import h5py' 2>/dev/null; then
    echo "left out: $python has no h5py (apt-get install python3-h5py)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir data
awk '/^```/ { inside = /python/; next } inside' "$readme" >lines.py
[ -s lines.py ]
{
    echo 'import numpy as np'
    echo 'random = np.random.default_rng(1)'
    echo 'volumes = random.poisson(0.05, (24, 16, 21, 21))'
    echo 'labels = [i % 2 for i in range(24)]'
    echo 'donors = ["donor %d" % (i // 4) for i in range(24)]'
    cat lines.py
} >make.py
"$python" make.py
"$build/train_cv" --folds 5 --batch 64 --dry-run | tee out.txt
grep -q 'activated' out.txt
grep -q '24 cells' out.txt
