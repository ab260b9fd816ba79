#!/bin/bash
# Builds the Debian packages flimcv and libflim-dev for the release that this machine runs, into build/deb/packages.  With nvcc and
# cuDNN's headers the programs have the CUDA backend; cuDNN itself is opened at run time and is no dependency.
# Programs that link such a libflim need the CUDA toolkit as well, which is none of Debian's packages; -DFLIM_CUDA=OFF leaves it out.
#
#   packaging/deb.sh [CMAKE FLAG...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/deb
generator=()
! command -v ninja >/dev/null || generator=(-G Ninja)
mkdir -p "$build"
# Debian's zsh looks in vendor-completions.
if ! cmake "${generator[@]}" -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DFLIM_TESTS=OFF \
    -DFLIM_ZSH_COMPLETIONS=share/zsh/vendor-completions "$@" >"$build/configure.log" 2>&1; then
    cat "$build/configure.log" >&2
    exit 1
fi
cmake --build "$build" --parallel "$(nproc)"
rm -rf "$build/packages"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$build/packages"
rm -rf "$build/packages/_CPack_Packages"
ls -l "$build/packages"
