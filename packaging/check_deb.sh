#!/bin/bash
# Installs the packages of a folder on this machine, as root, uses what they bring and removes them: for a bare machine that is
# thrown away (.ci/bare_machine.sh bookworm packaging/check_deb.sh /mnt).
set -euo pipefail
folder=$1
export DEBIAN_FRONTEND=noninteractive
# shellcheck source=packaging/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

apt-get update -q >/dev/null
check "flimcv installs with what it depends on" apt-get install -q -y --no-install-recommends "$folder"/flimcv_*.deb man-db zsh
mapfile -t programs < <(dpkg -L flimcv | sed -n 's#^/usr/bin/##p')
[ ${#programs[@]} -ge 9 ] || { echo "FAILED: only ${#programs[@]} programs: ${programs[*]}"; exit 1; }
for program in "${programs[@]}"; do
    check "$program starts" "$program" --version
    check "man $program" bash -c "man -P cat $program | grep -q '^NAME'"
    check "bash completes $program" test -s "/usr/share/bash-completion/completions/$program"
    # shellcheck disable=SC2016 # for zsh
    check "zsh completes $program" zsh -f -c 'autoload -Uz compinit && compinit -u -D && print $_comps['"$program"'] | grep .'
done
check "the licence" grep -q MIT /usr/share/doc/flimcv/copyright
check "the cards for gpu_plan" test -s /usr/share/flimcv/devices/l4.json
cd "$(mktemp -d)"
check "data are simulated" flim_simulate --out cells.h5 --cells 24 --donors 6 --bins 16 --height 9 --width 9
check "a run ends" train_cv --data cells.h5 --preset tiny --folds 2 --epochs 1 --batch 8 --device cpu --out run
check "it predicts" predict --model run --data cells.h5 --out predictions.csv

check "libflim-dev installs" apt-get install -q -y --no-install-recommends "$folder"/libflim-dev_*.deb gcc libc6-dev pkg-config
# shellcheck disable=SC2046 # words of pkg-config
check "a program links it" gcc -std=c17 /root/flimcv/tests/consumer/main.c -o consumer $(pkg-config --cflags --libs flimcv)
check "and runs" ./consumer
check "both are removed" apt-get purge -q -y flimcv libflim-dev
check "and leave nothing" bash -c '! ls /usr/bin/train_cv /usr/share/man/man1/train_cv.1* /usr/share/doc/flimcv 2>/dev/null | grep .'
echo "The packages hold what they promise"
