#!/usr/bin/env bash
# flim_import as a whole program on public files: the photons of each are accounted for; what is damaged ends with exit code 3, names
# its file and leaves nothing; a stop leaves nothing either.
# Usage: test_flim_import.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
raw=${FLIM_SHARED:-$top/../shared}/data/raw
if [ ! -r "$raw/expected.json" ]; then
    echo "skipped: there is no $raw/expected.json"
    exit 77
fi
import=("$build/flim_import")

# ---- whole files: name, photons (expected.json), arguments
while read -r name photons arguments; do
    rm -f whole.h5
    # shellcheck disable=SC2086 # words
    call 0 "${import[@]}" whole.h5 "$raw/$name" $arguments
    check "$name has $photons photons" grep -q "^photons: $photons in the files = $photons in the cells$" out
done <<'END'
flimflam_c1.sdt 643962
flimflam_c2.sdt 496426 --bins 64
flimflam_c3.sdt 596302 --align-t0
END

# ---- a time range beside the file's own: the file's counts, and both are said once, however many files there are
mkdir twice && cp "$raw/flimflam_c1.sdt" twice/a.sdt && cp "$raw/flimflam_c1.sdt" twice/b.sdt
call 0 "${import[@]}" range.h5 twice --class a=rest,b=act --time-range-ns 50
says "a.sdt: the file says that its 256 time bins are "
says " ns in all: --time-range-ns 50, which is for files that do not say, is not used"
check "it is said once" test "$(grep -c -e '--time-range-ns 50' err)" = 1
own=$(sed -n 's/.*time bins are \([0-9.]*\) ns in all.*/\1/p' err)
call 0 "$build/flim_info" range.h5 --no-scan
check "the file's own range counts" grep -qF "$own ns" out
for asked in 0 "$own"; do
    rm range.h5
    call 0 "${import[@]}" range.h5 twice --class a=rest,b=act --time-range-ns "$asked"
    check "nothing is said of --time-range-ns $asked" bash -c '! grep -q time-range-ns "$1"' _ err
done

# ---- two spellings of a class: the last word, in those of flim_info and train_cv
printf 'path,label\ntwice/a.sdt,act\ntwice/b.sdt,act\xe2\x80\x8b\n' >classes.csv
rm range.h5
call 0 "${import[@]}" range.h5 twice --class a=act,b=Act
says "warning: classes 'act' and 'Act' differ only by case: they are treated as different; are they one class?"
call 0 "${import[@]}" manifest.h5 --manifest classes.csv
says "warning: classes 'act' and 'act\\u200b' differ only by invisible characters: they are treated as different; are they one class?"
rm range.h5
call 0 "${import[@]}" range.h5 twice --class a=act,b=rest
check "nothing is said of other classes" bash -c '! grep -q classes "$1"' _ err

# ---- a mask: its cells and what is around them are all photons there are
if "$build/flim_import" mask.h5 "$raw/flimflam_c1.sdt" --mask "$raw/flimflam_roi_c1.tif" --size 41 >out 2>err; then
    check "a mask's photons" grep -q '^photons: 643962 in the files = 339500 in the cells + 304462 outside all cells$' out
else
    check "without libtiff the package is named" grep -q libtiff-dev err
fi
call 3 "${import[@]}" other.h5 "$raw/Tcells-002.sdt" --mask "$raw/flimflam_roi_c1.tif"
check "a mask of another size is named" grep -q 'flimflam_roi_c1.tif: ' err

# ---- cut off, and with a byte changed
for name in flimflam_c1.sdt pyflim_example.ptu IRF.sdt; do
    size=$(stat -c %s "$raw/$name")
    for keep in 20 $((size / 2)) $((size * 3 / 4)); do
        head -c "$keep" "$raw/$name" >"cut_$name"
        call 3 "${import[@]}" cut.h5 "cut_$name" --channel 1
        check "the error names cut_$name" grep -q "cut_$name: " err
        check "$name cut to $keep bytes leaves nothing" test ! -e cut.h5
    done
done
echo "no field at all, but a text" >text.npy
call 3 "${import[@]}" cut.h5 text.npy

# ---- arrays of the fuzzers' corpus, whose first byte is not the file's: Fortran's order, and big endian
for name in npy_fortran npy_f8_big; do
    tail -c +2 "$top/tests/fuzz/corpus_fields/$name" >"$name"
    rm -f whole.h5
    call 0 "${import[@]}" whole.h5 "$name" --axes YXT
    check "$name: its photons are in cells" grep -q "^photons: .* in the files = " out
done

# ---- what is bad in good files: refused by name, and OUT not made
bad() { # bad FILE WORDS ARGUMENTS...
    local file=$1 words=$2
    shift 2
    call 3 "${import[@]}" bad.h5 "$file" "$@"
    check "$file is named" grep -q "$file: " err
    says "$words"
    check "$file leaves nothing" test ! -e bad.h5
}
put() { # put FILE OFFSET BYTES: as printf writes them
    # shellcheck disable=SC2059
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
cp "$raw/pyflim_example.ptu" past.ptu && cp past.ptu order.ptu && chmod u+w past.ptu order.ptu
records=$(($(grep -abo TTResult_NumberOfRecords past.ptu | head -1 | cut -d: -f1) + 40)) # offset of their count
put past.ptu "$records" '\377\377\377\1\0\0\0\0'
bad past.ptu "its header counts 33554431 records"
put order.ptu "$records" '\0\0\0\0\0\0\0\0' # the file's size decides
put order.ptu "$(stat -c %s order.ptu)" '\1\0\002\360' # one more: the stop of a line
bad order.ptu "record 19418 at offset $(stat -c %s "$raw/pyflim_example.ptu"): the stop of a line that has not started"
# Of Python objects: whatever a pickle would do is not done.
{ printf '\x93NUMPY\x01\x00\x76\x00' && printf "%-117s\n" "{'descr': '|O', 'fortran_order': False, 'shape': (8, 8, 64), }" &&
    printf "cposix\nsystem\n(S'touch was_run'\ntR."; } >objects.npy
bad objects.npy "an array of Python objects"
check "a pickle is not run" test ! -e was_run
check "no file is half written" test -z "$(find . -name '*.tmp')"
finish
