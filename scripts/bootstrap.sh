#!/bin/sh
# Makes the environment in the folder given: a Python of at least 3.11, the pinned packages, this package.
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

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$top/requirements-dev.lock"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e "$top"
