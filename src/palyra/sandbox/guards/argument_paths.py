"""Every path that an argument names must lie in the workspace, after all links and ``..`` are followed.

The kernel enforces the same in Tier C; this check gives a clear refusal before anything runs. Readable besides the
workspace are a few devices with a fixed meaning and the system's own directories, /usr above all: compilers get
-I/usr/include, and no program can write there inside the sandbox. No argument is ever changed.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from palyra.sandbox.domain.process_run import InvalidCommand, ProcessCommand, WorkspaceScopeDenied, excerpt
from palyra.sandbox.guards.executables import SYSTEM_ROOTS, Kind, PathLook, base_name, is_beneath, join, walk
from palyra.sandbox.guards.interpreters import normalize_program
from palyra.sandbox.guards.sed_script import Malformed, read_line, read_script
from palyra.sandbox.limits import MAX_ARGUMENT_NESTING, MAX_CLUSTERED_LETTERS

# The paths that one word of a command line may name, in every spelling that programs understand.
#
# ``--opt=path``, ``-Cpath``, ``k=path``, ``@file``, ``a:b:c``, ``-Wl,-rpath,/x`` and ``file:`` URLs are taken apart.
# The word stays as it is: each of these readings is judged. A plain relative name does no harm, because it lies beneath
# the working directory. So ``origin/main``, ``text/html`` and ``1/2/2026`` pass.

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_FILE_SCHEMES: Final = frozenset({"file", "unix", "local", "fd", "path"})
_KEY: Final = re.compile(r"(--?)?[A-Za-z0-9_.+\[\]-]+(:[A-Za-z0-9_.-]+)?=")
_LETTERS: Final = re.compile(r"-[A-Za-z0-9]+(?=/)")
_BEFORE_URL: Final = re.compile(r"(.*[=,\s])?[A-Za-z][A-Za-z0-9+.-]*", re.DOTALL)
_QUOTES: Final = "\"'`"
_HOME: Final = re.compile(r"~[A-Za-z0-9_.-]*(/|$)")


class NamedPath(msgspec.Struct, frozen=True):
    """``guess`` marks an unlikely reading: it counts only where its first name exists."""

    text: str
    guess: bool = False


class RemoteFile(msgspec.Struct, frozen=True):
    """A ``file:`` URL that names another machine."""

    text: str


Named = NamedPath | RemoteFile


def find_paths(word: str) -> tuple[Named, ...]:
    """Find all readings of a word, breadth first, so that a repeated piece is taken apart once."""
    named: dict[Named, None] = {}
    seen = {word}
    level = [word]
    for _ in range(MAX_ARGUMENT_NESTING):
        below: dict[str, None] = {}
        for piece in level:
            for reading in _readings(piece):
                if isinstance(reading, str):
                    below[reading] = None
                else:
                    named[reading] = None
        level = [piece for piece in below if piece and piece not in seen]
        seen.update(level)
    return tuple(named)


def _readings(word: str) -> Iterator[Named | str]:
    """Yield the paths that a word names, and the shorter words in it."""
    if not word:
        return
    if word[0] in _QUOTES:
        yield word.strip(_QUOTES)
    if found := _URL.fullmatch(word):
        scheme, slashes, rest = found.groups()
        if scheme.lower().rpartition("+")[2] in _FILE_SCHEMES:
            yield from _file_url(rest, authority=bool(slashes))
            return
        # A URL with a host names nothing on this machine; without one (unix:///run/x) the rest is a path.
        if slashes:
            yield NamedPath(word, guess=True)
            if rest.startswith("/"):
                yield NamedPath("/" + _decoded(rest).lstrip("/"))
            return
    if word.startswith("-"):
        yield from _option(word)
    else:
        yield NamedPath(word)
    if word.startswith("@"):
        yield word[1:]
    if found := _KEY.match(word):
        yield word[found.end() :]
    for pieces in (_colon_pieces(word), word.split(",")):
        if len(pieces) > 1:
            yield from pieces


def _colon_pieces(word: str) -> list[str]:
    """Split at colons, but not at those of URLs: /usr/bin://etc is a list, a=https://x is not."""
    pieces: list[str] = []
    for piece in word.split(":"):
        if pieces and piece.startswith("//") and _BEFORE_URL.fullmatch(pieces[-1]):
            pieces[-1] += ":" + piece
        else:
            pieces.append(piece)
    return pieces


