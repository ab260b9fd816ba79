#!/usr/bin/env bash
# What train_cv must not mix, lose or take silently: another run's folder, a file given twice under two names, folds of a file
# against flags that say otherwise.  Usage: test_refusals.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
train=$build/train_cv
options=(--preset tiny --folds 3 --epochs 1 --batch 16 --lr 1e-3 --workers 2 "${device[@]}")
simulate d.h5

# ---- the folder of another run
call 0 "$train" --data d.h5 "${options[@]}" --out whole
for left in fold_1 summary.json holdout_predictions.csv; do
    mkdir left
    cp -r "whole/$left" left/ 2>/dev/null || echo x >"left/$left"
    call 2 "$train" --data d.h5 "${options[@]}" --seed 7 --out left
    says "left has $left of a run whose config.yaml is missing"
    check "nothing was written there" test "$(ls -A left)" = "$left"
    rm -r left
done
mkdir begun
cp whole/{.lock,splits.json,environment.json,resume.json,train.log} begun/ # killed just before config.yaml
call 0 "$train" --data d.h5 "${options[@]}" --out begun
check "what a run that never began has left is written over" test "$(digest begun)" = "$(digest whole)"
call 2 "$train" --data d.h5 "${options[@]}" --out whole
says "whole already contains a run"
says "train_cv --resume --out whole"
call 2 "$train" --data d.h5 "${options[@]}" --out whole --fold 2 # as the others of a job array meet it
says "work at this fold of it with: train_cv --resume --out whole --fold 2"

# ---- a folder with files of other people
for file in splits.json summary.csv train.log notes.txt config.yml baseline_decay.csv; do
    mkdir theirs && echo "theirs" >theirs/$file
    call 2 "$train" --data d.h5 "${options[@]}" --out theirs
    says "theirs is not empty and not a folder that train_cv made (it has $file)"
    check "$file stays, and nothing else came" bash -c "[ \"\$(ls -A theirs)\" = $file ] && grep -qx theirs theirs/$file"
    rm -r theirs
done
mkdir theirs && mkdir theirs/sub
call 2 "$train" --data d.h5 "${options[@]}" --out theirs
says "it has sub"
rm -r theirs
echo victim >victim
for name in .lock train.log; do
    mkdir planted && ln -s ../victim planted/$name
    [ $name = .lock ] || : >planted/.lock
    call 6 "$train" --data d.h5 "${options[@]}" --out planted
    says "cannot write planted/$name: it is a link"
    check "what the link $name leads to stays" grep -qx victim victim
    rm -r planted
    mkdir planted && mkfifo planted/$name
    [ $name = .lock ] || : >planted/.lock
    call 6 timeout 20 "$train" --data d.h5 "${options[@]}" --out planted
    says "cannot write planted/$name"
    rm -r planted
done
mkdir empty with_hidden logged && : >with_hidden/.gitkeep
for folder in empty with_hidden; do
    call 0 "$train" --data d.h5 "${options[@]}" --fold 0 --out $folder
done
"$train" --data d.h5 "${options[@]}" --fold 0 --out logged >logged/slurm.out 2>err </dev/null
check "a batch system's log in the folder is our own output" test $? = 0 -a -s logged/slurm.out
mkfifo pipe
for flag in --config --init-weights --splits; do
    call "$([ $flag = --config ] && echo 2 || echo 3)" timeout 20 "$train" --data d.h5 "${options[@]}" $flag pipe --out no
    says "pipe: it is not a regular file"
done
call 6 "$train" --data d.h5 "${options[@]}" --out d.h5
says "d.h5 is a file"
call 6 "$train" --data d.h5 "${options[@]}" --out d.h5/below
says "d.h5 is a file"

# ---- a folder that a shell would take apart
for out in "my run" "it's" 'a$b;c' plain_1; do
    call 143 env FLIM_AIM=train:1:15 "$faulty" --data d.h5 "${options[@]}" --epochs 2 --out "$out"
    line=$(sed -n 's/.*resume with: train_cv //p' out)
    check "the way to go on with '$out' can be pasted: $line" eval "\"$train\" $line"
    check "'$out' was finished" test -s "$out/summary.json"
done

# ---- one file under two names
mkdir sub
ln -s ../d.h5 sub/link.h5
ln d.h5 hard.h5
for other in d.h5 ./d.h5 sub/link.h5 hard.h5 "$work/d.h5"; do
    call 2 "$train" --data d.h5 --data "$other" "${options[@]}" --out same
    says "$other is given twice"
done

# ---- cells that stand there twice
cp d.h5 copy.h5
call 0 "$train" --data d.h5 --data copy.h5 "${options[@]}" --cv stratified --dry-run
says "cells are copies of each other"
call 0 "$train" --data d.h5 --data copy.h5 "${options[@]}" --cv group --dry-run
says "within one fold: each counts more than once"
check "copies that stay in one part leak nothing" test "$(grep -c 'not tested in the same fold' err)" = 0
call 0 "$train" --data d.h5 "${options[@]}" --cv stratified --dry-run
check "no copies, no warning" test "$(grep -c copies err)" = 0
simulate other.h5 --seed 4
call 0 "$train" --data d.h5 --data other.h5 "${options[@]}" --cv stratified --dry-run
check "nor in another file" test "$(grep -c copies err)" = 0

