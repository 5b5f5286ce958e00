#!/bin/sh
# Makes the environment in the folder given: the programs that the sandbox and the tests need, a Python of at least
# 3.11, the pinned packages, this package.
set -eu
venv=$1
top=$(cd "$(dirname "$0")/.." && pwd)

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo "$@"
    else
        echo "palyra: please run as root, then try again: $*" >&2
        exit 6
    fi
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || { echo "palyra: please install: $*" >&2; exit 6; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2
}

# bubblewrap builds the sandbox; the others are the ordinary tools that the tests run inside it.
system_programs="bwrap:bubblewrap setpriv:util-linux tar:tar git:git gcc:gcc make:make node:nodejs npm:npm
    sqlite3:sqlite3 ssh-keygen:openssh-client curl:curl ip:iproute2 groff:groff-base systemd-analyze:systemd"
missing=
for each in $system_programs; do
    # Only where the distribution puts programs: what lies elsewhere does not show in the sandbox.
    found=
    for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
        [ -x "$folder/${each%%:*}" ] && found=yes && break
    done
    [ -n "$found" ] || missing="$missing ${each#*:}"
done
# The engine of the browser daemon: the program itself, not the script around it.
[ -x /usr/lib/chromium/chromium-headless-shell ] || missing="$missing chromium-headless-shell"
# gcc needs headers to compile anything, and the distribution's own Python and venv are run inside the sandbox.
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
[ -x /usr/bin/python3 ] || missing="$missing python3"
/usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086  # a list of words
    apt_install $missing
fi

python=
for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "palyra: Python 3.11 or newer is needed and was not found" >&2; exit 6; }

# Debian ships ensurepip in a package of its own.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    apt_install "$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"
fi

echo "palyra: making the environment in $venv; the first time this takes a few minutes" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$top/requirements-dev.lock"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e "$top"
# Once, and not at every start: where Python is told to write no bytecode, half of a command's time would go into this.
"$venv/bin/python" -m compileall -q "$top/src"