def _option(word: str) -> Iterator[Named | str]:
    if word.startswith("--"):
        # Some programs take a path glued to a long option.
        if "/" in word and "=" not in word:
            yield NamedPath(word[2:])
        return
    # -C/etc, -C../x, -C~/x, -f@list: the value starts right after the letter.
    if word[2:3] != "-":
        yield word[2:]
    if found := _LETTERS.match(word):
        yield NamedPath(word[found.end() :], guess=len(found.group()) > len("-x"))
    letters = word[1 : MAX_CLUSTERED_LETTERS + 1]
    for index, letter in enumerate(letters[1:], start=3):
        if not letter.isalnum():
            rest = word[index - 1 :]
            if rest.startswith(("..", "~")):
                yield NamedPath(rest)
            break
        # -xzfNAME: any of these may be NAME, and NAME may be a link that leads out.
        yield NamedPath(word[index - 1 :])


def _file_url(rest: str, *, authority: bool) -> Iterator[Named]:
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    if authority:
        host, slash, tail = path.replace("\\", "/").partition("/")
        if _decoded(host).lower() not in ("", "localhost", "127.0.0.1", "::1", "[::1]", "."):
            yield RemoteFile(host)
        path = slash + tail
    # With and without decoding: programs differ, and a doubly encoded name is decoded once by each of them.
    for reading in (path, _decoded(path), _decoded(_decoded(path))):
        yield NamedPath(reading or "/")


def _decoded(text: str) -> str:
    return (
        unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape").replace("\0", "")
    )


def names_home(path: str) -> bool:
    """Programs that expand ``~`` themselves would leave the workspace; a file called ``~`` is nothing one needs."""
    return _HOME.match(path) is not None and ("/" in path or path == "~")


DEVICES: Final = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"}
)
# In their arguments host:path is a path on another machine.
_TAKES_REMOTE_PATHS: Final = frozenset({"scp", "rsync", "git", "ssh"})
_REMOTE: Final = re.compile(r"([A-Za-z0-9_.-]+@)?(?!-)([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?!//).*", re.DOTALL)


def resolve_cwd(cwd: str | None, workspace_root: str, resolver: PathLook) -> str:
    """Return the absolute working directory: the workspace itself, or a directory in it."""
    root = walk(workspace_root, resolver)
    wanted = workspace_root if cwd is None else join(workspace_root, cwd)
    walked = root if cwd is None else walk(wanted, resolver)
    if walked.kind is Kind.MAGIC or not is_beneath(walked.real, root.real):
        raise WorkspaceScopeDenied(
            f"the working directory {excerpt(wanted)} leads out of the workspace",
            argument="cwd",
            path=excerpt(walked.real),
        )
    if walked.kind is not Kind.DIRECTORY:
        raise InvalidCommand(f"the working directory {excerpt(wanted)} is no directory", argument="cwd")
    return walked.real


def validate_argument_workspace_scope(
    command: ProcessCommand,
    workspace_root: str,
    cwd: str,
    resolver: PathLook,
    readable_roots: tuple[str, ...] = SYSTEM_ROOTS,
) -> None:
    """Raise ``WorkspaceScopeDenied`` naming the first argument that leads out of the workspace, and its target."""
    if not command.args:
        return
    scope = _Scope(walk(workspace_root, resolver).real, cwd, resolver, readable_roots)
    text = find_text(command.command, command.args)
    texts = text.texts | find_code(command.command, command.args)
    for position, path in text.files:
        scope.refuse(position, path, NamedPath(path))
    remote = normalize_program(base_name(command.command)) in _TAKES_REMOTE_PATHS
    for position, word in enumerate(command.args):
        # Programs read @NAME from a file even where they take text.
        if position in texts and not word.startswith("@"):
            continue
        if remote and _REMOTE.fullmatch(word):
            scope.refuse(position, word, NamedPath(word))
            continue
        for named in find_paths(word):
            if isinstance(named, RemoteFile):
                raise _denied(position, word, f"names a file of the machine {excerpt(named.text)}", named.text)
            scope.refuse(position, word, named)


