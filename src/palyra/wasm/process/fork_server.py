"""The daemon's side of the process that workers are forked from. The daemon itself never forks."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from palyra.errors import Unavailable

T = TypeVar("T")


async def carry_out(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Return what ``work`` returns, on a thread that runs to its end also if the caller is cancelled.

    A thread cannot be stopped: what it uses must stay until it is done. A cancelled caller gets its cancellation when
    the work is done and undone again.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise


_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[3])
# Appended, so that nothing beside Palyra can take the place of a standard module.
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from palyra.wasm.process.fork_server_main import main; main(sys.argv[1:])"
)
WORKER, COMPILER = b"W", b"C"
_MADE: Final = b"M"
# Loading wasmtime takes a fifth of a second, on a machine under load ten times that.
_MAKE_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 16


class WorkersUnavailable(Unavailable):
    code = "wasm.workers_unavailable"
    hint = "worker processes cannot be started; the daemon's log and the limits of its user say why"


class _Gone(Exception):
    """The process that makes workers ended before it made this one."""


class Process:
    """A worker process, named by a descriptor that never means another one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def kill(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class WorkerSource:
    def __init__(self, python: str = sys.executable, *, errors: int = subprocess.DEVNULL) -> None:
        """``errors`` is where the process and its workers write errors.

        The default is nowhere, because a guest that broke out could write there too.
        """
        self._python = python
        self._errors = errors
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # Processes that ended by themselves and are still to be collected.
        self._ended: list[subprocess.Popen[bytes]] = []
        self._waiting: deque[asyncio.Future[Process]] = deque()
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def make(self, kind: bytes) -> tuple[socket.socket, Process]:
        """Make a process, and return it with the daemon's end of its socket.

        If the fork server ends at this moment, another one makes the process.
        """
        for _ in range(2):
            with contextlib.suppress(_Gone):
                return await self._make_once(kind)
        raise WorkersUnavailable("the process for workers ended")

    async def _make_once(self, kind: bytes) -> tuple[socket.socket, Process]:
        control = await self._ensure_started()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        answer: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        try:
            ours.setblocking(False)
            with theirs:
                socket.send_fds(control, [kind], [theirs.fileno()])
            self._waiting.append(answer)
            async with asyncio.timeout(_MAKE_SECONDS):
                return ours, await answer
        except (BrokenPipeError, ConnectionResetError) as problem:
            ours.close()
            if control is self._control:
                self._lost()
            raise _Gone from problem
        except (OSError, TimeoutError) as problem:
            ours.close()
            raise WorkersUnavailable("a worker process could not be started") from problem
        except BaseException:
            ours.close()
            # The answer may have come in the moment of the cancellation.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().kill()
                answer.result().close()
            raise

    async def _ensure_started(self) -> socket.socket:
        async with self._starting:
            if self._closed:
                raise WorkersUnavailable("the runtime was closed")
            if self._control is None:
                await self._collect()
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                try:
                    self._process = await carry_out(lambda: self._start(theirs.fileno()), self._ended.append)
                except OSError as problem:
                    ours.close()
                    raise WorkersUnavailable(f"the process for workers did not start: {problem.strerror}") from problem
                except BaseException:
                    # Without its socket the process ends.
                    ours.close()
                    raise
                finally:
                    theirs.close()
                ours.setblocking(False)
                self._control = ours
                asyncio.get_running_loop().add_reader(ours.fileno(), self._on_message)
            return self._control

    def _start(self, control: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._python, "-I", "-c", _START, _PACKAGE_ROOT, str(control)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(control,),
            env={},
            start_new_session=True,
        )

    def _on_message(self) -> None:
        if self._control is None:
            return
        try:
            answer, descriptors, _, _ = socket.recv_fds(self._control, _ANSWER_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            answer, descriptors = b"", []
        if not answer:
            self._lost()
            return
        process = Process(descriptors[0]) if descriptors else None
        waiting = self._waiting.popleft() if self._waiting else None
        if waiting is None or waiting.done() or process is None or answer != _MADE:
            if process is not None:
                process.kill()
                process.close()
            if waiting is not None and not waiting.done():
                waiting.set_exception(WorkersUnavailable("a worker process could not be started"))
            return
        waiting.set_result(process)

    def _lost(self) -> None:
        ended = self._forget()
        if ended is not None:
            self._ended.append(ended)

    def _forget(self) -> "subprocess.Popen[bytes] | None":
        """Forget the fork server. Without its socket it ends, and every worker with it."""
        process, self._process = self._process, None
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(_Gone())
        return process

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            self._lost()
            await self._collect()

    async def _collect(self) -> None:
        while self._ended:
            await asyncio.to_thread(_wait, self._ended.pop())


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
