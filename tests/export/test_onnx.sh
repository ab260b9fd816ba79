#!/usr/bin/env bash
# flim_export --onnx: what onnxruntime computes is what predict computes, over presets, classes, masks, inputs, single models and
# ensembles; and what flim_export refuses.  Usage: test_onnx.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
"$build/flim_export" missing --onnx x.onnx >out 2>err
if grep -q "writes no ONNX files" err; then
    echo "skipped: $(cat err)"
    exit 77
fi
train() { # train RUN DATA [ARGS...]: two folds
    call 0 "$build/train_cv" --data "$2" --out "$1" --folds 2 --epochs 3 --batch 16 --lr 1e-3 --schedule cosine --augment none --no-recalibrate-bn --workers 2 "${device[@]}" "${@:3}"
}
simulate two.h5 --height 9 --width 11 # sizes that differ, so that no axes can be exchanged
simulate three.h5 --height 9 --width 9 --classes 3
train tiny two.h5 --preset tiny --mask-counts

# ---- what is refused, and leaves no file
call 2 "$build/flim_export" tiny
says "--onnx are needed"
call 2 "$build/flim_export" tiny --onnx x.onnx --bins 32
says "was trained on cells of 16 x 9 x 11"
call 2 "$build/flim_export" tiny --onnx tiny/fold_0/best.safetensors
cp two.h5 other.h5
call 2 "$build/flim_export" tiny --onnx other.h5
check "the data file is as it was" cmp two.h5 other.h5
call 2 "$build/flim_export" tiny/fold_0/best.safetensors tiny --onnx x.onnx
says "given twice"
head -c 5000 tiny/fold_0/best.safetensors >short.safetensors
call 3 "$build/flim_export" short.safetensors --onnx x.onnx
check "nothing was written" test ! -e x.onnx
call 0 "$build/flim_export" tiny --onnx x.onnx
call 0 "$build/flim_export" tiny/fold_0/best.safetensors --onnx x.onnx # its own file is replaced
echo text >text.onnx
call 2 "$build/flim_export" tiny --onnx text.onnx
call 0 "$build/flim_export" tiny --onnx text.onnx --force
call 0 "$build/flim_export" tiny --onnx - --quiet
check "to standard output, the same bytes" cmp out text.onnx

# ---- weights that do not say their size, as Python writes them
needs_python_env
edit() { "$python" "$top/tests/export/edit_weights.py" "$@"; }
edit tiny/fold_0/best.safetensors bare.safetensors
call 3 "$build/flim_export" bare.safetensors --onnx bare.onnx
says "give --bins, --height and --width"
call 0 "$build/flim_export" bare.safetensors --onnx bare.onnx --bins 16 --height 9 --width 11

# ---- the same as predict
same() { # same RUN DATA: its folds together, and one alone, from prepared cells and from counts
    local models summaries
    for models in "$1" "$1/fold_1/best.safetensors"; do
        summaries=("$1/fold_1/summary.json")
        call 0 "$build/predict" --model "$models" --data "$2" --out p.csv --force --precision fp32 --workers 2 --quiet "${device[@]}"
        for from in --no-from-counts --from-counts; do
            call 0 "$build/flim_export" "$models" --onnx m.onnx "$from"
            check "$models $from is predict's" "$python" "$top/tests/export/check_onnx.py" m.onnx "$2" p.csv "${summaries[@]}"
            sed "s|^|$models $from: |" check.out
        done
    done
}
same tiny two.h5
train base two.h5 --preset base
same base two.h5
cp three.h5 bare.h5
"$python" -c 'import h5py; f = h5py.File("bare.h5", "a"); del f["mask"]'
train three three.h5 --preset tiny
same three three.h5
# Widths and depths that are no preset's; a stage of several blocks changes size in its first and pools in its last.
train deep two.h5 --width 12 --depth 2 --mask-counts --lr 1e-2
same deep two.h5
train deeper three.h5 --width 4 --depth 3 --lr 1e-2
same deeper three.h5
call 2 "$build/flim_export" tiny deep --onnx x.onnx
says "an ensemble needs"
train bare bare.h5 --preset tiny
same bare bare.h5

# ---- logits of a size at which single precision could lose a probability
for run in tiny three; do
    edit $run/fold_0/best.safetensors ${run}_0.safetensors 1000
    edit $run/fold_1/best.safetensors ${run}_1.safetensors 1500
    data=two.h5
    [ $run = tiny ] || data=three.h5
    call 0 "$build/predict" --model ${run}_0.safetensors --model ${run}_1.safetensors --data $data --out p.csv --force \
        --precision fp32 --workers 2 --quiet "${device[@]}" --no-scan
    call 0 "$build/flim_export" ${run}_0.safetensors ${run}_1.safetensors --onnx m.onnx --from-counts
    check "large logits are predict's" "$python" "$top/tests/export/check_onnx.py" m.onnx $data p.csv
    sed "s|^|$run, large: |" check.out
done
finish
