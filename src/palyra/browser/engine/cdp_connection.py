"""One connection to Chromium over its two pipes, on one event loop: commands with replies, and events in order."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from palyra.browser.domain import limits
from palyra.browser.domain.cdp_messages import CdpBroken, CdpEvent, FrameReader, Reply, decode, encode, refusal
from palyra.errors import LimitExceeded, PalyraError, Unavailable

Handler = Callable[[CdpEvent], None]

log = logging.getLogger(__name__)

_DETACHED: Final = "Target.detachedFromTarget"


class BrowserEnded(Unavailable):
    code = "browser.ended"
    hint = "the session is over; open another"


class TargetGone(Unavailable):
    code = "browser.target_gone"
    hint = "the tab or frame was closed; list the tabs"


class CommandTimeout(LimitExceeded):
    code = "browser.command_timeout"
    hint = "the page may be busy; wait, or ask for less at once"


class TooManyCommands(LimitExceeded):
    code = "browser.too_many_commands"
    hint = f"at most {limits.MAX_WAITING_COMMANDS} commands wait for a reply at once"


class _Waiting(NamedTuple):
    method: str
    session_id: str
    reply: "asyncio.Future[dict[str, Any]]"
    late: asyncio.TimerHandle


class CdpPipe:
    """Owns both descriptors. When ``closed`` is set, ``failure`` has the reason."""

    def __init__(self, read_from: int, write_to: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_from = read_from
        self._write_to = write_to
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._waits_to_write = False
        self._next = 1
        self._waiting: dict[int, _Waiting] = {}
        self._handlers: dict[str, list[Handler]] = {}
        self.closed = asyncio.Event()
        self.failure: PalyraError | None = None
        for descriptor in (read_from, write_to):
            os.set_blocking(descriptor, False)
            with suppress(OSError):  # an ordinary user's pipes may have no more room: they work at their own size
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, limits.PIPE_BYTES)
        self._loop.add_reader(read_from, self._readable)

    async def send(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float = limits.COMMAND_SECONDS,  # noqa: ASYNC109  one deadline for sending and answering
    ) -> dict[str, Any]:
        return await self.ask(method, params, session_id, timeout)

    def ask(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float = limits.COMMAND_SECONDS,
    ) -> "asyncio.Future[dict[str, Any]]":
        if len(self._waiting) >= limits.MAX_WAITING_COMMANDS:
            self._drop_cancelled()
            if len(self._waiting) >= limits.MAX_WAITING_COMMANDS:
                raise TooManyCommands(f"{method}: {len(self._waiting)} commands wait already", method=method)
        number = self._send(method, params, session_id)
        reply: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        late = self._loop.call_later(timeout, self._late, number, timeout)
        self._waiting[number] = _Waiting(method, session_id or "", reply, late)
        return reply

    def _late(self, number: int, timeout: float) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.reply.done():
            text = f"{waiting.method} was not answered within {timeout:g} s"
            waiting.reply.set_exception(CommandTimeout(text, method=waiting.method))

    def _drop_cancelled(self) -> None:
        for number in [number for number, each in self._waiting.items() if each.reply.done()]:
            self._waiting.pop(number).late.cancel()

    def post(self, method: str, params: dict[str, Any], session_id: str | None = None) -> None:
        """Send a command without waiting for its answer. This is cheap, for events that come by the thousand."""
        self._send(method, params, session_id)

    def subscribe(self, session_id: str | None, handler: Handler) -> Callable[[], None]:
        key = session_id or ""
        self._handlers.setdefault(key, []).append(handler)

        def unsubscribe() -> None:
            handlers = self._handlers.get(key, [])
            with suppress(ValueError):
                handlers.remove(handler)
            if not handlers:
                self._handlers.pop(key, None)

        return unsubscribe

    def close(self, why: PalyraError | None = None) -> None:
        """Close both pipes, which ends Chromium too. Every waiting command fails with ``why``."""
        if self.failure is not None:
            return
        self.failure = why or BrowserEnded("the connection to Chromium was closed")
        self._loop.remove_reader(self._read_from)
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(self._write_to)
        os.close(self._read_from)
        os.close(self._write_to)
        self._give_up(list(self._waiting), self.failure)
        self._handlers.clear()
        self.closed.set()

    # Reading.

    def _readable(self) -> None:
        try:
            for _ in range(limits.READS_PER_TURN):
                data = os.read(self._read_from, limits.READ_BYTES)
                if not data:
                    self.close(BrowserEnded("Chromium ended"))
                    return
                for frame in self._frames.feed(data):
                    self._dispatch(decode(frame))
                    if self.failure is not None:
                        return
                if len(data) < limits.READ_BYTES:
                    return
        except BlockingIOError:
            return
        except CdpBroken as broken:
            self.close(broken)
        except OSError as problem:
            self.close(BrowserEnded(f"the pipe from Chromium failed: {problem.strerror}"))

    def _dispatch(self, message: Reply | CdpEvent) -> None:
        if isinstance(message, Reply):
            # One that nobody waits for any more came too late.
            waiting = self._waiting.pop(message.id, None)
            if waiting is not None:
                waiting.late.cancel()
            if waiting is not None and not waiting.reply.done():
                if message.fault is None:
                    waiting.reply.set_result(message.result)
                else:
                    waiting.reply.set_exception(refusal(waiting.method, message.fault))
            return
        for handler in tuple(self._handlers.get(message.session_id, ())):
            try:
                handler(message)
            except Exception:  # whose handler it was must not end everybody's connection
                log.exception("a handler of %s failed", message.method)
        if message.method == _DETACHED:
            self._detached(str(message.params.get("sessionId", "")))

    def _detached(self, session_id: str) -> None:
        if session_id:
            left = [number for number, each in self._waiting.items() if each.session_id == session_id]
            self._give_up(left, TargetGone("the tab or frame went away before it answered"))

    def _give_up(self, numbers: list[int], why: PalyraError) -> None:
        for number in numbers:
            each = self._waiting.pop(number)
            each.late.cancel()
            if not each.reply.done():
                each.reply.set_exception(_again(why))
                # Its task may have been cancelled meanwhile; then nobody asks.
                each.reply.exception()

    # Writing.

    def _send(self, method: str, params: dict[str, Any] | None, session_id: str | None) -> int:
        """Return the command's number. Frames of one turn of the loop go in one write: each write wakes Chromium."""
        if self.failure is not None:
            raise _again(self.failure)
        number = self._next
        frame = encode(number, method, params, session_id)
        if len(self._unsent) + len(frame) > limits.MAX_UNSENT_BYTES:
            raise TooManyCommands(f"{method}: Chromium does not read its commands", method=method)
        self._next += 1
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += frame
        return number

    def _flush(self) -> None:
        if self.failure is None and self._put():
            self._waits_to_write = True
            self._loop.add_writer(self._write_to, self._writable)

    def _writable(self) -> None:
        if not self._put() and self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(self._write_to)

    def _put(self) -> bool:
        try:
            sent = os.write(self._write_to, self._unsent)
        except BlockingIOError:
            return True
        except OSError as problem:
            self.close(BrowserEnded(f"Chromium does not listen any more: {problem.strerror}"))
            return False
        del self._unsent[:sent]
        return bool(self._unsent)


def _again(why: PalyraError) -> PalyraError:
    """Copy the error for each waiting command: a shared one would collect the tracebacks of all."""
    return type(why)(why.message, hint=why.hint, **why.details)
