"""Reads the files that an approval is bound to: the program of a call, and the workspace files that its words name.

A word is read in every way in which programs read words, and text such as that of ``bash -c`` piece by piece, with and
without its quotes. It is read in the working directory and in each directory that another word names: ``cd sub``. A
file that a program opens by itself is not found: a Makefile, an imported module. Nor is a name that a text computes.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from palyra.errors import LimitExceeded
from palyra.executors.process.executor import STARTING, compile_profile
from palyra.executors.wasm.spec import PLUGIN_RUN
from palyra.limits import MIB
from palyra.pipeline.domain.approval import ApprovedFileChanged, BoundFile, InspectedCall, SentFiles
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolSpec
from palyra.policy.request import Lru
from palyra.sandbox.domain.process_run import ProcessCommand, parse_command
from palyra.sandbox.guards.argument_paths import NamedPath, find_paths
from palyra.sandbox.guards.checks import build_guard_host
from palyra.sandbox.guards.executables import (
    ExecutableLookup,
    HostFiles,
    Kind,
    ResolvedExecutable,
    Walked,
    is_beneath,
    join,
    walk,
)
from palyra.sandbox.limits import SHEBANG_BYTES
from palyra.sandbox.settings import SandboxSettings
from palyra.workspace.root import RESOLVE_NO_SYMLINKS, descriptor_path, hold, openat2

# The bytes that are read for one call: about a second. A file beyond them is bound to its inode and times instead.
MAX_BOUND_BYTES: Final = 256 * MIB
# The files of one call that a person can still look through.
MAX_BOUND_FILES: Final = 256
# The readings of one call's words that are looked up: about a tenth of a second.
MAX_READINGS: Final = 16_384
# The names of the directories of one call that are listed: about a tenth of a second.
MAX_LISTED_NAMES: Final = 65_536
# The workspaces whose index of programs is kept, and the programs of the system whose digests are.
MAX_KEPT_LOOKUPS: Final = 16
MAX_KEPT_DIGESTS: Final = 256
# A text in a text in a text: ``bash -c "bash -c '...'"``.
MAX_QUOTED_TEXTS: Final = 3
# Spellings of the working directory in a shell's text.
_HERE: Final = re.compile(r"\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`|/proc/(?:self|thread-self)/cwd\b")
_BETWEEN_WORDS: Final = re.compile(r"[\s'\"`;|&()<>{}\[\]=:,!$\\]+")
# A word of a shell, with the quotes and backslashes that the shell removes.
_QUOTED_WORD: Final = re.compile(r"""(?:[^\s'"\\;|&()<>`]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")++""", re.DOTALL)
_QUOTES: Final = re.compile(r"""'([^']*+)'|"((?:[^"\\]|\\.)*+)"|\\(.)""", re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\$`\n])')
# The directory that is written as a variable, as in ``$DIR/build.sh`` and ``~+/build.sh``.
_VARIABLE_FOLDER: Final = re.compile(r"(?:\$\w+|\$\{[^}]{0,200}+\}|\$\([^)]{0,200}+\)|~[+-])/+")


class TooManyBoundFiles(LimitExceeded):
    code = "approval.too_many_files"
    hint = "name a folder instead of its files, or put the commands into a script of the workspace and run that"


class CallInspector:
    """Blocking. Several threads may use it."""

    def __init__(self, sandbox: SandboxSettings, protected_names: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._protected = protected_names
        self._lookups: Lru[object, ExecutableLookup] = Lru(MAX_KEPT_LOOKUPS)
        self._digests: Lru[tuple[int, ...], str] = Lru(MAX_KEPT_DIGESTS)

    def inspect(self, spec: ToolSpec, plan: ExecutionPlan) -> InspectedCall:
        return InspectedCall(files=self._list_files(plan), sends=self._measure(spec, plan) if plan.on_worker else None)

    def verify(self, plan: ExecutionPlan) -> None:
        """Raise if the files that the approval is bound to are others by now."""
        if not plan.bound:
            return
        now = tuple(file for file in self._list_files(plan) if plan.approved or file.program)
        if now != plan.bound:
            changed = next((one.path for one in (*plan.bound, *now) if one not in plan.bound or one not in now), "")
            raise ApprovedFileChanged(f"{changed} changed after {plan.tool} was approved", path=changed)

    def _measure(self, spec: ToolSpec, plan: ExecutionPlan) -> SentFiles:
        # Nothing else here needs the fleet, which takes long to import.
        from palyra.executors.worker.files import measure_scope, scope_of

        paths = spec.touches(plan.arguments).paths
        scope = scope_of(spec, paths, plan.workspace, read_only=bool(plan.obligations.read_only))
        return measure_scope(scope, self._protected)

    def _list_files(self, plan: ExecutionPlan) -> tuple[BoundFile, ...]:
        if plan.tool in STARTING:
            return self._list_files_of_command(plan, parse_command(dict(plan.arguments)))
        if plan.tool == PLUGIN_RUN and "path" in plan.arguments:
            path = plan.arguments["path"]
            reader = _FileReader(plan.workspace, self._digests)
            return (reader.read(path, plan.workspace, program=True) or BoundFile(path=path, real="", program=True),)
        return ()

    def _list_files_of_command(self, plan: ExecutionPlan, command: ProcessCommand) -> tuple[BoundFile, ...]:
        directory = join(plan.workspace, command.cwd or ".")
        reader = _FileReader(plan.workspace, self._digests)
        readings = tuple(_list_readings(command))
        program, first_line = self._find_program(plan, command, directory, reader)
        found = {(program.real, True): program}
        waiting: list[Iterable[str]] = [readings, *([_read_pieces(first_line)] if first_line else [])]
        words = _Words(directory)
        while waiting:
            for place, word in words.place(waiting.pop()):
                file = reader.read(word, place)
                words.add_directory(reader.directory)
                if file is None or (file.real, False) in found:
                    continue
                found[file.real, False] = file
                if len(found) > MAX_BOUND_FILES:
                    raise TooManyBoundFiles(f"this call names more than {MAX_BOUND_FILES} files")
                if reader.first_line:
                    waiting.append(_read_pieces(reader.first_line))
        return tuple(found.values())

    def _find_program(
        self, plan: ExecutionPlan, command: ProcessCommand, directory: str, reader: "_FileReader"
    ) -> tuple[BoundFile, str]:
        """Return the program, and the line that names the interpreter of a script."""
        name = command.command
        in_workspace = reader.read(name, directory, program=True) if "/" in name else None
        if plan.on_worker:
            # A program of the system is the one that the worker has.
            return in_workspace or BoundFile(path=name, real=name, program=True), reader.first_line
        found = self._lookup(plan).find(name, directory)
        if found is None or found.kind is not Kind.FILE:
            return BoundFile(path=name, real="" if found is None else _to_text(found.real), program=True), ""
        return reader.read_program(found), reader.first_line

    def _lookup(self, plan: ExecutionPlan) -> ExecutableLookup:
        profile = compile_profile(plan, self._sandbox, self._protected)
        key = (profile.workspace_root, profile.tool_roots, profile.env)
        kept = self._lookups.get(key)
        if kept is None:
            kept = build_guard_host(profile).executables
            self._lookups.put(key, kept)
        return kept


class _Words:
    """The words of one call, with the directories that they name: each word is read in each of these."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        # By its first name, so that a directory is read once and not for each word.
        self._words: dict[str, dict[str, None]] = {}
        self._directories: set[str] = set()
        self._holders: dict[str, list[str]] = {}
        # Those whose names are too many, or that cannot be listed: each word is looked up there.
        self._unlisted: list[str] = []
        self._names = 0
        self._found: list[tuple[str, str]] = []
        self._looked_at = 0

    def place(self, readings: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield each new word with the directory to read it in."""
        for word in readings:
            first = next((name for name in word.split("/") if name not in ("", ".")), "")
            same_start = self._words.setdefault(first, {})
            if word in same_start:
                continue
            same_start[word] = None
            self._found.append((self._directory, word))
            if not word.startswith("/"):
                self._found += [(place, word) for place in (*self._holders.get(first, ()), *self._unlisted)]
            while self._found:
                self._looked_at += 1
                if self._looked_at > MAX_READINGS:
                    raise TooManyBoundFiles(f"the words of this call can be read in more than {MAX_READINGS} ways")
                yield self._found.pop()

    def add_directory(self, directory: str) -> None:
        """Have the words read in this directory too, those before and those to come."""
        if not directory or directory in self._directories:
            return
        self._directories.add(directory)
        names = self._list(directory)
        if names is None:
            self._unlisted.append(directory)
        else:
            for name in names:
                self._holders.setdefault(name, []).append(directory)
        for first in self._words if names is None else names & self._words.keys():
            self._found += [(directory, word) for word in self._words[first] if not word.startswith("/")]

    def _list(self, directory: str) -> set[str] | None:
        """Return the names that a word in this directory can begin with; None if they are not available."""
        names = {".."}
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._names += 1
                    if self._names > MAX_LISTED_NAMES:
                        return None
                    names.add(entry.name)
        except OSError:
            # Who may search a directory and not list it still opens what it holds.
            return None
        return names


def _list_readings(command: ProcessCommand) -> Iterator[str]:
    yield from (reading for word in command.args for reading in _read_word(word))
    yield from (reading for _, value in command.env for reading in _read_word(value))
    if command.stdin:
        yield from _read_pieces(command.stdin.decode("utf-8", "surrogateescape"))


def _read_word(word: str) -> Iterator[str]:
    yield word
    yield from (named.text for named in find_paths(word) if isinstance(named, NamedPath))
    yield from _read_pieces(word)


def _read_pieces(text: str, depth: int = MAX_QUOTED_TEXTS) -> Iterator[str]:
    """Yield the words of a shell's text, with its quotes taken away and without regard to them."""
    text = _HERE.sub(".", text)
    # Each line by itself too: an apostrophe in a comment opens no quote.
    for part in dict.fromkeys((text, *text.splitlines())):
        for quoted in _QUOTED_WORD.findall(part):
            word = _QUOTES.sub(_without_quotes, quoted)
            if word != quoted and depth:
                yield word
                yield from _read_pieces(word, depth - 1)
            yield from _VARIABLE_FOLDER.split(word)[1:]
    for piece in filter(None, dict.fromkeys(_BETWEEN_WORDS.split(text))):
        yield piece
        yield from (named.text for named in find_paths(piece) if isinstance(named, NamedPath))


def _without_quotes(found: "re.Match[str]") -> str:
    single, double, char = found.groups()
    if double is not None:
        return _ESCAPED.sub(lambda each: each[1].strip("\n"), double)
    return (single if single is not None else char).replace("\n", "" if single is None else "\n")


class _FileReader:
    """Reads the files of one call.

    ``first_line`` is the text after ``#!`` of the file that it read last. ``directory`` is the place of the workspace's
    directory that the last word names, or empty.
    """

    def __init__(self, root: str, digests: Lru[tuple[int, ...], str]) -> None:
        self._files = HostFiles()
        self._root = walk(root, self._files).real
        self._digests = digests
        self._left = MAX_BOUND_BYTES
        self.first_line = ""
        self.directory = ""

    def read(self, word: str, directory: str, *, program: bool = False) -> BoundFile | None:
        """Read the workspace file that a word names; return None if it names none."""
        self.first_line = self.directory = ""
        if not word or "\0" in word:
            return None
        walked = walk(join(directory, word), self._files)
        if walked.kind is Kind.DIRECTORY and is_beneath(walked.real, self._root):
            self.directory = walked.real
        if walked.kind is not Kind.FILE or not is_beneath(walked.real, self._root):
            return self._find_leading_out(word, walked)
        return self._read_inside(word, walked.real, program=program)

    def read_program(self, found: ResolvedExecutable) -> BoundFile:
        """Read the program that the guards resolved."""
        self.first_line = ""
        if found.in_workspace:
            file = self._read_inside(found.typed, found.real, program=True)
            return file or BoundFile(path=found.typed, real="", program=True)
        try:
            with hold(os.open(found.real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as handle:
                file = self._bind(found.typed, found.real, handle, program=True, kept=True)
        except OSError:
            file = None
        return file or BoundFile(path=_to_text(found.typed), real=_to_text(found.real), program=True)

    def _find_leading_out(self, word: str, walked: Walked) -> BoundFile | None:
        """Bind a link of the workspace to the place outside that it leads to: an agent could turn it."""
        if walked.kind is not Kind.FILE or not any(is_beneath(link, self._root) for link in walked.passed):
            return None
        return BoundFile(path=_to_text(word), real=_to_text(walked.real))

    def _read_inside(self, word: str, real: str, *, program: bool) -> BoundFile | None:
        relative = os.path.relpath(real, self._root)
        try:
            with (
                hold(os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root,
                hold(openat2(root, os.fsencode(relative), os.O_PATH, resolve=RESOLVE_NO_SYMLINKS)) as handle,
            ):
                return self._bind(word, relative, handle, program=program)
        except OSError:
            # It was moved or turned into a link in this moment: the look at the start finds another one.
            return BoundFile(path=_to_text(word), real=_to_text(relative), program=program)

    def _bind(self, word: str, real: str, handle: int, *, program: bool, kept: bool = False) -> BoundFile | None:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._digests.get(identity) if kept else None
        digest = known or self._read_digest(handle, status.st_size)
        if kept and digest:
            self._digests.put(identity, digest)
        stamp = "" if digest else hashlib.sha256(repr(identity).encode()).hexdigest()
        return BoundFile(
            path=_to_text(word),
            real=_to_text(real),
            bytes=status.st_size,
            sha256=digest,
            stamp=stamp,
            program=program,
        )

    def _read_digest(self, handle: int, size: int) -> str:
        """Return the digest, or an empty text for a file that may not be read or is too large."""
        if size > self._left:
            return ""
        self._left -= size
        try:
            with hold(os.open(descriptor_path(handle), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
                self.first_line = _first_line(os.pread(descriptor, SHEBANG_BYTES, 0))
                summed, offset = hashlib.sha256(), 0
                while offset <= size and (part := os.pread(descriptor, MIB, offset)):
                    summed.update(part)
                    offset += len(part)
                return summed.hexdigest()
        except OSError:
            return ""


def _first_line(head: bytes) -> str:
    return head[2:].split(b"\n", 1)[0].decode("utf-8", "surrogateescape") if head.startswith(b"#!") else ""


def _to_text(path: str) -> str:
    """Spell bytes that are not text: the record is text."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
