# For bootstrap.sh, to be read into it, with `.`.

# Makes the environment $2 of the Python $1, unless there is one that works: also one of another Python, which somebody
# made on purpose. What is left of one that does not work goes; in a folder that is no environment nothing does.
make_environment() {
    version=$("$2/bin/python" -c 'import sys
print("%d.%d" % sys.version_info[:2])
sys.exit(sys.version_info < (3, 11))' 2>/dev/null) && return
    if [ ! -e "$2/pyvenv.cfg" ]; then
        "$1" -m venv "$2"
        return
    fi
    if [ -n "$version" ]; then why="is made of Python $version, and 3.11 or newer is needed"
    elif [ -x "$2/bin/python" ]; then why="is made of a Python that does not run"
    else why="is made of a Python that is gone"
    fi
    echo "palyra: $2 $why: it is made anew" >&2
    "$1" -m venv --clear "$2"
}
