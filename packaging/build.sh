# For the scripts beside it: builds what they pack.  Sourced, in the checkout.
# shellcheck shell=bash

build=build/dist # one for all kinds of packages, since they hold the same programs

build_programs() { # build_programs [CMAKE FLAG...]
    local generator=()
    ! command -v ninja >/dev/null || generator=(-G Ninja)
    mkdir -p "$build"
    # Debian's zsh looks in vendor-completions.
    if ! cmake "${generator[@]}" -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DFLIM_TESTS=OFF \
        -DFLIM_ZSH_COMPLETIONS=share/zsh/vendor-completions "$@" >"$build/configure.log" 2>&1; then
        cat "$build/configure.log" >&2
        return 1
    fi
    cmake --build "$build" --parallel "$(nproc)"
}
