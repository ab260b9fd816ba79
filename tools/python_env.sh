#!/bin/bash
# Makes build/python, the Python of the tests that hold our exports to other programs: a virtual environment that sees Debian's
# packages (python3-torch, python3-h5py, python3-pandas, python3-numpy) and has tests/python/requirements.txt from PyPI beside
# them.  Does nothing if it is there and up to date.  Takes Debian's python3-venv and a network.
#
#   tools/python_env.sh
#
# Tests ask tests/lib.sh for it and skip where it is missing.  build/python/requirements.txt, written last, says that it is whole.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wanted=tests/python/requirements.txt
made=build/python

if cmp -s "$wanted" "$made/requirements.txt" && "$made/bin/python" -c '' 2>/dev/null; then
    exit 0
fi
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3 # Debian's, which sees Debian's packages
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "$python cannot make virtual environments: install python3-venv" >&2
    exit 1
fi
rm -rf "$made"
mkdir -p build
"$python" -m venv --system-site-packages "$made"
# Debian's torch, h5py and pandas are compiled for Debian's NumPy: another one beside it would break them.
constraint=$made/constraint.txt
"$made/bin/python" -c 'import numpy; print("numpy==" + numpy.__version__)' >"$constraint" 2>/dev/null || : >"$constraint"
"$made/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: --constraint "$constraint" \
    --requirement "$wanted"
"$made/bin/python" -c 'import onnx, onnxruntime, tensorboard.backend.event_processing.event_accumulator'
cp "$wanted" "$made/requirements.txt"
echo "$made: $("$made/bin/python" --version), $(grep '==' "$wanted" | tr '\n' ' ')"
