#!/usr/bin/env bash
# What cmake says where oneDNN or cmocka is missing or not fit: what was found, and the command that installs it on this
# distribution.
# Usage: test_configure.sh BUILD_DIR
set -u
# shellcheck source=tests/lib.sh
source "$(dirname "$0")/../lib.sh"
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# ---- the command by distribution
cat >ask.cmake <<'CMAKE'
function(cmake_host_system_information)
  set(system_ID "${ID}" PARENT_SCOPE)
  set(system_ID_LIKE "${LIKE}" PARENT_SCOPE)
endfunction()
include(${LIST})
flim_how_to_install(how ${LIBRARY})
message("${how}")
CMAKE
installs() { # installs ID ID_LIKE LIBRARY COMMAND
    call 0 cmake -DLIST="$top/cmake/packages.cmake" -DID="$1" -DLIKE="$2" -DLIBRARY="$3" -P ask.cmake
    check "on $1 ($2) $3 comes by '$4'" grep -qxF "$4" err
}
installs debian "" onednn "apt-get install libdnnl-dev"
installs debian "" cmocka "apt-get install libcmocka-dev"
installs ubuntu debian onednn "apt-get install libdnnl-dev"
installs linuxmint "ubuntu debian" cmocka "apt-get install libcmocka-dev"
installs fedora "" onednn "dnf install onednn-devel"
installs rocky "rhel centos fedora" cmocka "dnf install libcmocka-devel"
installs opensuse-leap "suse opensuse" cmocka "zypper install libcmocka-devel"
installs arch "" onednn "pacman -S onednn"
installs manjaro arch cmocka "pacman -S cmocka"
installs "" "" onednn "package libdnnl-dev of Debian and Ubuntu, onednn-devel of Fedora and openSUSE, onednn of Arch and conda-forge"

# ---- a whole configuration
configure() { # configure CODE ARGS...: its texts in one line, as cmake breaks them
    rm -rf configured
    call "$1" cmake -G "$(cached CMAKE_GENERATOR)" -S "$top" -B configured -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" \
        -DFLIM_CUDA=OFF "${@:2}"
    cat out err >>both
    tr -s ' \n' ' ' <both >err
    rm both
}
configure 1 -DFLIM_TESTS=OFF -DDNNL_LIBRARY=
says "needs one backend at least. CPU: oneDNN (oneapi/dnnl/dnnl.h, libdnnl) was not found: "
check "the command is this distribution's" test ! -e /etc/debian_version -o -n "$(grep -o 'was not found: apt-get install libdnnl-dev' err)"
mkdir -p old/oneapi/dnnl new/oneapi/dnnl
printf '#define DNNL_VERSION_MAJOR %d\n#define DNNL_VERSION_MINOR %d\n' 2 5 >old/oneapi/dnnl/dnnl_version.h
printf '#define DNNL_VERSION_MAJOR %d\n#define DNNL_VERSION_MINOR %d\n' 4 0 >new/oneapi/dnnl/dnnl_version.h
configure 1 -DFLIM_TESTS=OFF -DFLIM_CPU=ON -DDNNL_INCLUDE="$work/old" -DDNNL_LIBRARY=/lib/libdnnl.so
says "FLIM_CPU=ON, but oneDNN 2.6 to 3.x is needed, and $work/old has 2.5"
configure 1 -DFLIM_TESTS=OFF -DDNNL_INCLUDE="$work/new" -DDNNL_LIBRARY=/lib/libdnnl.so
says "CPU: oneDNN 2.6 to 3.x is needed, and $work/new has 4.0"

printf '#!/bin/sh\ncase "$*" in *cmocka*) exit 1 ;; esac\nexec %s "$@"\n' "$(cached PKG_CONFIG_EXECUTABLE)" >pkg-config
chmod +x pkg-config
if [ "$(cached FLIM_CPU)" != OFF ]; then
    configure 1 -DPKG_CONFIG_EXECUTABLE="$work/pkg-config"
    says "The tests need cmocka, which was not found: "
    check "the command is this distribution's" test ! -e /etc/debian_version -o -n "$(grep -o 'apt-get install libcmocka-dev' err)"
    says "leave the tests out with -DFLIM_TESTS=OFF"
    configure 0 -DPKG_CONFIG_EXECUTABLE="$work/pkg-config" -DFLIM_TESTS=OFF
fi

finish
