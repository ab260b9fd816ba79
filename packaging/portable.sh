#!/bin/bash
# Makes one archive for machines where nobody may install anything (a cluster's nodes, say): the programs and every library that
# they need but those of glibc, whose release here is the oldest that runs it.  Unpacked into any folder, its bin/ is used as it is.
#
#   packaging/portable.sh [CMAKE FLAG...]      build/dist/flimcv-VERSION-linux-MACHINE.tar.gz
#
# Needs patchelf.  cuDNN, NCCL and Open MPI are opened at run time, and are the machine's own there, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/build.sh
source packaging/build.sh
command -v patchelf >/dev/null || { echo "patchelf was not found: apt-get install patchelf" >&2; exit 1; }
build_programs "$@"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=flimcv-$version-linux-$(uname -m)
root=$build/$name
rm -rf "$root" "$root.tar.gz"
cmake --install "$build" --prefix "$root" --component programs --strip >"$build/install.log"

# Libraries by their path here; glibc's must be those of the kernel's and the loader's machine.
glibc='^(ld-linux.*|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libnsl|libanl)\.so'
mapfile -t libraries < <(ldd "$root"/bin/* | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u)
mkdir -p "$root/lib" "$root/share/doc/flimcv/libraries"
for library in "${libraries[@]}"; do
    file=${library##*/}
    if [[ $file =~ $glibc ]]; then
        continue
    fi
    install -m 644 "$library" "$root/lib/$file"
    [ -z "$(patchelf --print-rpath "$root/lib/$file")" ] || patchelf --remove-rpath "$root/lib/$file"
    # What their licences ask of those who pass them on.
    package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null || dpkg -S "${library/#\/lib/\/usr\/lib}" 2>/dev/null || true)
    package=${package%%:*}
    if [ -n "$package" ] && [ -r "/usr/share/doc/$package/copyright" ]; then
        install -m 644 "/usr/share/doc/$package/copyright" "$root/share/doc/flimcv/libraries/$package"
    fi
done
# RPATH and not RUNPATH: it holds for what the libraries need, too.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$root"/bin/*
tar -C "$build" --owner=0 --group=0 --sort=name -czf "$root.tar.gz" "$name"
ls -l "$root.tar.gz"
echo "Needs $(objdump -T "$root"/bin/* "$root"/lib/* | grep -o 'GLIBC_2\.[0-9.]*' | sort -Vu | tail -n 1) or later"
