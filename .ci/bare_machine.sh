#!/bin/bash
# Runs a command of this checkout on a bare machine: what `debootstrap --variant=minbase` installs and no more.
#
#   .ci/bare_machine.sh bookworm tools/test.sh           the command runs in a copy of the files that git tracks
#   FLIM_BARE=FOLDER .ci/bare_machine.sh trixie bash     the machine stays in FOLDER, and is used again if it is there
#   FLIM_OUT=FOLDER .ci/bare_machine.sh ...              /mnt of the machine is FOLDER
#
# The machine is a folder in TMPDIR or /tmp, seen through chroot in namespaces of its own, so that no mount outlives it.  Its
# packages come from the mirror of this machine, or from FLIM_MIRROR.  Ends as the command does; with 77 and the reason if no
# such machine can be made here.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1
shift

cannot() {
    echo "No bare machine here: $1"
    exit 77
}

mirror() { # the one that apt asks for this very release, so that nothing else need be reached
    local own
    # shellcheck source=/dev/null # not on every machine
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}") || true
    apt-get indextargets --format '$(RELEASE) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -v own="$own" '($1 == own || $2 == own) && $NF ~ "^https?://" { print $NF; exit }'
}

[ "$(id -u)" = 0 ] || cannot "it takes root"
command -v debootstrap >/dev/null || cannot "there is no debootstrap (apt-get install debootstrap)"
unshare --mount --pid --fork true 2>/dev/null || cannot "mounts are not allowed (a container without CAP_SYS_ADMIN?)"

from=${FLIM_MIRROR:-$(mirror || true)}
from=${from:-http://deb.debian.org/debian}
if [ -n "${FLIM_BARE:-}" ]; then
    root=$FLIM_BARE
else
    root=$(mktemp -d "${TMPDIR:-/tmp}/flimcv-bare-XXXXXX")
    chmod 755 "$root" # mktemp's 700 would shut other users out of the whole machine
    trap 'rm -rf --one-file-system "$root"' EXIT
fi

begin=$SECONDS
if [ ! -e "$root/etc/os-release" ]; then
    echo "debootstrap --variant=minbase $suite from $from"
    more=()
    [[ $from != https:* ]] || more=(--include=ca-certificates) # else its own apt could not use the mirror
    if ! debootstrap --variant=minbase "${more[@]}" "$suite" "$root" "$from" >"$root.log" 2>&1; then
        tail -n 5 "$root.log"
        rm -f "$root.log"
        cannot "debootstrap failed"
    fi
    rm -f "$root.log"
    # As an installer does: without it Open MPI waits 5 s for a name server at each start.
    printf '127.0.0.1\tlocalhost %s\n' "$(hostname)" >"$root/etc/hosts"
    apt-config dump | grep -E '^Acquire::https?::Proxy' >"$root/etc/apt/apt.conf.d/90proxy" || true
fi
mkdir -p "$root/root/flimcv"
git ls-files -z | tar --create --null --files-from=- | tar --extract --no-same-owner -C "$root/root/flimcv"
echo "The machine ($root) took $((SECONDS - begin)) s"

begin=$SECONDS
code=0
# shellcheck disable=SC2016 # expanded inside
unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    [ -z "${FLIM_OUT:-}" ] || mount --bind "$FLIM_OUT" "$root/mnt"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} TERM="${TERM:-dumb}" \
        bash -c "cd /root/flimcv && exec \"\$@\"" bash "$@"
' bash "$root" "$@" || code=$?
echo "$*: exit code $code after $((SECONDS - begin)) s"
[ $code != 77 ] || code=1 # 77 is for a machine that could not be made
exit $code
