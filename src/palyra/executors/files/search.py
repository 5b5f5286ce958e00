"""fs.search: lines that hold a text or match a regular expression.

A literal is matched here, in a time that grows with the length of the line. A regular expression is matched by Python's
``re`` in a child process (``regex_child.py``), which the deadline or a cancellation kills. The matches found by then
are returned, and ``stopped_by`` names the limit. Long lines are cut, files and bytes are bounded, links never followed.
"""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from palyra.errors import PalyraError
from palyra.executors.files.query import Found, LiteralQuery, RegexProcess, TimeUp, cut_excerpt, is_binary, split_lines
from palyra.workspace import limits
from palyra.workspace.errors import BadPattern, Cancelled
from palyra.workspace.names import Glob, WorkspacePath, render_name
from palyra.workspace.root import (
    OPEN_DIRECTORY,
    Entry,
    Shortfall,
    Workspace,
    hold,
    open_regular,
    read_up_to,
    refuse_cancelled,
    refuse_special,
    walk,
)

# Git's stores hold compressed copies of the files that are searched anyway.
_NOT_ENTERED = ((".git", "objects"), (".git", "lfs"))


class Query(Protocol):
    def may_match(self, data: bytes) -> bool: ...

    def find(self, lines: Sequence[str], wanted: int, keep_going: Callable[[], None]) -> list[Found]: ...


class _Stop(Exception):
    """Ends the walk at a limit."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Search:
    def __init__(self, arguments: dict[str, Any], cancelled: threading.Event, deadline: float) -> None:
        self.wanted: int = min(arguments.get("max_matches", limits.DEFAULT_MATCHES), limits.MAX_MATCHES)
        self.glob = Glob(arguments["glob"]) if "glob" in arguments else None
        self.cancelled = cancelled
        self.deadline = deadline
        self.matches: list[dict[str, Any]] = []
        self.searched = self.skipped = self.bytes = self.text = 0

    def keep_going(self) -> None:
        refuse_cancelled(self.cancelled)
        if time.monotonic() >= self.deadline:
            raise TimeUp

    def search_file(self, query: Query, names: Sequence[str], descriptor: int) -> None:
        if self.glob is not None and not self.glob.matches(names):
            return
        if self.searched + self.skipped >= limits.MAX_SEARCH_FILES:
            raise _Stop("files")
        size = limits.MAX_SEARCH_FILE_BYTES
        path = render_name("/".join(names))
        data = read_up_to(descriptor, 0, limits.BINARY_PROBE_BYTES, shown=path, cancelled=self.cancelled)
        if os.fstat(descriptor).st_size > size or is_binary(data):
            self.skipped += 1
            return
        if len(data) == limits.BINARY_PROBE_BYTES:
            data += read_up_to(descriptor, len(data), size - len(data), shown=path, cancelled=self.cancelled)
        self.bytes += len(data)
        if self.bytes > limits.MAX_SEARCH_TOTAL_BYTES:
            raise _Stop("bytes")
        self.searched += 1
        if query.may_match(data):
            lines = split_lines(data)
            for found in query.find(lines, self.wanted - len(self.matches) + 1, self.keep_going):
                self.add(path, lines[found.line], found)

    def add(self, path: str, line: str, found: Found) -> None:
        text = cut_excerpt(line, found.column)
        self.text += len(path) + len(text)
        if len(self.matches) == self.wanted or self.text > limits.MAX_MATCH_TEXT_TOTAL_CHARS:
            raise _Stop("matches")
        self.matches.append({"path": path, "line": found.line + 1, "column": found.column + 1, "text": text})


def search(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Return the first match of each line, in the order of the paths."""
    path = WorkspacePath.parse(arguments.get("path", "."))
    state = _Search(arguments, cancelled, time.monotonic() + limits.SEARCH_SECONDS)
    shortfall = Shortfall()
    stopped_by: str | None = None
    try:
        with _query(arguments, state) as query:
            _run(query, state, workspace, path, shortfall)
    except TimeUp:
        stopped_by = "time"
    except _Stop as stop:
        stopped_by = stop.reason
    return {
        "path": path.render(),
        "matches": state.matches,
        "files_searched": state.searched,
        "files_skipped": state.skipped,
        "truncated": stopped_by is not None or shortfall.incomplete,
        "stopped_by": stopped_by,
    }


@contextlib.contextmanager
def _query(arguments: dict[str, Any], state: _Search) -> Iterator[Query]:
    text, case_sensitive = arguments["query"], arguments.get("case_sensitive", True)
    if not arguments.get("regex", False):
        yield LiteralQuery(text, case_sensitive=case_sensitive)
        return
    with RegexProcess(
        text, case_sensitive=case_sensitive, deadline=state.deadline, cancelled=state.cancelled
    ) as process:
        yield process


def _run(query: Query, state: _Search, workspace: Workspace, path: WorkspacePath, shortfall: Shortfall) -> None:
    with hold(workspace.open(path, os.O_PATH)) as handle:
        status = os.fstat(handle)
    if not stat.S_ISDIR(status.st_mode):
        refuse_special(status, path.render())
        with workspace.open_file(path) as descriptor:
            state.search_file(query, path.names, descriptor)
        return
    with hold(workspace.open(path, OPEN_DIRECTORY)) as directory:
        entries = walk(
            directory,
            recursive=True,
            shortfall=shortfall,
            keep_going=state.keep_going,
            enter=lambda names: tuple(names[-2:]) not in _NOT_ENTERED,
            names=path.names,
        )
        with contextlib.closing(entries):
            _search_entries(query, state, entries)


def _search_entries(query: Query, state: _Search, entries: Iterable[Entry]) -> None:
    for entry in entries:
        if not stat.S_ISREG(entry.status.st_mode):
            continue
        name = render_name(entry.names[-1])
        try:
            with open_regular(entry.directory, entry.encoded, shown=name, follow=False) as descriptor:
                state.search_file(query, entry.names, descriptor)
        except (BadPattern, Cancelled):
            raise
        except PalyraError:
            # It is not readable, or no longer what it was when its directory was read.
            state.skipped += 1
