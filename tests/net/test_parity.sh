#!/bin/bash
# The same training steps as PyTorch (tests/net/parity.py): five on real cells; the first one, before rounding is amplified, on the
# voltage and the simulated file.  Usage: test_parity.sh BUILD_FOLDER; 77 = skipped, with a reason.
# /usr/bin/python3 comes first: that is where Debian's python3-torch is, whatever python3 is in the path.
here=$(cd "$(dirname "$0")" && pwd)
for python in /usr/bin/python3 python3; do
    if "$python" -c 'import torch, h5py' 2>/dev/null; then
        parity=("$python" "$here/parity.py" --bench "$1/flim_bench")
        "${parity[@]}" --only cells || exit
        "${parity[@]}" --only voltage --steps 1 || exit
        "${parity[@]}" --only simulated --steps 1 || exit
        "${parity[@]}" --only simulated --steps 1 --width 12 --batch 8 # no preset's
        exit
    fi
done
echo "skipped: no python3 with torch and h5py (Debian: python3-torch python3-h5py)"
exit 77
