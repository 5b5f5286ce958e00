"""One request to a host with credential bindings: its headers replaced, its answer scanned.

The request's body goes up while the answer comes down. What is known of the answer's framing is kept: a body of known
length keeps its length, and chunks are made anew, because a secret may lie across two of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec

from palyra.egress.events import CredentialUsed, EgressEvent, ResponseRedacted
from palyra.egress.hop_by_hop import relayed_response
from palyra.egress.http_framing import BodyKind, BodyReader, body_of_response
from palyra.egress.http_head import ResponseHead, render_request
from palyra.egress.http_proxy import Forward
from palyra.egress.http_response import Answer, AnswerBody, AnswerEnded, ResponseReader
from palyra.egress.injection import InjectionPlan, inject, needles_of
from palyra.egress.injection_limits import CHUNK_BYTES
from palyra.egress.refusal import MalformedTraffic, Unreachable
from palyra.egress.response_scan import ResponseScan
from palyra.egress.target import Target
from palyra.secret import Secret

_UPGRADE: Final = frozenset({"connection", "upgrade"})
_LAST_CHUNK: Final = b"0\r\n\r\n"


class ByteStream(Protocol):
    """A connection's bytes, in TLS or not."""

    async def read(self, most: int = ...) -> bytes: ...

    async def write(self, data: bytes | memoryview) -> None: ...


class InjectedExchange:
    """``send_body`` passes the request's body on to the server; ``report`` takes events."""

    def __init__(
        self,
        client: ByteStream,
        server: ByteStream,
        target: Target,
        *,
        report: Callable[[EgressEvent], None],
        keep_alive: bool,
    ) -> None:
        self._client = client
        self._server = server
        self._target = target
        self._report = report
        self._keep_alive = keep_alive
        self.answer_begun = False
        self.reusable = False

    async def run(
        self,
        forward: Forward,
        plan: InjectionPlan,
        values: Mapping[str, Secret],
        send_body: Callable[[ByteStream], Awaitable[None]] | None,
    ) -> bool:
        """Says whether the client's connection may carry another request. ``send_body`` is None without a body."""
        # A stream that changes its protocol can be neither framed nor scanned: the server is not asked for it.
        headers = tuple(header for header in inject(plan, values) if header[0].lower() not in _UPGRADE)
        await self._server.write(
            render_request(forward.head.method, forward.head.target, forward.head.version, headers)
        )
        for one in plan.injections:
            if one.secret_ref in values:
                self._report(
                    CredentialUsed(
                        target=self._target,
                        secret_ref=one.secret_ref,
                        header_name=one.header_name,
                        method=forward.head.method,
                        path=forward.head.target.partition("?")[0],
                    )
                )
        scan = ResponseScan(needles_of(plan, values))
        try:
            if send_body is None:
                return await self._answer(forward, scan)
            return await self._both(send_body, forward, scan)
        finally:
            if scan.times:
                refs = ", ".join(one.secret_ref for one in plan.injections)
                self._report(ResponseRedacted(target=self._target, secret_ref=refs, times=scan.times))

    async def _both(
        self, send_body: Callable[[ByteStream], Awaitable[None]], forward: Forward, scan: ResponseScan
    ) -> bool:
        sender = asyncio.ensure_future(send_body(self._server))
        answerer = asyncio.ensure_future(self._answer(forward, scan))
        try:
            done, _ = await asyncio.wait({sender, answerer}, return_when=asyncio.FIRST_COMPLETED)
            if answerer not in done:
                sender.result()
            goes_on = await answerer
            # An answer before the request was whole leaves the connection in the middle of it.
            return goes_on and sender.done()
        finally:
            for task in (sender, answerer):
                task.cancel()
            await asyncio.gather(sender, answerer, return_exceptions=True)

    async def _answer(self, forward: Forward, scan: ResponseScan) -> bool:
        reader = ResponseReader(forward.head.method)
        body: _ScannedBody | None = None
        while True:
            data = await self._server.read(CHUNK_BYTES)
            try:
                if not data and getattr(self._server, "cut_off", False):
                    # Our client would be told of a proper end in TLS, and could not find out that there was none.
                    raise MalformedTraffic("it ended without saying so in TLS")
                commands = reader.receive(data) if data else reader.closed()
                out = []
                ended = False
                for command in commands:
                    if isinstance(command, AnswerBody) and body is not None:
                        out.append(body.receive(command.data))
                    elif isinstance(command, Answer):
                        out.append(self._head(command.head, scan, forward, reader))
                        if not command.interim:
                            body = _ScannedBody(body_of_response(command.head, forward.head.method), scan)
                            self.answer_begun = True
                    elif isinstance(command, AnswerEnded):
                        out.append(body.finish() if body is not None else b"")
                        ended = True
            except MalformedTraffic as malformed:
                # A server's faults are not the client's.
                raise Unreachable(
                    f"the server's answer is not sound: {malformed.message}",
                    host=self._target.host,
                    port=self._target.port,
                ) from None
            if piece := b"".join(out):
                await self._client.write(piece)
            if ended:
                self.reusable = reader.reusable
                return self._stays_open(forward, reader)

    def _stays_open(self, forward: Forward, reader: ResponseReader) -> bool:
        until_close = reader.body is not None and reader.body.kind is BodyKind.UNTIL_CLOSE
        return self._keep_alive and forward.keep_alive and not until_close

    def _head(self, head: ResponseHead, scan: ResponseScan, forward: Forward, reader: ResponseReader) -> bytes:
        headers = head.headers
        if scan.active:
            if any(value.lower() != "identity" for value in head.values("content-encoding")):
                raise MalformedTraffic("it is compressed although that was not asked for, and cannot be scanned")
            headers = tuple((_clean_name(scan, name), _clean(scan, value)) for name, value in headers)
        reason = _clean(scan, head.reason)
        cleaned = msgspec.structs.replace(head, headers=headers, reason=reason)
        return relayed_response(cleaned, keep_alive=self._stays_open(forward, reader))


def _clean_name(scan: ResponseScan, name: str) -> str:
    return scan.name(name.encode("latin-1")).decode("latin-1")


def _clean(scan: ResponseScan, text: str) -> str:
    return scan.whole(text.encode("latin-1")).decode("latin-1")


class _ScannedBody:
    """An answer's body without the secrets, in the framing that its head announced."""

    def __init__(self, reader: BodyReader, scan: ResponseScan) -> None:
        self._reader = reader
        self._scan = scan
        self._chunked = reader.kind is BodyKind.CHUNKED

    def receive(self, data: bytes) -> bytes:
        return self._framed(self._scan.receive(self._reader.decode(data).payload))

    def finish(self) -> bytes:
        return self._framed(self._scan.finish()) + (_LAST_CHUNK if self._chunked else b"")

    def _framed(self, payload: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(payload), payload) if self._chunked and payload else payload
