"""The tools ``process.run``, ``process.start``, ``process.logs`` and ``process.stop`` for the broker.

A handle belongs to the run that started the process: another run's handle looks like a missing one, and no process id
is ever taken from outside.
"""

import asyncio
import base64
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from palyra.errors import InvalidInput, LimitExceeded, PalyraError
from palyra.sandbox.appearing import ProtectedAppeared, ProtectedUnseen
from palyra.sandbox.capture import Sink, StreamName
from palyra.sandbox.command import ProcessCommand, parse_command
from palyra.sandbox.doorway import NetworkDoor
from palyra.sandbox.guard_limits import DEFAULT_LOG_BYTES
from palyra.sandbox.launch import Exit
from palyra.sandbox.outcome import ProcessOutcome, ProcessTimedOut, QuotaExceeded
from palyra.sandbox.process_runner import ProcessRunner
from palyra.sandbox.profile import SandboxProfile
from palyra.sandbox.running import Running, outcome_of

MAX_BACKGROUND_PER_RUN: Final = 16
# Ended processes whose output can still be read, for each run.
MAX_ENDED_PER_RUN: Final = 32


class UnknownHandle(InvalidInput):
    code = "process.unknown_handle"
    hint = "use the handle that process.start returned, in the same run"
    http_status = 404


class TooManyBackground(LimitExceeded):
    code = "process.too_many_background"
    hint = "stop one with process.stop first"


class Work(Protocol):
    """The part of a call that the process tools need."""

    @property
    def run_id(self) -> str: ...

    @property
    def tool(self) -> str: ...

    @property
    def arguments(self) -> Mapping[str, Any]: ...


class Done(msgspec.Struct, frozen=True, kw_only=True):
    result: Any
    receipt: tuple[dict[str, Any], ...] = ()
    error: PalyraError | None = None