# ---- data that change while they are read
cp d.h5 live.h5
FLIM_AIM=train:2:19 "$faulty" --data live.h5 "${options[@]}" --fold 0 --out live >live.out 2>live.err & # stops itself
pid=$!
for _ in $(seq 600); do grep -q '^State:.*T' "/proc/$pid/status" 2>/dev/null && break; sleep 0.1; done
touch live.h5
kill -CONT $pid
wait $pid
check "the run ends all the same" test -s live/summary.json
check "and says so" grep -q "live.h5 was modified during the run" live.err
check "an undisturbed run does not" test "$(grep -c 'was written to' whole/train.log)" = 0

# ---- folds of a file, and flags that say otherwise
call 0 "$train" --data d.h5 "${options[@]}" --cv group --holdout-group donor_2 --out held
again=(--preset tiny --epochs 1 --batch 16 --lr 1e-3 --workers 2 "${device[@]}" --splits held/splits.json)
call 0 "$train" --data d.h5 "${again[@]}" --out plain
check "the file's hold-out group is held out" cmp held/holdout_predictions.csv plain/holdout_predictions.csv
call 0 "$train" --data d.h5 "${again[@]}" --cv group --folds 3 --holdout-group donor_2 --dry-run
call 2 "$train" --data d.h5 "${again[@]}" --folds 4 --out wrong
says "held/splits.json has 3 folds"
call 2 "$train" --data d.h5 "${again[@]}" --cv stratified --out wrong
says "the folds of held/splits.json are group"
call 2 "$train" --data d.h5 "${again[@]}" --holdout-group donor_3 --out wrong
says "is held out; leave"
call 2 "$train" --data d.h5 "${again[@]}" --holdout-group donor_2 --holdout-group donor_3 --out wrong
says "of group 'donor_3' is not held out"
call 2 "$train" --data d.h5 "${again[@]}" --set holdout_group=nobody --out wrong
says "no such group"
call 2 "$train" --data d.h5 "${options[@]}" --splits whole/splits.json --holdout-group donor_1 --out wrong
says "of group 'donor_1' is not held out"
printf 'splits: whole/splits.json\nholdout_group: [donor_1]\n' >held.yaml
call 2 "$train" --config held.yaml --data d.h5 "${options[@]}" --out wrong
says "of group 'donor_1' is not held out"
check "no folder was made" test ! -e wrong
all=()
for k in 1 2 3 4 5 6; do all+=(--holdout-group "donor_$k"); done
call 2 "$train" --data d.h5 "${options[@]}" "${all[@]}" --out wrong
says "the hold-out groups contain all 72 cells"

# ---- --mask-counts, which the weight file must tell of
call 0 "$train" --data d.h5 "${options[@]}" --mask-counts --fold 0 --out masked
call 0 "$build/predict" --model masked --data d.h5 --out run.csv "${device[@]:0:2}"
call 0 "$build/predict" --model masked/fold_0/best.safetensors --data d.h5 --threshold 0.5 --out file.csv "${device[@]:0:2}"
check "predict prepares cells as the weights were trained on" cmp <(cut -d, -f6,7 run.csv) <(cut -d, -f6,7 file.csv)
call 0 "$train" --data d.h5 "${options[@]}" --fold 0 --init-weights masked/fold_0/best.safetensors --out begun_masked
says "was trained with mask_counts true, this run has false"
call 0 "$train" --data d.h5 "${options[@]}" --fold 0 --mask-counts --init-weights masked/fold_0/best.safetensors --out both_masked
check "no warning where both are" test "$(grep -c mask_counts both_masked/train.log)" = 0
if ! /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    echo "left out: that counts outside the mask matter here, /usr/bin/python3 has no h5py (apt-get install python3-h5py)"
else
    check "counts outside the mask matter here" /usr/bin/python3 -c '
import h5py
f = h5py.File("d.h5")
assert f["counts"][:].sum(1)[f["mask"][:] == 0].sum() > 0'
fi

# ---- predict finds out where it cannot write before it computes
echo kept >old.csv
call 3 "$build/predict" --model whole --data none.h5 --out old.csv --force "${device[@]:0:2}"
check "a file that stands there is kept until the new one is whole" grep -qx kept old.csv
check "nothing beside it" test -z "$(find . -name '*.tmp')"
for bad in whole none/there.csv d.h5/x.csv; do
    call 6 "$build/predict" --model whole --data d.h5 --out "$bad" "${device[@]:0:2}"
    says "cannot write $bad"
    check "nothing was computed" test ! -s out
done

finish
