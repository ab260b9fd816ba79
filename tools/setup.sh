# shellcheck shell=bash
# Set-up that tools/demo.sh, tools/test.sh and .ci/run share: packages and the release build.  Sourced, not run.
#
# flim_build_packages, flim_use_packages, flim_test_packages: what the build, the documented commands and the tests need
# flim_packages PACKAGE...   installs what is missing of Debian's packages (as root or with sudo); elsewhere, or without either,
#                            names them and ends with code 1
# flim_build [CMAKE FLAG...] configures and builds build/release
#
# FLIM_SKIP_PACKAGES=1 takes the packages for granted: for systems that have them under other names.

flim_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The names are the same in Debian 12 and 13 and Ubuntu 24.04.
# shellcheck disable=SC2034 # for those who source this
flim_build_packages=(gcc libc6-dev cmake ninja-build pkg-config libhdf5-dev zlib1g-dev libdeflate-dev libisal-dev liblz4-dev libdnnl-dev libyaml-dev
    libjansson-dev libssl-dev librandom123-dev libtiff-dev libpng-dev libprotobuf-c-dev
    protobuf-c-compiler)
# shellcheck disable=SC2034
flim_use_packages=(gnuplot-nox python3) # for fold_metrics --html and tools/compare_arms.py
# shellcheck disable=SC2034
flim_test_packages=(libcmocka-dev libopenmpi-dev openmpi-bin) # Open MPI: 50 MB installed

# The CUDA toolkit's installer leaves nvcc outside PATH.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    PATH=$PATH:/usr/local/cuda/bin
fi

flim_say() {
    printf '\n== %s\n' "$*"
}

flim_packages() {
    local missing=() package
    [ -z "${FLIM_SKIP_PACKAGES:-}" ] || return 0
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        cat >&2 <<EOF
This is no Debian or Ubuntu: install what stands for these Debian packages, then set FLIM_SKIP_PACKAGES=1 and start again:
  $*
EOF
        return 1
    fi
    for package in "$@"; do
        if [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" != "install ok installed" ]; then
            missing+=("$package")
        fi
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            printf 'Missing packages, and neither root nor sudo to install them.  As root: apt-get install %s\n' \
                "${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    flim_say "Installing ${missing[*]}"
    # Without network an old list of packages, or a local mirror, may still do.
    "${as_root[@]}" apt-get update -q || echo "apt-get update failed; trying with the lists that are here" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

flim_build() {
    local log=$flim_root/build/configure.log
    mkdir -p "$flim_root/build"
    flim_say "Building in build/release"
    if ! (cd "$flim_root" && cmake --preset release "$@") >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    grep 'flimcv: ' "$log" || true
    cmake --build "$flim_root/build/release" -j "$(nproc)"
}
