"""Following a call's events to their end, over as many connections as that takes.

A script of steps, without I/O: a client performs each step and sends back what came of it, or throws in what went
wrong. A broken or silent connection is opened again after the last whole event; a clean end is the end.
"""

from collections.abc import Generator
from typing import Any, TypeAlias

import msgspec

from palyra.client.protocol import (
    BadAnswer,
    BadRequestValue,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Headers,
    Request,
    Response,
    ResponseTooLarge,
    header_of,
    path_of,
    read_answer,
)
from palyra.client.sse import EventParser, event_data
from palyra.client.views import CallEvent

_FIRST_DELAY_SECONDS = 0.1
_MS_PER_SECOND = 1000


class OpenStream(msgspec.Struct, frozen=True):
    """Performed: the response's Head. Any earlier stream is closed."""

    request: Request


class ReadChunk(msgspec.Struct, frozen=True):
    """Performed: bytes, empty at a clean end."""


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Emit(msgspec.Struct, frozen=True):
    event: CallEvent


class Head(msgspec.Struct, frozen=True):
    status: int
    headers: Headers


Step: TypeAlias = OpenStream | ReadChunk | Pause | Emit
Script: TypeAlias = Generator[Step, Any, None]


def follow_call(call_id: str, *, after: str | None, limits: ClientLimits) -> Script:
    """Steps that emit every event of the call that comes after the event with the id ``after``."""
    path = path_of("v1", "tool-calls", call_id, "events")
    parser = EventParser(limits.max_event_bytes, after or "")
    lost = 0
    opened = False
    while True:
        parser = EventParser(limits.max_event_bytes, parser.last_event_id)
        try:
            head = yield OpenStream(_stream_request(path, parser.last_event_id))
            if head.status != 200 or not _is_event_stream(head):
                yield from _refuse(head, limits)
            opened = True
            while chunk := (yield ReadChunk()):
                for event in parser.feed(chunk):
                    lost = 0
                    yield Emit(CallEvent(id=event.id, kind=event.kind, data=event_data(event)))
            return
        except ClientTimeout:
            # Silence after a good start: the network may have dropped the connection without telling either end.
            if not opened:
                raise
        except (ConnectionLost, ConnectFailed):
            lost += 1
            if not opened or lost > limits.max_stream_resumes:
                raise
            yield Pause(_delay(lost, parser.retry_ms, limits))


def _stream_request(path: str, last_event_id: str) -> Request:
    headers = [("accept", "text/event-stream"), ("cache-control", "no-store")]
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isprintable()):
            raise BadRequestValue("an event id that is not printable ASCII cannot be resumed after")
        headers.append(("last-event-id", last_event_id))
    return Request(method="GET", path=path, headers=tuple(headers))


def _is_event_stream(head: Head) -> bool:
    return (header_of(head.headers, "content-type") or "").partition(";")[0].strip().lower() == "text/event-stream"


def _refuse(head: Head, limits: ClientLimits) -> Script:
    body = b""
    while chunk := (yield ReadChunk()):
        body += chunk
        if len(body) > limits.max_response_bytes:
            raise ResponseTooLarge(f"the answer is larger than {limits.max_response_bytes} bytes")
    read_answer(Response(status=head.status, headers=head.headers, body=body))
    raise BadAnswer("the server answered with a document where events were asked for")


def _delay(lost: int, retry_ms: int | None, limits: ClientLimits) -> float:
    asked = _FIRST_DELAY_SECONDS * 2 ** (lost - 1) if retry_ms is None else retry_ms / _MS_PER_SECOND
    return min(asked, limits.max_resume_delay_seconds)