class _Scope:
    def __init__(self, root: str, cwd: str, resolver: PathLook, readable_roots: tuple[str, ...]) -> None:
        self.root = root
        self.cwd = cwd
        self.resolver = resolver
        self.readable_roots = readable_roots

    def refuse(self, position: int, word: str, named: NamedPath) -> None:
        path = named.text
        if path in DEVICES:
            return
        if names_home(path):
            raise _denied(position, word, "names a home directory", path)
        walked = walk(join(self.cwd, path), self.resolver, ends=DEVICES)
        if walked.kind is Kind.MAGIC:
            raise _denied(
                position, word, f"leads to {excerpt(walked.real)}, which is another file for every process", walked.real
            )
        if walked.kind in (Kind.LOOP, Kind.UNREADABLE):
            raise _denied(position, word, f"cannot be followed beyond {excerpt(walked.real)}", walked.real)
        if is_beneath(walked.real, self.root) or walked.real in DEVICES:
            return
        if any(is_beneath(walked.real, root) for root in self.readable_roots):
            return
        if named.guess and self._is_missing(path):
            return
        raise _denied(position, word, f"leads to {excerpt(walked.real)}, outside the workspace", walked.real)

    def _is_missing(self, path: str) -> bool:
        """Whether the first name of a guess does not exist: without a directory /sys, -Iinclude/sys is not /sys."""
        first = path.lstrip("/").partition("/")[0]
        return self.resolver.look(join("/" if path.startswith("/") else self.cwd, first)).kind is Kind.MISSING


def _denied(position: int, word: str, what: str, path: str) -> WorkspaceScopeDenied:
    return WorkspaceScopeDenied(
        f"args[{position}] {excerpt(word)!r} {what}", argument=f"args[{position}]", path=excerpt(path)
    )


# Words of a command line that are text, not names: messages, patterns, expressions. Paths in them mean nothing.
#
# ``sed '/^#/d' f`` and ``grep -r /api/v1 .`` would otherwise seem to name files outside the workspace. Only programs
# that are known to take such text have entries, and only at the places where they take it.


_SYSTEM: Final = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin"})


class TextPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """``texts`` are argument positions whose whole word is text; ``files`` are names found inside such text."""

    texts: frozenset[int] = frozenset()
    files: tuple[tuple[int, str], ...] = ()


class _Program(msgspec.Struct, frozen=True, kw_only=True):
    """The places where one program takes text.

    ``before`` are options whose value, in the next word or after ``=``, is text; ``glued`` those whose value is the
    rest of the word. With ``first`` the first word that is not an option is text, unless one of the ``instead``
    letters or long options gives the text, or a file of it.
    """

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
        "-m -am -sm -asm --message --grep --author --format --pretty -S -G --trailer --date"
        " user.name user.email author.name author.email committer.name committer.email",
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


# Options whose next word is a program, for interpreters that policy allows. Only the kernel knows what it opens.
_CODE_OPTIONS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "fish"), frozenset({"-c", "-ec", "-lc", "-exc", "-xc"})),
    **dict.fromkeys(("python", "pypy"), frozenset({"-c"})),
    **dict.fromkeys(("node", "nodejs", "bun"), frozenset({"-e", "--eval", "-p", "--print", "-pe"})),
    **dict.fromkeys(("perl", "ruby"), frozenset({"-e", "-E", "-ne", "-pe", "-le", "-lne"})),
    "php": frozenset({"-r"}),
}


def find_code(command: str, args: tuple[str, ...]) -> frozenset[int]:
    """Find the arguments that are programs for the system's interpreters: in them a slash is seldom a path."""
    directory, _, name = command.rpartition("/")
    if directory not in _SYSTEM or (command.startswith("/") and not directory):
        return frozenset()
    options = _CODE_OPTIONS.get(name.rstrip("0123456789."), frozenset())
    first = next((position for position, word in enumerate(args) if word in options), None)
    if first is None or any(not word.startswith("-") for word in args[:first]):
        return frozenset()
    return frozenset({first + 1})


def find_text(command: str, args: tuple[str, ...]) -> TextPlaces:
    """Find the arguments that are text, for the system's own programs only.

    A program of the workspace may be called grep and read any file.
    """
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
    """Find the scripts, which are text, and the files that they read and write, which are names."""
    line = read_line(args)
    # A script that follows `--expression=` shares its word with nothing that names a file.
    position = min(line.positions, default=0)
    try:
        files = read_script(line.script).files if line.positions else ()
    except Malformed:
        return TextPlaces()
    return TextPlaces(texts=line.positions, files=tuple((position, name) for name in files))