class _Background:
    """A process that goes on after its call: one task owns it from start to end."""

    def __init__(self, run_id: str) -> None:
        self.handle = secrets.token_urlsafe(16)
        self.run_id = run_id
        self.running: Running | None = None
        self.started: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[ProcessOutcome] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class ProcessTools:
    def __init__(self, runner: ProcessRunner) -> None:
        self._runner = runner
        self._background: dict[str, _Background] = {}
        # Live output of the foreground call, for a person at a terminal.
        self.sink: Sink | None = None
        # And its live input: the reading end of a pipe.
        self.live_input: int | None = None

    async def perform(self, work: Work, profile: SandboxProfile, door: NetworkDoor | None = None) -> Done:
        """``door`` serves the hosts that the profile allows, for this one call."""
        match work.tool:
            case "process.logs":
                return Done(result=self._logs(work))
            case "process.stop":
                return await self._stop(work)
        command = parse_command(dict(work.arguments))
        if work.tool == "process.start" or command.background:
            return await self._start(work, profile, command, door)
        if self.live_input is not None:
            command = msgspec.structs.replace(command, live_input=self.live_input)
        return await self._run(profile, command, door)

    async def close(self) -> None:
        """Ends every background process."""
        tasks = [each.task for each in self._background.values() if each.task is not None]
        for each in self._background.values():
            each.stop.set()
        if tasks:
            await asyncio.wait(tasks)
        self._background.clear()

    async def _run(self, profile: SandboxProfile, command: ProcessCommand, door: NetworkDoor | None) -> Done:
        try:
            outcome = await self._runner.run_constrained_process(profile, command, sink=self.sink, door=door)
        except (QuotaExceeded, ProcessTimedOut, ProtectedAppeared, ProtectedUnseen) as error:
            if error.outcome is None:
                raise
            return Done(result=shown(error.outcome), receipt=_receipt(error.outcome), error=error)
        return Done(result=shown(outcome), receipt=_receipt(outcome))

    async def _start(
        self, work: Work, profile: SandboxProfile, command: ProcessCommand, door: NetworkDoor | None
    ) -> Done:
        mine = [each for each in self._background.values() if each.run_id == work.run_id]
        if sum(not each.ended.done() for each in mine) >= MAX_BACKGROUND_PER_RUN:
            raise TooManyBackground(f"this run already has {MAX_BACKGROUND_PER_RUN} processes in the background")
        for oldest in [each for each in mine if each.ended.done()][:-MAX_ENDED_PER_RUN]:
            del self._background[oldest.handle]
        each = _Background(work.run_id)
        each.task = asyncio.create_task(self._live(each, profile, command, door), name=f"background {each.handle}")
        try:
            running = await asyncio.shield(each.started)
        except asyncio.CancelledError:
            each.stop.set()
            await asyncio.wait([each.task])
            raise
        self._background[each.handle] = each
        started = {"handle": each.handle, "tier": profile.tier.value, "backend": running.backend}
        if work.tool == "process.start":
            started["state"] = _state(each)
        return Done(result=started, receipt=tuple(running.receipt.as_dicts()))

    async def _live(
        self, each: _Background, profile: SandboxProfile, command: ProcessCommand, door: NetworkDoor | None
    ) -> None:
        timeout_ms = min(command.timeout_ms or profile.limits.timeout_ms, profile.limits.timeout_ms)
        try:
            async with self._runner.started(profile, command, door=door) as running:
                each.running = running
                each.started.set_result(running)
                ended = await self._until_stopped(each, running, timeout_ms / 1000)
            each.ended.set_result(outcome_of(profile, running, ended))
        except Exception as error:
            # Whatever it was: somebody may be waiting for the one or the other.
            for future in (each.started, each.ended):
                if not future.done():
                    future.set_exception(error)
                    future.exception()

    async def _until_stopped(self, each: _Background, running: Running, seconds: float) -> Exit:
        async with _cancelled_at_the_end(each.stop.wait()) as stopped:
            ending = asyncio.ensure_future(running.ended(seconds))
            await asyncio.wait({stopped, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                await running.kill("process.stop")
            return await ending

    def _logs(self, work: Work) -> dict[str, Any]:
        each = self._mine(work)
        name = StreamName(work.arguments.get("stream", "stdout"))
        offset = int(work.arguments.get("offset", 0))
        limit = int(work.arguments.get("limit", DEFAULT_LOG_BYTES))
        assert each.running is not None
        whole = each.running.capture.kept(name)
        part = whole[offset : offset + limit]
        if not each.ended.done() or offset + limit < len(whole):
            # The next look starts with the character that this one would cut.
            part = _whole_characters(part) or part
        content, encoding = _text(part)
        looked: dict[str, Any] = {
            "handle": each.handle,
            "state": _state(each),
            "stream": name.value,
            "content": content,
            "encoding": encoding,
            "offset": min(offset, len(whole)),
            "next_offset": min(offset, len(whole)) + len(part),
            "truncated": each.running.capture.truncated(name),
        }
        if each.ended.done() and each.ended.exception() is None:
            looked |= {"exit_code": each.ended.result().exit_code, "signal": each.ended.result().signal}
        return looked

    async def _stop(self, work: Work) -> Done:
        each = self._mine(work)
        each.stop.set()
        outcome = await asyncio.shield(each.ended)
        return Done(result={"handle": each.handle, "state": _state(each), **shown(outcome)}, receipt=_receipt(outcome))

    def _mine(self, work: Work) -> _Background:
        each = self._background.get(str(work.arguments["handle"]))
        if each is None or each.run_id != work.run_id:
            raise UnknownHandle("there is no such process in this run")
        return each


@contextlib.asynccontextmanager
async def _cancelled_at_the_end(work: Any) -> AsyncIterator[asyncio.Future[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()


def _state(each: _Background) -> str:
    if not each.ended.done():
        return "running"
    if each.ended.exception() is not None or each.ended.result().signal is not None:
        return "killed"
    return "exited"


def shown(outcome: ProcessOutcome) -> dict[str, Any]:
    stdout, stdout_encoding = _text(_uncut(outcome.stdout, outcome.stdout_truncated))
    stderr, stderr_encoding = _text(_uncut(outcome.stderr, outcome.stderr_truncated))
    return {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stdout": stdout,
        "stdout_encoding": stdout_encoding,
        "stdout_truncated": outcome.stdout_truncated,
        "stderr": stderr,
        "stderr_encoding": stderr_encoding,
        "stderr_truncated": outcome.stderr_truncated,
        "duration_ms": outcome.duration_ms,
        "killed_by": outcome.killed_by,
        "tier": outcome.tier.value,
        "backend": outcome.backend,
    }


def _text(content: bytes) -> tuple[str, str]:
    """As text where it is text and JSON does not swell it: six characters for each control byte would not fit."""
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode("utf-8")
        if len(msgspec.json.encode(text)) <= 2 * len(content) + len('""'):
            return text, "utf-8"
    return base64.b64encode(content).decode(), "base64"


def _uncut(content: bytes, truncated: bool) -> bytes:
    """A quota may cut the last character in two: that alone does not make text binary."""
    return _whole_characters(content) if truncated else content


def _whole_characters(content: bytes) -> bytes:
    """Without the first bytes of a character whose rest is missing at the end. Other bytes stay as they are."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return content[: error.start]
    return content


def _receipt(outcome: ProcessOutcome) -> tuple[dict[str, Any], ...]:
    return tuple(outcome.receipt.as_dicts())
