#!/bin/bash
# Loss and gradients of a pretraining step beside PyTorch's, in fp32 (compare_torch_pretraining.py).  FLIM_TEST_DEVICE=cuda: on the card.
# Usage: test_pretraining_torch.sh BUILD_FOLDER; 77 = skipped, with a reason.
here=$(cd "$(dirname "$0")" && pwd)
for python in /usr/bin/python3 python3; do
    if "$python" -c 'import torch, h5py' 2>/dev/null; then
        for preset in nano small; do
            "$python" "$here/compare_torch_pretraining.py" check "$1/flim_bench" --device "${FLIM_TEST_DEVICE:-cpu}" --preset $preset || exit
        done
        exit
    fi
done
echo "skipped: no python3 with torch and h5py (Debian: python3-torch python3-h5py)"
exit 77
