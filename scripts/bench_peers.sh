#!/bin/sh
# Fetches what `make bench` measures against: programs from Debian, packages from PyPI and npm, each in a place of its own in
# the user's cache. What cannot be had is said, and the benchmark reports it as missing.
set -u
cache=${XDG_CACHE_HOME:-$HOME/.cache}/palyra-bench
python=$1
top=$(cd "$(dirname "$0")/.." && pwd)
# Peers in Python run on the one that we run on: what was made with another is made anew.
runs_on=$(PYTHONPATH=$top/tests "$python" -m perf.peers) || exit 1

missing() { echo "bench: $1 cannot be had here, and its rows will be missing" >&2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo -n "$@"
    else return 1
    fi
}

# socat and ripgrep are what the sandbox from npm needs.
wanted=
for each in tinyproxy:tinyproxy danted:dante-server socat:socat rg:ripgrep; do
    found=
    for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin; do
        [ -x "$folder/${each%%:*}" ] && found=yes && break
    done
    [ -n "$found" ] || wanted="$wanted ${each#*:}"
done
if [ -n "$wanted" ]; then
    echo "bench: fetching$wanted from Debian" >&2
    # Installed to be started by hand, with settings of the benchmark's own: no service is left running.
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null 2>&1; then
        as_root chmod 755 "$policy"
        made=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null 2>&1
    for package in $wanted; do
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package" >/dev/null 2>&1 ||
            missing "$package"
    done
    [ -z "$made" ] || as_root rm -f "$policy"
fi

from_pypi() {
    package=$1
    program=$2
    [ "$(cat "$cache/$package/installed" 2>/dev/null)" = "$runs_on" ] && [ -x "$cache/$package/bin/python" ] &&
        [ -x "$cache/$package/bin/$program" ] && return
    echo "bench: fetching $package from PyPI" >&2
    { "$python" -m venv --clear "$cache/$package" &&
        "$cache/$package/bin/python" -m pip install -q --disable-pip-version-check "$package" &&
        echo "$runs_on" >"$cache/$package/installed"; } >/dev/null 2>&1 || { rm -rf "${cache:?}/$package"; missing "$package"; }
}
mkdir -p "$cache"
from_pypi mitmproxy mitmdump
from_pypi extism python

srt=$cache/sandbox-runtime
if [ ! -x "$srt/node_modules/.bin/srt" ]; then
    echo "bench: fetching @anthropic-ai/sandbox-runtime from npm" >&2
    mkdir -p "$srt"
    npm install --silent --no-audit --no-fund --prefix "$srt" @anthropic-ai/sandbox-runtime >/dev/null 2>&1 ||
        { rm -rf "$srt"; missing @anthropic-ai/sandbox-runtime; }
fi
exit 0
