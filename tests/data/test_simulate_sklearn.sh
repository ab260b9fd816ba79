#!/bin/bash
# flim_simulate's classes as scikit-learn sees them; called with the build folder.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
if ! "$python" -c 'import h5py, sklearn' 2>/dev/null; then
    echo "left out: $python has no h5py or no sklearn (apt-get install python3-h5py python3-sklearn)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1

"$build/flim_simulate" --out "$work/plain.h5" --cells 300
"$python" "$here/test_simulate_sklearn.py" "$work/plain.h5" plain
for confound in brightness size; do
    "$build/flim_simulate" --out "$work/$confound.h5" --cells 240 --separation 0 --confound $confound
    "$python" "$here/test_simulate_sklearn.py" "$work/$confound.h5" confounded
done
