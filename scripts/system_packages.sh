# For scripts that need programs of the distribution; to be read into them, with `.`.

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo "$@"
    else
        echo "palyra: please run as root, then try again: $*" >&2
        exit 6
    fi
}

may_install() {
    command -v apt-get >/dev/null 2>&1 && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1; }
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || { echo "palyra: please install: $*" >&2; exit 6; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2
}

# Adds to $missing the packages of those programs, each given as program:package, that are not where the distribution
# puts programs: what lies elsewhere does not show in the sandbox.
look_for() {
    for each in "$@"; do
        found=
        for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
            [ -x "$folder/${each%%:*}" ] && found=yes && break
        done
        [ -n "$found" ] || missing="$missing ${each#*:}"
    done
}

install_missing() {
    # shellcheck disable=SC2086  # a list of words
    [ -z "$missing" ] || apt_install $missing
}
