#!/usr/bin/env bash
# tools/setup.sh: its lists of packages are README's, and effect and says on each kind of machine, with apt-get, dpkg-query,
# sudo and id that only tell how they were called.
# Usage: test_setup.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
setup=$top/tools/setup.sh
mkdir bin
for tool in bash cat dirname env; do ln -s "$(command -v $tool)" "bin/$tool"; done

fake() { # fake NAME LINE...: a program of one small script
    printf '#!/bin/bash\n' >"bin/$1"
    printf '%s\n' "${@:2}" >>"bin/$1"
    chmod +x "bin/$1"
}

packages() { # packages CODE PACKAGE...: flim_packages in a shell that has nothing but bin; what ran is in calls
    : >calls
    # shellcheck disable=SC2016 # for the shell inside
    call "$1" env -i PATH="$work/bin" WORK="$work" ${skip:+FLIM_SKIP_PACKAGES="$skip"} \
        bash -c 'source "$0"; flim_packages "$@"' "$setup" "${@:2}"
}

called() { check "what was called: ${*:-nothing}" diff <(printf '%s' "${1:+$1$'\n'}") calls; }

# ---- README's list for who installs by hand
# shellcheck disable=SC2016
lists=$(bash -c 'source "$0"; printf "%s\n" "${flim_build_packages[@]}" "${flim_use_packages[@]}" "${flim_test_packages[@]}"' "$setup" | sort -u)
by_hand=$(sed -n '/^apt-get install gcc/,/[^\\]$/p' "$top/README.md" | sed 's/apt-get install//' | tr -s ' \\' '\n' | grep . | sort -u)
check "README's apt-get line is tools/setup.sh's lists" diff <(echo "$lists") <(echo "$by_hand")
check "the lists hold no package twice" test "$(echo "$lists" | wc -l)" -gt 10

# ---- a machine that has everything, one that lacks something, and one that lacks the means
fake dpkg-query 'case ${!#} in have*) echo "install ok installed" ;; gone) echo "deinstall ok config-files" ;; *) exit 1 ;; esac'
# shellcheck disable=SC2016
fake apt-get 'echo "apt-get $*" >>"$WORK/calls"' '[ "$1" != update ] || [ -z "${UPDATE_FAILS:-}" ]'
fake id 'echo 0'
packages 0 have1 have2
called ""
check "nothing to say" test ! -s out -a ! -s err
packages 0 have1 lack1 gone lack2
called "apt-get update -q
apt-get install -q -y --no-install-recommends lack1 gone lack2"
# shellcheck disable=SC2016
fake apt-get 'echo "apt-get $*" >>"$WORK/calls"' '[ "$1" != update ]'
packages 0 lack1
says "apt-get update failed; trying with the lists that are here"
called "apt-get update -q
apt-get install -q -y --no-install-recommends lack1"
fake apt-get 'exit 100'
packages 100 lack1

# shellcheck disable=SC2016
fake apt-get 'echo "apt-get $*" >>"$WORK/calls"'
fake id 'echo 1000'
packages 1 have1 lack1 lack2
says "As root: apt-get install lack1 lack2"
called ""
# shellcheck disable=SC2016
fake sudo 'echo sudo >>"$WORK/calls"' 'exec "$@"'
packages 0 have1 lack1
called "sudo
apt-get update -q
sudo
apt-get install -q -y --no-install-recommends lack1"
packages 0 have1
called ""

rm bin/apt-get bin/sudo
packages 1 have1 lack1
says "This is no Debian or Ubuntu"
says "have1 lack1"
skip=1
packages 0 lack1
called ""

finish
