#!/bin/bash
# Installs what is missing, builds, and runs all tests.  Further words go to ctest: tools/test.sh -R loader
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

flim_packages "${flim_build_packages[@]}" libcmocka-dev
# Warnings are errors where the compiler is the one that they were tested with.
werror=OFF
if [ "$(cc -dumpversion | cut -d. -f1)" = 12 ]; then
    werror=ON
fi
flim_build -DFLIM_TESTS=ON -DFLIM_WERROR=$werror
flim_say "Tests"
cd "$flim_root"
exec ctest --preset release "$@"
