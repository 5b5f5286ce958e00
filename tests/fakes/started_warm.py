"""The ``palyra`` program without the time that Python needs to import it: a process that has imported it is copied.

Three quarters of the processor time of a start are imports, the same ones each time, and tests start hundreds of
programs. One process for each process of tests imports them once, does nothing else, and for each start makes a copy
of itself (``started_warm_main``). The copy gets the arguments, the environment, the folder and the descriptors of a
program that is started, becomes a child of the test, and runs the program from its first line on.

What such a process does not show is what is decided before the first line: its command line and first environment in
/proc, and that each command imports what it needs. Attacks (tests/security) start everything as people do, so do the
tests of programs that are started by hand or in another network, and so does every test with ``PALYRA_TESTS_COLD=1``.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PALYRA = (sys.executable, "-m", "palyra.cli.main")
COLD = "PALYRA_TESTS_COLD"
MAIN = Path(__file__).with_name("started_warm_main.py")
_REQUEST_BYTES = 1 << 18


class _Source:
    """The process that is copied."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _REQUEST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(MAIN), str(theirs.fileno())], pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL
            )
        atexit.register(self._end)

    def copy(self, request: dict[str, Any], descriptors: list[int]) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError(f"the process that is copied ended with {self._process.wait()}")
        return int(answer)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


_sources: dict[int, _Source] = {}
_one_at_a_time = threading.Lock()


def _source() -> _Source:
    # A test may be a copy of the process of tests itself.
    if os.getpid() not in _sources:
        _sources[os.getpid()] = _Source()
    return _sources[os.getpid()]


_COPIED_WITH = frozenset(("cwd", "stdin", "stdout", "stderr", "text"))


class _Copied(subprocess.Popen[Any]):
    """``subprocess.Popen`` whose process is a copy; its arguments are those of ``palyra``."""

    def _execute_child(self, args: Any, *others: Any) -> None:  # type: ignore[override]
        cwd, env = others[4], others[5]
        into_stdin, _, _, out_of_stdout, _, out_of_stderr = others[9:15]
        request = {
            "arguments": [os.fsdecode(word) for word in args],
            "cwd": os.fspath(cwd or os.getcwd()),
            "environment": dict(env),
        }
        with _one_at_a_time:
            given = [end if end != -1 else own for own, end in enumerate((into_stdin, out_of_stdout, out_of_stderr))]
            self.pid = _source().copy(request, given)
        self._child_created = True
        self._close_pipe_fds(*others[9:15])  # type: ignore[attr-defined]


class Warmth:
    """Whether the test that runs may start programs as copies; ``conftest`` says so before each."""

    allowed = False


def begin_test(file: str) -> None:
    Warmth.allowed = not file.startswith("tests/security/") and os.environ.get(COLD) != "1"


def start_palyra(words: Sequence[str | bytes], *, env: Mapping[str, str], **options: Any) -> "subprocess.Popen[Any]":
    """``PALYRA`` with arguments, or a longer command line that ends in one. That one, and what is to have more than a
    folder and streams, is started as it stands."""
    if Warmth.allowed and tuple(words[: len(PALYRA)]) == PALYRA and options.keys() <= _COPIED_WITH:
        return _Copied(words[len(PALYRA) :], env=env, **options)
    return subprocess.Popen(words, env=env, **options)


def run_palyra(
    words: Sequence[str | bytes], *, given: Any, timeout: float, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """As ``subprocess.run`` does it, with what the program printed."""
    pipe = subprocess.PIPE
    with start_palyra(words, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
