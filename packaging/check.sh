# For the scripts beside it that try a package on a machine that is thrown away.  Sourced.
# shellcheck shell=bash

check() { # check DESCRIPTION COMMAND...
    "${@:2}" >/tmp/check.out 2>&1 || { echo "FAILED: $1"; cat /tmp/check.out; exit 1; }
    echo "$1: $(tail -n 1 /tmp/check.out | cut -c 1-100)"
}
