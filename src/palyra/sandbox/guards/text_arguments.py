"""Words of a command line that are text and no names: messages, patterns, expressions. Paths in them mean nothing.

``sed '/^#/d' f`` and ``grep -r /api/v1 .`` would otherwise seem to name files outside the workspace. Only programs that
are known to take such text have entries, and only at the places where they take it.
"""

from typing import Final

import msgspec

from palyra.sandbox.guards.sed_script import Malformed, read_line, read_script

_SYSTEM: Final = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin"})


class TextPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """``texts`` are argument positions whose whole word is text; ``files`` are names found inside such text."""

    texts: frozenset[int] = frozenset()
    files: tuple[tuple[int, str], ...] = ()


class _Program(msgspec.Struct, frozen=True, kw_only=True):
    """``before`` are options whose value, in the next word or after ``=``, is text; ``glued`` those whose value is the
    rest of the word. ``first`` is whether the first word that is no option is text; it is none where one of the
    ``instead`` letters or long options gives it, or a file of it."""

    everything: bool = False
    before: frozenset[str] = frozenset()
    glued: tuple[str, ...] = ()
    first: bool = False
    instead: str = ""
    instead_long: tuple[str, ...] = ()
    valued: str = ""


def _before(options: str, **more: str) -> _Program:
    return _Program(before=frozenset(options.split()), glued=tuple(more.get("glued", "").split()))


_GREP: Final = _Program(
    before=frozenset({"-e", "--regexp", "--exclude", "--include", "--exclude-dir"}),
    first=True,
    instead="ef",
    instead_long=("--regexp", "--file"),
    valued="ABCmdD",
)
_COMPILER: Final = _before("-D -U", glued="-D -U")
_PROGRAMS: Final[dict[str, _Program]] = {
    **{
        name: _Program(everything=True)
        for name in ("echo", "printf", "expr", "seq", "tr", "basename", "dirname", "true", "false", "yes")
    },
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), _GREP),
    "rg": msgspec.structs.replace(_GREP, valued="ABCmdgtTjMEr"),
    "jq": _Program(first=True, valued="L", instead="f", instead_long=("--from-file",)),
    "find": _before(
        "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -printf",
    ),
    "git": _before(
        "-m -am -sm -asm --message --grep --author --format --pretty -S -G --trailer --date",
        glued=":/ :! :( :^ user.name= user.email= author.name= author.email= committer.name= committer.email=",
    ),
    "ssh-keygen": _before("-C -N -P"),
    "curl": _before(
        "-H --header -A --user-agent -e --referer -w --write-out -X --request -d --data --data-raw --data-ascii "
        "--data-binary --json"
    ),
    "date": _before("-d --date"),
    "cut": _before("-d --delimiter --output-delimiter", glued="-d"),
    "paste": _before("-d --delimiters", glued="-d"),
    "sort": _before("-t --field-separator", glued="-t"),
    "join": _before("-t", glued="-t"),
    "column": _before("-s -o --separator --output-separator", glued="-s -o"),
    "rsync": _before("--exclude --include --filter -f"),
    "tar": _before("--exclude --transform --xform"),
    **dict.fromkeys(("cc", "gcc", "c++", "g++", "clang", "clang++", "cpp", "c99"), _COMPILER),
}


# Options whose next word is a program, for interpreters that policy allows. What it opens, only the kernel can tell.
_CODE_OPTIONS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "fish"), frozenset({"-c", "-ec", "-lc", "-exc", "-xc"})),
    **dict.fromkeys(("python", "pypy"), frozenset({"-c"})),
    **dict.fromkeys(("node", "nodejs", "bun"), frozenset({"-e", "--eval", "-p", "--print", "-pe"})),
    **dict.fromkeys(("perl", "ruby"), frozenset({"-e", "-E", "-ne", "-pe", "-le", "-lne"})),
    "php": frozenset({"-r"}),
}


def code_places(command: str, args: tuple[str, ...]) -> frozenset[int]:
    """Which arguments are programs for the system's interpreters: in them a slash is seldom a path."""
    directory, _, name = command.rpartition("/")
    if directory not in _SYSTEM or (command.startswith("/") and not directory):
        return frozenset()
    options = _CODE_OPTIONS.get(name.rstrip("0123456789."), frozenset())
    first = next((position for position, word in enumerate(args) if word in options), None)
    if first is None or any(not word.startswith("-") for word in args[:first]):
        return frozenset()
    return frozenset({first + 1})


def text_places(command: str, args: tuple[str, ...]) -> TextPlaces:
    """Which arguments are text. Only the system's own programs get this: a program of the workspace may be called grep
    and read whatever it likes."""
    directory, _, name = command.rpartition("/")
    if directory not in _SYSTEM or (command.startswith("/") and not directory):
        return TextPlaces()
    if name in ("sed", "gsed"):
        return _sed(args)
    program = _PROGRAMS.get(name)
    if program is None:
        return TextPlaces()
    if program.everything:
        return TextPlaces(texts=frozenset(range(len(args))))
    texts = {position + 1 for position, word in enumerate(args[:-1]) if word in program.before}
    for position, word in enumerate(args):
        value = word.partition("=")[2] if word.partition("=")[0] in program.before else ""
        if (value and not value.startswith("@")) or (program.glued and word.startswith(program.glued)):
            texts.add(position)
    if program.first and not any(_gives_it(program, word) for word in args):
        first = _first_plain(args, program.valued)
        texts |= set() if first is None else {first}
    return TextPlaces(texts=frozenset(texts))


def _gives_it(program: _Program, word: str) -> bool:
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > len("--") and any(long.startswith(name) for long in program.instead_long)
    return word.startswith("-") and any(letter in word for letter in program.instead)


def _first_plain(args: tuple[str, ...], valued: str) -> int | None:
    skip = False
    for position, word in enumerate(args):
        if skip:
            skip = False
        elif word == "--":
            return position + 1 if position + 1 < len(args) else None
        elif word.startswith("-") and word != "-":
            skip = (
                not word.startswith("--") and word[-1] in valued and not any(letter in valued for letter in word[1:-1])
            )
        else:
            return position
    return None


def _sed(args: tuple[str, ...]) -> TextPlaces:
    """The scripts are text; the files that they read and write are names."""
    line = read_line(args)
    # A script that follows `--expression=` shares its word with nothing that names a file.
    position = min(line.positions, default=0)
    try:
        files = read_script(line.script).files if line.positions else ()
    except Malformed:
        return TextPlaces()
    return TextPlaces(texts=line.positions, files=tuple((position, name) for name in files))
