#!/bin/bash
# Unpacks the portable archive in a folder of another name and uses it: for a bare machine of another release, where nothing was
# installed (.ci/bare_machine.sh trixie packaging/check_portable.sh /mnt).
set -euo pipefail
archive=$(ls "$1"/flimcv-*.tar.gz)
# shellcheck source=packaging/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cd "$(mktemp -d)"
check "it unpacks" tar -xzf "$archive"
mv flimcv-* "a folder"
bin="$PWD/a folder/bin"
for program in "$bin"/*; do
    check "${program##*/} starts" "$program" --version
    check "${program##*/} takes no library of this machine but glibc's" bash -c '! ldd "$1" | grep "=> /" | grep -v "a folder/" |
        grep -vE "/(libc|libm|libmvec|libdl|librt|libpthread|libresolv)\.so"' - "$program"
done
check "the cards for gpu_plan" "$bin/gpu_plan" --list
check "the libraries' licences" test -s "a folder/share/doc/flimcv/libraries/libdnnl2"
check "data are simulated" "$bin/flim_simulate" --out cells.h5 --cells 24 --donors 6 --bins 16 --height 9 --width 9
check "a run of two workers ends" "$bin/train_cv" --data cells.h5 --preset tiny --folds 2 --epochs 1 --batch 8 --device cpu --out run --jobs 2
check "it predicts" "$bin/predict" --model run --data cells.h5 --out predictions.csv
echo "The archive holds what it promises"
