#!/usr/bin/env bash
# `pip install .` as a user has it: the wheel is built from this checkout, installed into an empty environment, and its programs and
# its Python part are used.  Builds everything once more, so FLIM_SHORT leaves it out.  Usage: test_wheel.sh BUILD_DIR
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
skip() {
    echo "skipped: $1"
    exit 77
}
[ -z "${FLIM_SHORT:-}" ] || skip "FLIM_SHORT is set: the wheel is a build of its own"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
"$python" -c 'import venv, ensurepip' 2>/dev/null || skip "$python makes no virtual environments (Debian: python3-venv)"
"$python" -m venv empty >venv.log 2>&1 || { cat venv.log; exit 1; }
timeout 120 empty/bin/python -m pip download --quiet --no-deps --dest reach 'scikit-build-core>=0.10' >reach.log 2>&1 ||
    skip "PyPI is out of reach: $(tail -n 1 reach.log)"

# The CPU backend alone if this build may have it: the kernels of CUDA take minutes and are built elsewhere.
backends=(--config-settings=cmake.define.FLIM_CUDA=OFF)
if grep -q '^FLIM_CPU:[A-Z]*=OFF' "$build/CMakeCache.txt"; then
    backends=(--config-settings=cmake.define.FLIM_CPU=OFF)
fi
check "the wheel is built" empty/bin/python -m pip wheel --no-deps --wheel-dir wheels "${backends[@]}" --config-settings=build-dir="$work/cmake" "$top"
mapfile -t wheels < <(ls wheels)
check "one wheel for any Python 3: ${wheels[*]}" bash -c "[[ '${wheels[*]}' =~ ^flimcv-[0-9.]+-py3-none-[a-z0-9_]+\.whl\$ ]]"
check "it is installed with what it needs" empty/bin/python -m pip install --quiet wheels/*.whl
for program in $(cd "$top/tools" && basename -s .c -- *.c); do
    call 0 "empty/bin/$program" --version
    check "$program says its version" grep -qE "^$program \(flimcv\) [0-9.]+\$" out
done
check "man finds the pages" test -s empty/share/man/man1/train_cv.1
call 0 env -u PYTHONPATH empty/bin/python -c 'import flimcv, flimcv.safetensors; print(flimcv.__version__)'
check "one version everywhere" test "$(cat out)" = "$(empty/bin/train_cv --version | awk '{ print $3 }')"
call 1 env -u PYTHONPATH empty/bin/python -c 'import flimcv; flimcv.read_run'
says "pip install 'flimcv[pandas]'"
call 0 empty/bin/flim_simulate --out cells.h5 --cells 24 --donors 6 --bins 16 --height 9 --width 9
call 0 empty/bin/train_cv --data cells.h5 --dry-run --folds 2 --device cpu
check "it is removed" empty/bin/python -m pip uninstall --quiet --yes flimcv
check "and leaves no program" test ! -e empty/bin/train_cv
finish
