#!/bin/sh
# Adds to the environment in the folder given what only tests, checks and benchmarks need: programs, packages, and what
# npm has. Nobody has to wait for it who wants to run Palyra.
set -eu
venv=$1
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/system_packages.sh"

# The ordinary tools that the tests run inside the sandbox, and what they make networks and pages with.
missing=
look_for tar:tar git:git gcc:gcc make:make node:nodejs npm:npm sqlite3:sqlite3 ssh-keygen:openssh-client \
    ip:iproute2 groff:groff-base systemd-analyze:systemd
# gcc needs headers to compile anything, and the distribution's own venv is made inside the sandbox.
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
/usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
install_missing

"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$top/requirements-dev.lock"

# Checks the console's pages for what people with bad eyes or without a mouse cannot use. One file of it.
axe_version=4.14.0
axe_sha256=20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878
axe_file=$venv/axe-core/node_modules/axe-core/axe.min.js
if ! echo "$axe_sha256  $axe_file" | sha256sum --check --status 2>/dev/null; then
    npm install --loglevel=error --no-audit --no-fund --no-save --ignore-scripts --prefix "$venv/axe-core" "axe-core@$axe_version" >&2
    echo "$axe_sha256  $axe_file" | sha256sum --check --status ||
        { echo "palyra: axe-core $axe_version is not the file that was expected" >&2; exit 1; }
fi

# What others wrote in JavaScript and the tests run: the conformance checks of the Model Context Protocol, and a server to
# put behind Palyra. Each package is the one whose hash the lock file has.
if ! cmp -s "$top/tests/npm/package-lock.json" "$venv/npm/installed.json"; then
    mkdir -p "$venv/npm"
    cp "$top/tests/npm/package.json" "$top/tests/npm/package-lock.json" "$venv/npm/"
    (cd "$venv/npm" && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts >&2)
    cp "$venv/npm/package-lock.json" "$venv/npm/installed.json"
fi
