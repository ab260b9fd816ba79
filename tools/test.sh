#!/bin/bash
# Installs what is missing, builds, and runs all tests.  Further words go to ctest: tools/test.sh -R loader
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

flim_packages "${flim_build_packages[@]}" "${flim_use_packages[@]}" "${flim_test_packages[@]}"
# Warnings are errors if the compiler is one that they were tested with.
case $(cc -dumpversion | cut -d. -f1) in
    12 | 13 | 14) werror=ON ;;
    *) werror=OFF ;;
esac
flim_build -DFLIM_TESTS=ON -DFLIM_WERROR=$werror
flim_say "Tests"
cd "$flim_root"
exec ctest --preset release "$@"
