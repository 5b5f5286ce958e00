"""Termination of TLS for hosts with credential bindings or request rules; all other TLS passes untouched.

Toward the client this is a server with a certificate of the run's own authority; toward the real server it is an
ordinary client that checks the real certificate. Requests are framed exactly and each names the host again. The body of
a request is sent while its answer is received. A body of known length keeps its length; chunks are made again, because
a secret may lie across two of them.
"""

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from palyra.egress.domain.events import CredentialUsed, EgressEvent, ResponseRedacted, SecretSource
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.injection import (
    InjectionPlan,
    ResponseScan,
    bound_to,
    inject,
    plan_injection,
    reveal_all,
    secret_patterns,
)
from palyra.egress.domain.refusal import (
    EgressRefused,
    HandshakeTimeout,
    MalformedTraffic,
    Unreachable,
)
from palyra.egress.domain.request_rules import require_request
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import CHUNK_BYTES, FAREWELL_SECONDS, MAX_REQUESTS_PER_CONNECTION
from palyra.egress.protocols.http1_body import BodyKind, BodyReader, body_of_response
from palyra.egress.protocols.http1_head import ResponseHead, relay_response, render_request
from palyra.egress.protocols.http1_proxy import (
    Forward,
    HttpProxyServer,
    Reject,
    refusal_reply,
)
from palyra.egress.protocols.http1_response import Answer, AnswerBody, AnswerEnded, ResponseReader
from palyra.egress.protocols.tunnel_opening import Opening
from palyra.egress.proxy.http_forward import ClientConversation, answer_while_sending, require_same_host, status_of
from palyra.egress.proxy.run_authority import RunAuthority
from palyra.egress.proxy.socket_stream import SocketStream
from palyra.egress.proxy.tunnel import Tunnel
from palyra.egress.tls import Connection, TlsStream, reason_of
from palyra.errors import PalyraError
from palyra.secret import Secret

_UPGRADE: Final = frozenset({"connection", "upgrade"})
_LAST_CHUNK: Final = b"0\r\n\r\n"


class ProxyTlsStream(TlsStream):
    """TLS on a socket of the proxy, as server or as client. A peer that breaks TLS is refused."""

    inner: SocketStream

    def failure(self, error: ssl.SSLError | TimeoutError, *, in_handshake: bool) -> PalyraError:
        if not isinstance(error, ssl.SSLError):
            return HandshakeTimeout("the TLS handshake took too long")
        return MalformedTraffic(f"{'the TLS handshake failed' if in_handshake else 'broken TLS'}: {reason_of(error)}")

    def end_writing(self) -> None:
        """End the stream in TLS, if the socket takes the goodbye without waiting."""
        with contextlib.suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self.inner.sock.send(self._outgoing.read())
        self.inner.end_writing()


