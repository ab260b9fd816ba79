#!/bin/bash
# cmake --install into a fresh prefix, then a stranger's program built against it: once through find_package, once through
# pkg-config.  Called with the build folder.
set -euo pipefail
build=$1
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" 2>&1; then
    cat "$work/install.log"
    exit 1
fi
for program in "$work"/prefix/bin/*; do
    line=$("$program" --version) || { echo "$program --version failed"; exit 1; }
    [[ $line =~ ^"$(basename "$program") (flimcv) "[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "$program --version: '$line'"; exit 1; }
done
library=$(find "$work/prefix" -name 'libflim.a' -o -name 'libflim.so' | head -n 1)
if nm "$library" 2>/dev/null | grep -q flim_alloc_fail_at; then
    echo "$library holds test hooks"
    exit 1
fi

# What the flags of this build need at link time, a sanitizer for one, a user's program needs too.
flags=$(sed -n 's/^FLIM_SANITIZE:STRING=\(..*\)$/-fsanitize=\1/p' "$build/CMakeCache.txt")
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

# Every installed header stands alone: it needs no other one before it and no private one.
for header in "$work"/prefix/include/flim/*.h; do
    echo "#include <flim/$(basename "$header")>" | "$compiler" -std=c17 -Wall -Wextra -Werror -fsyntax-only -I"$work/prefix/include" \
        -x c - || { echo "$header does not compile alone"; exit 1; }
done

by_cmake() { # with the generator of this build: nothing says that another one is installed
    cmake -G "$generator" -S "$source_folder/tests/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="$flags" &&
        cmake --build "$work/cmake"
}
if ! by_cmake >"$work/cmake.log" 2>&1; then
    cat "$work/cmake.log"
    exit 1
fi
"$work/cmake/consumer"

package=$(dirname "$(find "$work/prefix" -name flimcv.pc)")
export PKG_CONFIG_PATH=$package
read -r -a cflags < <(pkg-config --cflags flimcv)
read -r -a libs < <(pkg-config --libs flimcv)
"$compiler" -std=c17 ${flags:+"$flags"} "${cflags[@]}" "$source_folder/tests/consumer/main.c" -o "$work/consumer" "${libs[@]}" \
    "-Wl,-rpath,$(dirname "$library")"
"$work/consumer"
