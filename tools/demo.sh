#!/bin/bash
# From nothing to a cross-validated network: installs what is missing, builds, simulates data/flim.h5 where there is none, and
# trains on it as configs/demo.yaml says.  Further words go to train_cv: tools/demo.sh --device cpu
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

flim_packages "${flim_build_packages[@]}" "${flim_use_packages[@]}"
flim_build -DFLIM_TESTS=OFF
cd "$flim_root"
programs=build/release
begin=$SECONDS

if [ ! -e data/flim.h5 ]; then
    flim_say "Simulating data/flim.h5"
    mkdir -p data
    # Classes with equal decays, which differ in where in the cell the lifetimes are: no simple model tells them apart.
    "$programs/flim_simulate" --out data/flim.h5 --cells 720 --bins 32 --signal pattern --separation 2
fi

run=runs/demo-$(date +%Y%m%d-%H%M%S)
flim_say "Training: train_cv --config configs/demo.yaml --out $run"
"$programs/train_cv" --config configs/demo.yaml --out "$run" "$@"

cat <<EOF

Everything is in $flim_root:
  data/flim.h5           the data: one (time, y, x) volume of photon counts per cell
  configs/demo.yaml      the settings of this run
  $run/
    summary.json, .csv   the metrics of each fold, their mean and spread
    fold_0/ ...          weights (best.safetensors), predictions.csv and history.csv of each fold
    splits.json          which cells each fold trained, validated and tested on
  $programs/         the programs: each has --help
To use them as commands of this shell: PATH=$flim_root/$programs:\$PATH
Simulating and training took $((SECONDS - begin)) s (building not counted).
EOF
