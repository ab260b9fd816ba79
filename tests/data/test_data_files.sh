#!/usr/bin/env bash
# Data files as whole programs meet them: never changed, read-only media, held by others, two runs at once, one damaged chunk in the
# middle of a run, HDF5's own words only with --verbose.
# Usage: test_data_files.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
train=("$build/train_cv" --preset tiny --folds 2 --epochs 1 --batch 16 --device cpu --workers 3)
state() { (cd "$(dirname "$1")" && sha256sum "$(basename "$1")" && stat -c '%y %z %s %i %a' "$(basename "$1")"); }

simulate good.h5
before=$(state good.h5)

# ---- a read-only file in a read-only folder, as another user where this one may do everything
mkdir readonly
cp good.h5 readonly/f.h5
chmod 444 readonly/f.h5
chmod 555 readonly
as_user=()
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work"
    as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
kept=$(state readonly/f.h5)
call 0 "${as_user[@]}" "$build/flim_info" readonly/f.h5
check "the file cannot be written" "${as_user[@]}" bash -c '! (echo >>readonly/f.h5) 2>/dev/null'
call 0 "${train[@]}" --data readonly/f.h5 --out ro
check "a read-only file stays as it was" test "$(state readonly/f.h5)" = "$kept"
chmod 755 readonly

# ---- two runs on one file at once; each gives what a run alone gives
call 0 "${train[@]}" --data good.h5 --out alone
"${train[@]}" --data good.h5 --out both-1 >one 2>&1 &
first=$!
"${train[@]}" --data good.h5 --out both-2 >two 2>&1 &
second=$!
wait $first
check "the first of two runs at once ends with 0" test $? = 0
wait $second
check "the second of two runs at once ends with 0" test $? = 0
check "two runs at once give what one gives" test "$(weights both-1)" = "$(weights alone)" -a "$(weights both-2)" = "$(weights alone)"
check "the data file stays as it was" test "$(state good.h5)" = "$before"

# ---- one damaged chunk: found by the scan, and without it when its cell is read
python=/usr/bin/python3
if $python -c 'import h5py' 2>/dev/null; then
    cp good.h5 bad.h5
    $python - <<'PY'
import h5py
with h5py.File("bad.h5") as f:
    chunk = f["counts"].id.get_chunk_info_by_coord((50, 0, 0, 0))
with open("bad.h5", "r+b") as f:
    f.seek(chunk.byte_offset + chunk.size // 2)
    byte = f.read(1)[0]
    f.seek(-1, 1)
    f.write(bytes([byte ^ 0x10]))
PY
    kept=$(state bad.h5)
    call 3 timeout 60 "${train[@]}" --data bad.h5 --out never
    says "cell 50 cannot be read"
    check "no folder is made for it" test ! -e never
    check "HDF5's own words stay away" bash -c '! grep -q "HDF5-DIAG\|HDF5 #\|infinite loop" out err'
    call 3 "$build/flim_info" bad.h5 --scan
    check "flim_info names the cell" grep -q "cell 50 cannot be read" out
    # Fold 0 is done with the good file; then a chunk goes bad, which fold 1 finds.
    cp good.h5 turns.h5
    call 0 "${train[@]}" --data turns.h5 --out turns --fold 0 --cache none
    cp bad.h5 turns.h5
    call 3 timeout 60 "${train[@]}" --data turns.h5 --out turns --resume --no-scan --cache none
    says "cell 50 cannot be read"
    check "the fold before is kept" test -e turns/fold_0/DONE -a -s turns/fold_0/best.safetensors -a ! -e turns/fold_1/DONE
    check "a damaged file stays as it was" test "$(state bad.h5)" = "$kept"
else
    echo "left out: damaged chunks ($python has no h5py)"
fi

# ---- HDF5's error stack
head -c 4000 good.h5 >cut.h5
for program in "$build/flim_info" "$build/train_cv --out never --data"; do
    # shellcheck disable=SC2086
    call 3 $program cut.h5
    says "cut.h5: the file is cut short: it has 4000 bytes, its header says $(stat -c %s good.h5)"
    check "$program: no HDF5 stack" bash -c '! grep -q "HDF5-DIAG\|HDF5 #" out err'
    check "$program: one line of error" test "$(wc -l <err)" = 1
    # shellcheck disable=SC2086
    call 3 $program cut.h5 --verbose
    check "$program --verbose: HDF5's stack" grep -q "HDF5 #0 H5F.c line" out
done
finish
