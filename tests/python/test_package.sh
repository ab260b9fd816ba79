#!/usr/bin/env bash
# The Python package and its examples against the programs: tests/python/test_package.py with Debian's torch, pandas and h5py.
# Usage: test_package.sh BUILD_DIR
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd) || exit 1
python=${FLIM_PYTHON:-/usr/bin/python3}
for module in torch pandas h5py; do
    if ! "$python" -c "import $module" 2>/dev/null; then
        echo "skipped: no Python module $module in $python (Debian: python3-$module)"
        exit 77
    fi
done
export PATH=$build:$PATH PYTHONPATH=$top/python/src PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
exec "$python" "$top/tests/python/test_package.py"
