#!/bin/bash
# Builds the Debian packages flimcv and libflim-dev for the release that this machine runs, into build/dist/packages.  With
# nvcc and cuDNN's headers the programs have the CUDA backend; cuDNN itself is opened at run time and is no dependency.
# Programs that link such a libflim need the CUDA toolkit as well, which is none of Debian's packages; -DFLIM_CUDA=OFF leaves it out.
#
#   packaging/deb.sh [CMAKE FLAG...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/build.sh
source packaging/build.sh
build_programs "$@"
rm -rf "$build/packages"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$build/packages"
rm -rf "$build/packages/_CPack_Packages"
ls -l "$build/packages"
