#!/bin/bash
# Whole runs are PyTorch's: the same losses epoch by epoch, the same epoch chosen, the same test loss, where PyTorch takes
# train_cv's folds, initial weights, order of cells and dropout masks (tests/net/compare_torch_learning.py, arm `same`).  Two and three
# classes, a last batch of one cell, early stopping.  FLIM_TEST_DEVICE=cuda asks a card.  Usage: test_learning.sh BUILD_FOLDER;
# 77 = skipped, with a reason.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
for python in /usr/bin/python3 python3; do
    if "$python" -c 'import torch, h5py' 2>/dev/null; then
        shared=${FLIM_SHARED:-$here/../../shared}
        [ -e "$shared/peer/torch_peer.py" ] || { echo "skipped: no $shared/peer/torch_peer.py"; exit 77; }
        alike() { # alike CLASSES CELLS FLAG...
            "$build/flim_simulate" --out "$work/$1.h5" --classes "$1" --cells "$2" --bins 16 --height 7 --width 7 --separation 3 \
                --seed 5 &&
                "$python" "$here/compare_torch_learning.py" --train-cv "$build/train_cv" --runs "$work/$1" --data "$work/$1.h5" \
                    --device "${FLIM_TEST_DEVICE:-cpu}" --seeds 3 --only ours,same --bound 3e-4 -- --precision fp32 --cv stratified --folds 2 \
                    --augment none --schedule cosine --lr 3e-3 --weight-decay 0.5 --label-smoothing 0.2 --clip 0.3 --dropout 0.4 --block-dropout 0.3 "${@:3}"
        }
        check "two classes" alike 2 60 --batch 12 --epochs 8
        check "three classes, early stopping" alike 3 60 --epochs 10 --patience 3
        finish
        exit
    fi
done
echo "skipped: no python3 with torch and h5py (Debian: python3-torch python3-h5py)"
exit 77
