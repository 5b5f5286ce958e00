"""Reader of the answer to one request: it finds its end, and whether the connection is still clean.

Bytes after that end answer no request: the next request must not get them.
"""

from typing import Final

import msgspec

from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_EARLY_BYTES, MAX_INTERIM_RESPONSES
from palyra.egress.protocols.http1_body import BodyKind, BodyReader, body_of_response
from palyra.egress.protocols.http1_head import WEBSOCKET, ResponseHead, response_buffer, separate, stays_open
from palyra.egress.protocols.state_machine import MachineEvent, MachineMisused, MachineState, step


class ResponseState(MachineState):
    HEAD = "head"
    BODY = "body"
    ENDED = "ended"
    SPOILED = "spoiled"
    UPGRADED = "upgraded"
    REFUSED = "refused"


class ResponseEvent(MachineEvent):
    INTERIM = "interim"
    STARTED = "started"
    SWITCHED = "switched"
    WHOLE = "whole"
    BYTES = "bytes"
    MALFORMED = "malformed"
    CLOSED = "closed"


_S = ResponseState
_E = ResponseEvent
TRANSITIONS: Final[dict[tuple[ResponseState, ResponseEvent], ResponseState]] = {
    (_S.HEAD, _E.INTERIM): _S.HEAD,
    (_S.HEAD, _E.STARTED): _S.BODY,
    (_S.HEAD, _E.SWITCHED): _S.UPGRADED,
    (_S.HEAD, _E.MALFORMED): _S.REFUSED,
    (_S.HEAD, _E.CLOSED): _S.REFUSED,
    (_S.BODY, _E.WHOLE): _S.ENDED,
    (_S.BODY, _E.MALFORMED): _S.REFUSED,
    (_S.BODY, _E.CLOSED): _S.REFUSED,
    (_S.ENDED, _E.BYTES): _S.SPOILED,
    (_S.ENDED, _E.CLOSED): _S.SPOILED,
    (_S.SPOILED, _E.BYTES): _S.SPOILED,
    (_S.SPOILED, _E.CLOSED): _S.SPOILED,
    (_S.UPGRADED, _E.BYTES): _S.UPGRADED,
    (_S.UPGRADED, _E.CLOSED): _S.UPGRADED,
    (_S.REFUSED, _E.BYTES): _S.REFUSED,
    (_S.REFUSED, _E.CLOSED): _S.REFUSED,
}


class Answer(msgspec.Struct, frozen=True):
    """Head of an answer, as the server sent it. ``interim``: another follows."""

    head: ResponseHead
    interim: bool = False


class AnswerBody(msgspec.Struct, frozen=True):
    """Bytes of the answer's body, in the framing they came in."""

    data: bytes


class AnswerEnded(msgspec.Struct, frozen=True):
    """End of the answer."""


class Switched(msgspec.Struct, frozen=True):
    """Switch to the requested protocol. All further bytes, and ``rest``, are of that protocol."""

    head: ResponseHead


ResponseCommand = Answer | AnswerBody | AnswerEnded | Switched


class ResponseReader:
    """Machine of one answer. ``upgrade``: the request asked for a WebSocket. ``body`` is set with the head."""

    def __init__(self, request_method: str, *, upgrade: bool = False) -> None:
        self.state = ResponseState.HEAD
        self.body: BodyReader | None = None
        self.rest = b""
        self._method = request_method
        self._upgrade = upgrade
        self._stays_open = False
        self._interim = 0
        self._heads = response_buffer()

    @property
    def reusable(self) -> bool:
        return self.state is ResponseState.ENDED and self._stays_open

    def receive(self, data: bytes) -> list[ResponseCommand]:
        """Read bytes into commands. Raise ``MalformedTraffic``; commands returned before stay valid."""
        said: list[ResponseCommand] = []
        try:
            while data:
                if self.state is ResponseState.HEAD:
                    data = self._read_head(data, said)
                elif self.state is ResponseState.BODY and self.body is not None:
                    data = self._read_body(self.body, data, said)
                else:
                    self._step(ResponseEvent.BYTES)
                    self._keep(data)
                    break
        except MalformedTraffic:
            self._step(ResponseEvent.MALFORMED)
            raise
        return said

    def closed(self) -> list[ResponseCommand]:
        """End the server's stream. Raise ``MalformedTraffic`` if that cuts the answer short."""
        if self.state is ResponseState.BODY and self.body is not None and self.body.kind is BodyKind.UNTIL_CLOSE:
            self.body.closed()
            self._step(ResponseEvent.WHOLE)
            return [AnswerEnded()]
        cut_short = self.state in (ResponseState.HEAD, ResponseState.BODY)
        self._step(ResponseEvent.CLOSED)
        if cut_short:
            raise MalformedTraffic("an answer that ends too early")
        return []

    def _read_head(self, data: bytes, said: list[ResponseCommand]) -> bytes:
        head = self._heads.receive(data)
        if head is None:
            return b""
        body = body_of_response(head, self._method)
        hops = separate(head.headers)
        if head.status == 101:
            if not self._upgrade or "upgrade" not in hops.options or hops.upgrade != WEBSOCKET:
                raise MalformedTraffic("an answer in another protocol that nobody asked for")
            self._step(ResponseEvent.SWITCHED)
            said.append(Switched(head))
        elif head.status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM_RESPONSES:
                raise MalformedTraffic("too many interim answers")
            self._step(ResponseEvent.INTERIM)
            said.append(Answer(head, interim=True))
        else:
            self.body = body
            self._stays_open = stays_open(head.version, hops.options) and body.kind is not BodyKind.UNTIL_CLOSE
            self._step(ResponseEvent.STARTED)
            said.append(Answer(head))
            if body.finished:
                self._end(said)
        return self._heads.rest

    def _read_body(self, body: BodyReader, data: bytes, said: list[ResponseCommand]) -> bytes:
        consumed, finished = body.receive(data)
        said.append(AnswerBody(data[:consumed]))
        if finished:
            self._end(said)
        return data[consumed:]

    def _end(self, said: list[ResponseCommand]) -> None:
        self._step(ResponseEvent.WHOLE)
        said.append(AnswerEnded())

    def _keep(self, data: bytes) -> None:
        if self.state is ResponseState.UPGRADED:
            if len(self.rest) + len(data) > MAX_EARLY_BYTES:
                raise MachineMisused("the bytes of an upgraded connection are not this machine's")
            self.rest += data

    def _step(self, event: ResponseEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)
