#!/usr/bin/env bash
# The training recipe in whole runs: running averages, recalibrated BatchNorm, schedules, class weights, focal loss and the
# class-group sampler.  Stopped anywhere and resumed, the files are the undisturbed run's; what only evaluates leaves training as it
# is; what is saved is what was evaluated; what cannot be is refused before a run folder is made.
# Usage: test_recipe.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
simulate k.h5
train=$build/train_cv
options=(--data k.h5 --preset tiny --folds 2 --epochs 4 --batch 8 --lr 3e-3 "${device[@]}" --workers 2)
recipe=(--ema 0.8 --recalibrate-bn --schedule plateau --plateau-patience 0 --plateau-factor 0.5 --warmup-epochs 1
    --class-weights balanced --focal-gamma 1.5 --sampler class-group --sampler-repeats 2)

# ---- stopped and resumed: in training, between updates; in the recalibration and in the validation after it; before checkpoints and
# weights come into place; in the test set
call 0 "$train" "${options[@]}" "${recipe[@]}" --out whole
want=$(digest whole)
batches=$(($(sed -n 2p whole/fold_0/history.csv | cut -d, -f11) / 8)) # of a training set
for at in train:2:15 "train:$((2 * batches + 1)):9" val:1:15 "val:$((batches + 2)):15" "val:$((2 * batches + 3)):9" \
    rename=state.ckpt:2:9 rename=best.safetensors:1:9 test:1:15; do
    case ${FLIM_SHORT:+short}$at in short*:9 | shorttest*) continue ;; esac # for the sanitizers' builds
    rm -rf cut
    env FLIM_AIM="$at" "$faulty" "${options[@]}" "${recipe[@]}" --out cut >/dev/null 2>&1
    check "stopped at $at" test $? -gt 128
    call 0 "$train" --resume --out cut
    check "stopped at $at and resumed: the undisturbed run's files" test "$(digest cut)" = "$want"
done
for flag in "--ema 0.9" "--schedule constant" "--warmup-epochs 2" "--plateau-factor 0.25" "--plateau-patience 1" "--class-weights none" \
    "--focal-gamma 0" "--sampler-repeats 3" "--no-recalibrate-bn" "--block-dropout 0.1" "--restart-epochs 3" "--restart-factor 3"; do
    rm -rf cut
    [ -e begun ] || env FLIM_AIM=train:2:15 "$faulty" "${options[@]}" "${recipe[@]}" --out begun >/dev/null 2>&1
    cp -r begun cut
    case $flag in
    --no-*) sed -i 's/^recalibrate_bn: .*/recalibrate_bn: false/' cut/config.yaml; call 2 "$train" --resume --out cut ;;
    *)
        # shellcheck disable=SC2086
        call 2 "$train" --resume --out cut $flag
        ;;
    esac
    check "$flag is another run" grep -qE "add --resume-override" err
done
rm -rf cut
cp -r begun cut
call 0 "$train" --resume --resume-override --ema 0 --out cut # averages in the checkpoint, and none wanted
call 143 env FLIM_AIM=train:2:15 "$faulty" "${options[@]}" --ema 0 --out plain_cut
call 0 "$train" --resume --resume-override --ema 0.9 --out plain_cut # none in the checkpoint, and some wanted

# ---- training does not see what is evaluated
trained() { for k in 0 1; do cut -d, -f1-4,10-16 "$1/fold_$k/history.csv"; done; }
validated() { for k in 0 1; do cut -d, -f5-9 "$1/fold_$k/history.csv"; done; }
call 0 "$train" "${options[@]}" --ema 0 --no-recalibrate-bn --out plain
for arm in "--ema 0.5" "--recalibrate-bn" "--ema 0.5 --recalibrate-bn"; do
    # shellcheck disable=SC2086
    call 0 "$train" "${options[@]}" --ema 0 --no-recalibrate-bn $arm --out "arm$arm"
    check "$arm leaves training as it is" cmp <(trained plain) <(trained "arm$arm")
    check "$arm changes what is evaluated" bash -c "! cmp -s $(printf '%q' "plain/fold_0/predictions.csv") $(printf '%q' "arm$arm/fold_0/predictions.csv")"
    check "validation differs with $arm" test "$(validated plain | sha256sum)" != "$(validated "arm$arm" | sha256sum)"
done
check "recalibration adds to the average" test "$(validated 'arm--ema 0.5' | sha256sum)" != "$(validated 'arm--ema 0.5 --recalibrate-bn' | sha256sum)"

