#!/usr/bin/env bash
# What a second worker process gains: the same run serial and with --jobs 2, in interleaved pairs, each worker with one thread; the
# files of both must be the same.  No test: it takes minutes, and means something on a machine with two free cores only.
# Usage: jobs_time.sh BUILD_DIR ROUNDS [train_cv's flags...]     e.g. chrt -r 1 bash tests/train/jobs_time.sh build/cpu 3
set -u
export OMP_NUM_THREADS=1
rounds=${2:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { sed -n '4p' "$0"; exit 2; }
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
train=$build/train_cv
simulate k.h5
options=(--data k.h5 --preset tiny --folds 6 --epochs 20 --patience 0 --batch 16 --lr 1e-3 --workers 1 --device cpu "${@:3}")
load() { cut -d' ' -f1-3 /proc/loadavg; }
seconds() { # seconds FILE COMMAND...: into FILE, one line per call
    local begun ended file=$1
    shift
    begun=$(date +%s.%N)
    call 0 "$@"
    ended=$(date +%s.%N)
    echo "$ended $begun" | awk '{ printf "%.2f\n", $1 - $2 }' >>"$file"
}
echo "$(nproc --all) processors, load $(load) before; scheduling: $(chrt -p $$ 2>/dev/null | sed -n 's/.*policy: //p')"
for round in $(seq "$rounds"); do
    rm -rf serial jobs pair_a pair_b
    seconds serial.txt "$train" "${options[@]}" --out serial
    seconds jobs.txt "$train" "${options[@]}" --out jobs --jobs 2
    check "round $round: the same files" test "$(digest serial)" = "$(digest jobs)"
    # What two cores of this machine give two processes that share nothing.
    begun=$(date +%s.%N)
    "$train" "${options[@]}" --out pair_a >/dev/null 2>&1 &
    "$train" "${options[@]}" --out pair_b >/dev/null 2>&1 &
    wait
    echo "$(date +%s.%N) $begun" | awk '{ printf "%.2f\n", $1 - $2 }' >>pair.txt
    echo "round $round: serial $(tail -1 serial.txt) s, --jobs 2 $(tail -1 jobs.txt) s, two serial runs at once $(tail -1 pair.txt) s; load $(load)"
done
# Ratios within a round, and the best of each, which other work has disturbed least.
paste serial.txt jobs.txt pair.txt | awk '
    function least(a, b) { return NR == 1 || b < a ? b : a }
    { ratio[NR] = $2 / ($1 / 2); sum += ratio[NR]; s = least(s, $1); j = least(j, $2); p = least(p, $3) }
    END {
        for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (ratio[k] < ratio[i]) { t = ratio[i]; ratio[i] = ratio[k]; ratio[k] = t }
        printf "--jobs 2 to half of serial: median %.2f, least %.2f, most %.2f of %d rounds (1 = perfect; at most 1.1 is wanted)\n", ratio[int((NR + 1) / 2)], ratio[1], ratio[NR], NR
        printf "of the least times: %.2f to half of serial (%.2f s and %.2f s), %.2f to half of two serial runs at once (%.2f s)\n", j / (s / 2), j, s, j / (p / 2), p
    }'
finish
