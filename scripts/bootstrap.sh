#!/bin/sh
# Makes the environment in the folder given: the programs that Palyra runs on, a Python of at least 3.11, the pinned
# packages, this package. What only tests need is added by bootstrap_tests.sh. With the word `copy` behind the folder it
# gets a copy of the package, for a service: that does not change with the checkout.
set -eu
venv=$1
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/system_packages.sh"
. "$top/scripts/environment.sh"

# bubblewrap builds the sandbox; what runs in it is what the distribution has. The tour runs its Python and curl.
missing=
look_for bwrap:bubblewrap setpriv:util-linux python3:python3 curl:curl
# The engine of the browser daemon: the program itself, not the script around it.
[ -x /usr/lib/chromium/chromium-headless-shell ] || missing="$missing chromium-headless-shell"
install_missing

# The distribution's own Python first: it is built for speed, the distribution mends its faults, and every user of the
# machine may run it. Debian ships what makes an environment in a package of its own.
python=
for candidate in /usr/bin/python3 python3.11 python3.12 python3.13 python3.14 python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if ! "$candidate" -c 'import ensurepip' 2>/dev/null; then
        may_install || continue
        apt_install "$("$candidate" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"
    fi
    python=$candidate
    break
done
[ -n "$python" ] || { echo "palyra: Python 3.11 or newer, with venv, is needed and was not found" >&2; exit 6; }

echo "palyra: making the environment in $venv; the first time this takes a few minutes" >&2
make_environment "$python" "$venv"
install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"; }
install --require-hashes -r "$top/requirements.lock"
# What builds this package, as it is pinned for those who work on it.
sed -n '/^setuptools==/,/[^\\]$/p' "$top/requirements-dev.lock" >"$venv/build.lock"
install --require-hashes -r "$venv/build.lock"
if [ "${2:-}" = copy ]; then install --no-deps --no-build-isolation "$top"
else install --no-deps --no-build-isolation -e "$top"
fi
# Once, and not at every start: where Python is told to write no bytecode, half of a command's time would go into this.
"$venv/bin/python" -m compileall -q "$top/src"