# ---- the weights that are written are those that were evaluated: the log loss of the validation set is the chosen epoch's
for run in whole plain arm*; do
    for k in 0 1; do
        best=$(grep -o '"best_epoch": [0-9]*' "$run/fold_$k/summary.json" | grep -o '[0-9]*$')
        history=$(sed -n $((best + 1))p "$run/fold_$k/history.csv" | cut -d, -f5)
        summary=$(sed -n '/"val_metrics"/,/}/p' "$run/fold_$k/summary.json" | grep -o '"log_loss": [0-9.e-]*' | cut -d' ' -f2)
        check "$run, fold $k: val_loss $history of epoch $best is the saved weights' $summary" \
            awk -v a="$history" -v b="$summary" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
    done
done
call 0 "$train" "${options[@]}" --val-fraction 0 --recalibrate-bn --ema 0.5 --out last # without a validation set, too
call 0 "$train" "${options[@]}" --val-fraction 0 --ema 0 --no-recalibrate-bn --out last_plain
check "without a validation set the last weights are averaged and recalibrated" bash -c '! cmp -s last/fold_0/predictions.csv last_plain/fold_0/predictions.csv'

# ---- class weights: a common factor changes nothing, balanced is n / (K n_k)
call 0 "$train" "${options[@]}" --sampler natural --out natural
call 0 "$train" "${options[@]}" --sampler natural --class-weights 2,2 --out doubled
check "weights 2,2 train as none" cmp <(trained natural) <(trained doubled)
call 0 "$train" "${options[@]}" --sampler natural --class-weights balanced --fold 0 --out balanced
line=$(grep -o 'class weights .*' balanced/train.log | head -1)
numbers=$(awk '{ printf "%.17g,%.17g", '"$(awk '$1 == "0" && $2 == "train" { print $3 "/(2*" $5 "), " $3 "/(2*" $6 ")" }' balanced/train.log | head -1)"' }' <<<x)
call 0 "$train" "${options[@]}" --sampler natural --class-weights "$numbers" --fold 0 --out numbers
check "balanced ($line) is $numbers" cmp <(cut -d, -f1-16 balanced/fold_0/history.csv) <(cut -d, -f1-16 numbers/fold_0/history.csv)
check "and not none" bash -c '! cmp -s <(cut -d, -f1-16 balanced/fold_0/history.csv) <(cut -d, -f1-16 natural/fold_0/history.csv)'

# ---- schedules as they stand in history.csv
rates() { tail -n +2 "$1/fold_0/history.csv" | cut -d, -f2 | tr '\n' ' '; }
call 0 "$train" "${options[@]}" --fold 0 --schedule constant --warmup-epochs 2 --out constant
check "warm-up, then constant: $(rates constant)" test "$(rates constant)" = "0.001 0.002 0.003 0.003 "
call 0 "$train" "${options[@]}" --fold 0 --schedule restarts --restart-epochs 1 --restart-factor 2 --out restarts
check "restarts: $(rates restarts)" test "$(rates restarts)" = "0.003 0.003 0.0015005 0.003 "
call 0 "$train" "${options[@]}" --fold 0 --lr 1e-12 --schedule plateau --plateau-patience 0 --patience 0 --epochs 5 --out still
check "a rate below the least is left alone: $(rates still)" test "$(rates still)" = "1e-12 1e-12 1e-12 1e-12 1e-12 "
# shellcheck disable=SC2016
check "the norms are ordered" awk -F, 'NR > 1 && !($15 > 0 && $15 <= $14 && $14 <= $16) { exit 1 }' plain/fold_0/history.csv
check "the log tells the effective sample size" grep -qE 'effective sample size [0-9.]+ of [0-9]+ cells' whole/train.log

# ---- what cannot be
call 2 "$train" "${options[@]}" --class-weights 1,2,3 --out none
says "class_weights: 1,2,3 is 3 numbers, the data has 2 classes: give one number for each"
call 2 "$train" "${options[@]}" --schedule plateau --val-fraction 0 --out none
says "schedule plateau needs a validation set"
cp plain/splits.json s.json
sed -i '0,/"val": \[[^]]*\]/s//"val": []/' s.json
call 2 "$train" "${options[@]}" --schedule plateau --splits s.json --out none
says "schedule plateau follows the validation set, and fold 0 has none"
check "no run folder was made" test ! -e none
finish