class InjectedExchange:
    """One request to a host whose TLS ends here: its headers replaced, its answer scanned. ``report`` takes events."""

    def __init__(
        self,
        client: Connection,
        server: Connection,
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
        send_body: Callable[[Connection], Coroutine[Any, Any, None]] | None,
    ) -> bool:
        """Return whether the client's connection may carry another request. ``send_body`` is None without a body."""
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
        scan = ResponseScan(secret_patterns(plan, values))
        try:
            if send_body is None:
                return await self._answer(forward, scan)
            return await answer_while_sending(send_body(self._server), self._answer(forward, scan))
        finally:
            if scan.times:
                refs = ", ".join(one.secret_ref for one in plan.injections)
                self._report(ResponseRedacted(target=self._target, secret_ref=refs, times=scan.times))

    async def _answer(self, forward: Forward, scan: ResponseScan) -> bool:
        reader = ResponseReader(forward.head.method)
        body: _ScannedBody | None = None
        while True:
            data = await self._server.read(CHUNK_BYTES)
            try:
                if not data and getattr(self._server, "cut_off", False):
                    # The client would see a proper end in TLS and could not detect that the server sent none.
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
                # A fault of the server is not a violation of the client.
                raise Unreachable(
                    f"the server's answer is not sound: {malformed.message}",
                    **self._target.where,
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
        return relay_response(cleaned, keep_alive=self._stays_open(forward, reader))


def _clean_name(scan: ResponseScan, name: str) -> str:
    return scan.name(name.encode("latin-1")).decode("latin-1")


def _clean(scan: ResponseScan, text: str) -> str:
    return scan.whole(text.encode("latin-1")).decode("latin-1")


class _ScannedBody:
    """Body of an answer without the secrets, in the framing that its head announced."""

    def __init__(self, reader: BodyReader, scan: ResponseScan) -> None:
        self._reader = reader
        self._scan = scan
        self._chunked = reader.kind is BodyKind.CHUNKED

    def receive(self, data: bytes) -> bytes:
        return self._frame(self._scan.receive(self._reader.decode(data).payload))

    def finish(self) -> bytes:
        return self._frame(self._scan.finish()) + (_LAST_CHUNK if self._chunked else b"")

    def _frame(self, payload: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(payload), payload) if self._chunked and payload else payload


class CredentialTermination:
    """``trust`` returns the authorities by which the real servers are checked."""

    def __init__(
        self,
        secrets: SecretSource,
        *,
        trust: Callable[[], ssl.SSLContext],
        now: Callable[[], datetime.datetime],
    ) -> None:
        self._secrets = secrets
        self._trust = trust
        self._now = now
        self._upstream: ssl.SSLContext | None = None
        self._authorities: dict[str, RunAuthority] = {}

    def authority(self, grant: EgressGrant) -> RunAuthority:
        """Return the authority of one grant, made at first use. The starter of the client makes it trust this."""
        if grant.grant_id not in self._authorities:
            self.adopt(grant, self.make_authority(grant))
        return self._authorities[grant.grant_id]

    def make_authority(self, grant: EgressGrant) -> RunAuthority:
        """Make an authority that is not yet the grant's: ``adopt`` makes it so."""
        rules = parse_rules(grant.read_hosts)
        hosts = tuple(dict.fromkeys("." + rule.host if rule.below else rule.host for rule in rules))
        return RunAuthority(grant.run, hosts, now=self._now())

    def adopt(self, grant: EgressGrant, authority: RunAuthority) -> None:
        self._authorities[grant.grant_id] = authority

    def forget(self, grant_id: str) -> None:
        self._authorities.pop(grant_id, None)

    def wants(self, grant: EgressGrant, target: Target) -> bool:
        return bool(bound_to(grant, target)) or grant.inspects(target)

    async def serve(self, tunnel: Tunnel, opening: Opening, *, one_request: bool) -> None:
        assert tunnel.target is not None
        client: ProxyTlsStream | None = None
        if opening is Opening.TLS:
            client = ProxyTlsStream(
                tunnel.client, self.authority(tunnel.grant).context_for(tunnel.target.host), server_side=True
            )
            await client.handshake()
        scheme = "https" if client is not None else "http"
        target = Target(scheme, tunnel.target.host, tunnel.target.port)
        await _BoundConversation(self, tunnel, client or tunnel.client, target, one_request=one_request).run()

    async def reveal(self, grant: EgressGrant, plan: InjectionPlan, target: Target) -> dict[str, Secret]:
        return await reveal_all(self._secrets, grant, plan, target)

    def upstream_context(self) -> ssl.SSLContext:
        if self._upstream is None:
            self._upstream = self._trust()
        return self._upstream


class _BoundConversation(ClientConversation):
    def __init__(
        self,
        owner: CredentialTermination,
        tunnel: Tunnel,
        client: Connection,
        target: Target,
        *,
        one_request: bool,
    ) -> None:
        super().__init__(tunnel, client, HttpProxyServer(origin="https" if target.scheme == "https" else "http"))
        self._owner = owner
        self._target = target
        self._one_request = one_request
        self._server: Connection | None = None

    async def run(self) -> None:
        for _ in range(MAX_REQUESTS_PER_CONNECTION):
            command = await self.next_command()
            if command is None:
                return
            assert isinstance(command, Forward)
            if not await self._exchange(command) or self._one_request:
                break
            self._commands.extend(self._machine.next_request())
        self._end()

    async def _exchange(self, forward: Forward) -> bool:
        exchange: InjectedExchange | None = None
        try:
            require_same_host(Target.from_url(forward.target_url), self._target)
            grant, head = self._tunnel.grant, forward.head
            require_request(grant.request_rules, self._target, head.method, head.target, head.headers)
            plan = plan_injection(grant, self._target, head.method, head.target, head.headers)
            values = await self._owner.reveal(grant, plan, self._target)
            server = await self._connect()
            exchange = InjectedExchange(
                self._client,
                server,
                self._target,
                report=self._tunnel.report,
                keep_alive=not self._one_request,
            )
            goes_on = await exchange.run(forward, plan, values, None if self.take_body_end() else self.send_body)
        except EgressRefused as refused:
            # Record it first: a client that hangs up on the answer must not hide it.
            self._tunnel.record(refused)
            if exchange is None or not exchange.answer_begun:
                await self._farewell(refusal_reply(status_of(refused), refused))
            raise
        if not exchange.reusable:
            self._server = None
            self._tunnel.drop_connection()
        return goes_on and self._body_sent

    async def _connect(self) -> Connection:
        if self._tunnel.server is not None and self._tunnel.server.has_ended():
            self._tunnel.drop_connection()
            self._server = None
        if self._server is None:
            stream = await self._tunnel.connect()
            self._server = stream
            if self._target.scheme == "https":
                secured = ProxyTlsStream(
                    stream, self._owner.upstream_context(), server_side=False, server_name=self._target.host
                )
                try:
                    await secured.handshake()
                except EgressRefused as error:
                    raise Unreachable(f"{self._target.authority}: {error.message}", **self._tunnel.where()) from None
                self._server = secured
        return self._server

    async def reject(self, command: Reject) -> EgressRefused:
        await self._farewell(command.reply)
        return command.leaf(command.why, **self._tunnel.where())

    async def _farewell(self, answer: bytes) -> None:
        """Send the client the reason, inside its TLS if it has one."""
        if not isinstance(self._client, ProxyTlsStream):
            await self._tunnel.farewell(answer)
            return
        with contextlib.suppress(OSError, TimeoutError, EgressRefused):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._client.write(answer)
                self._client.end_writing()
                while await self._tunnel.client.read():
                    pass
        self._client.close()

    def _end(self) -> None:
        if isinstance(self._client, ProxyTlsStream):
            self._client.end_writing()
