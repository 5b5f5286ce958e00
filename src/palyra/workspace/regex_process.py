"""Runs a regular expression in a child process, and ends that process when time is up or the call is cancelled."""

import contextlib
import json
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from palyra.workspace.errors import BadPattern, Cancelled, IoFailed, RegexUnavailable
from palyra.workspace.limits import POLL_SECONDS, REGEX_CPU_SECONDS, REGEX_MEMORY_BYTES
from palyra.workspace.match import Found, check_query

_CHILD = Path(__file__).with_name("regex_child.py").read_text(encoding="utf-8")
_MS = 1000


class TimeUp(Exception):
    """The search's own deadline passed. It ends a search early and is not an error that anyone sees."""


class RegexProcess:
    """A query like ``LiteralQuery``, answered by a child. Use it as a context manager: leaving it kills the child."""

    def __init__(self, query: str, *, case_sensitive: bool, deadline: float, cancelled: threading.Event) -> None:
        """``deadline`` is an instant of ``time.monotonic()``."""
        self._settings = {"pattern": check_query(query), "case_sensitive": case_sensitive}
        self._deadline = deadline
        self._cancelled = cancelled
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._child = self._start()
        try:
            verdict = self._ask(json.dumps(self._settings).encode())
        except BaseException:
            self.close()
            raise
        if verdict["error"] is not None:
            self.close()
            raise BadPattern(f"the regular expression is not usable: {verdict['error']}")
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD, str(REGEX_CPU_SECONDS), str(REGEX_MEMORY_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={},
            )
        except OSError as error:
            raise RegexUnavailable(f"no process for the regular expression: {error.strerror}") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def may_match(self, data: bytes) -> bool:
        return True

    def find(self, lines: Sequence[str], wanted: int, keep_going: Callable[[], None]) -> list[Found]:
        keep_going()
        body = struct.pack(">I", wanted) + "\n".join(lines).encode()
        return [Found(line, column) for line, column in self._ask(body)]

    def _ask(self, body: bytes) -> Any:
        """One question, one answer. The child reads a whole question before it works, so writing never waits on it."""
        if self._child is None or self._child.stdin is None or self._child.stdout is None:
            raise IoFailed("the regular expression's process is closed")
        try:
            remaining = memoryview(struct.pack(">I", len(body)) + body)
            while remaining:
                remaining = remaining[self._child.stdin.write(remaining) :]
            size = struct.unpack(">I", self._read(4))[0]
            return json.loads(self._read(size))
        except BrokenPipeError:
            raise self._died() from None

    def _read(self, size: int) -> bytes:
        if self._child is None or self._child.stdout is None:
            raise IoFailed("the regular expression's process is closed")
        stream = self._child.stdout
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        data = bytearray()
        while len(data) < size:
            if self._cancelled.is_set():
                raise Cancelled("the search was cancelled")
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeUp
            if not poll.poll(min(left, POLL_SECONDS) * _MS):
                continue
            part = stream.read(size - len(data))
            if not part:
                raise self._died()
            data += part
        return bytes(data)

    def _died(self) -> Exception:
        """A child that ended by itself ran into its processor or memory limit."""
        return BadPattern("the regular expression needs more memory or time than a search may use")
