#!/usr/bin/env bash
# A data file that leads to other files: beside it they are read; elsewhere only with --allow-external, by every program.
# Usage: test_allow_external.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
mkdir made elsewhere
check "the files are written" "$build/tests/make_h5_files" made
cp made/external.h5 data.h5 # /counts behind a link to other.h5, /name in names.raw
cp made/heap.h5 other.h5
printf 'abc\n%.0s' {1..24} >names.raw
train=("$build/train_cv" --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --data data.h5)
call 0 "$build/flim_info" data.h5
call 0 "${train[@]}" --out beside
mv other.h5 elsewhere/
ln -s elsewhere/other.h5 other.h5
call 0 "$build/flim_info" data.h5 # a folder below
mkdir deep
cp data.h5 names.raw deep/
ln -s ../elsewhere/other.h5 deep/other.h5
cd deep || exit 1
for way in "" --allow-external; do
    want=$([ -n "$way" ] && echo 0 || echo 3)
    rm -rf run out.h5 predictions.csv
    call "$want" "$build/flim_info" data.h5 $way
    [ -n "$way" ] || says "elsewhere/other.h5, outside of the data file's folder"
    [ -n "$way" ] || says "--allow-external"
    call "$want" "$build/flim_repack" data.h5 out.h5 $way
    call "$want" "$build/flim_bench" loader --data data.h5 --passes 1 --workers 1 --no-scaling $way
    call "$want" "$build/flim_bench" augment --data data.h5 --repeats 1 $way
    call "$want" "$build/flim_bench" step --device cpu --preset tiny --batch 2 --steps 1 --warmup 0 --no-parts --data data.h5 $way
    call "$want" "$build/flim_bench" feed --device cpu --preset tiny --batch 2 --steps 1 --rounds 1 --workers 1 --data data.h5 $way
    call "$want" "${train[@]}" --out run $way
    call "$want" "$build/predict" --model ../beside --data data.h5 --out predictions.csv --device cpu $way
done
check "a run keeps what was allowed" grep -q "allow_external: true" run/config.yaml
call 0 "${train[@]}" --out run --resume --allow-external
cd ..
finish
