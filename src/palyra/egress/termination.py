"""Reading the traffic of hosts with credential bindings, to put credentials into it; all other TLS passes untouched.

Toward the client this is a server with a certificate of the run's own authority; toward the real server it is an
ordinary client that checks the real certificate. Requests are framed exactly and each names the host again.
"""

import asyncio
import contextlib
import datetime
import ssl
from collections import deque
from collections.abc import Callable

from palyra.egress.grant import EgressGrant
from palyra.egress.http_forward import status_of
from palyra.egress.http_proxy import (
    Forward,
    HttpProxyServer,
    ProxyCommand,
    Reject,
    RequestBody,
    RequestEnded,
    error_reply,
    refusal_body,
)
from palyra.egress.injected_exchange import ByteStream, InjectedExchange
from palyra.egress.injection import InjectionPlan, bound_to, plan_injection
from palyra.egress.ports import SecretSource
from palyra.egress.proxy_limits import BODY_READ_BYTES, FAREWELL_SECONDS, MAX_REQUESTS_PER_CONNECTION
from palyra.egress.refusal import EgressRefused, HostHeaderMismatch, Unreachable
from palyra.egress.revealing import revealed
from palyra.egress.rules import parse_rules
from palyra.egress.run_ca import RunAuthority
from palyra.egress.target import Target
from palyra.egress.tls_stream import TlsStream
from palyra.egress.tunnel import Tunnel
from palyra.egress.tunnel_opening import Opening
from palyra.secret import Secret


class CredentialTermination:
    """``trust`` gives the authorities that the real servers are checked against."""

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
        """The authority of one grant, made at first use: whoever starts the client gives it this to trust."""
        if grant.grant_id not in self._authorities:
            self.adopt(grant, self.make_authority(grant))
        return self._authorities[grant.grant_id]

    def make_authority(self, grant: EgressGrant) -> RunAuthority:
        """One that is nobody's yet: kept by the caller alone, until it is adopted for the grant."""
        rules = [rule for binding in grant.bindings for rule in parse_rules(binding.hosts)]
        hosts = tuple(dict.fromkeys("." + rule.host if rule.below else rule.host for rule in rules))
        return RunAuthority(grant.run, hosts, now=self._now())

    def adopt(self, grant: EgressGrant, authority: RunAuthority) -> None:
        self._authorities[grant.grant_id] = authority

    def forget(self, grant_id: str) -> None:
        """The grant is over; its authority's key goes with it."""
        self._authorities.pop(grant_id, None)

    def wants(self, grant: EgressGrant, target: Target) -> bool:
        return bool(bound_to(grant, target))

    async def serve(self, tunnel: Tunnel, opening: Opening, *, one_request: bool) -> None:
        assert tunnel.target is not None
        client: TlsStream | None = None
        if opening is Opening.TLS:
            client = TlsStream(
                tunnel.client, self.authority(tunnel.grant).context_for(tunnel.target.host), server_side=True
            )
            await client.handshake()
        scheme = "https" if client is not None else "http"
        target = Target(scheme, tunnel.target.host, tunnel.target.port)
        await _Conversation(self, tunnel, client or tunnel.client, target, one_request=one_request).run()

    async def reveal(self, grant: EgressGrant, plan: InjectionPlan, target: Target) -> dict[str, Secret]:
        return await revealed(self._secrets, grant, plan, target)

    def upstream_context(self) -> ssl.SSLContext:
        if self._upstream is None:
            self._upstream = self._trust()
        return self._upstream


class _Conversation:
    """The requests of one client connection to one bound host."""

    def __init__(
        self,
        owner: CredentialTermination,
        tunnel: Tunnel,
        client: "ByteStream | TlsStream",
        target: Target,
        *,
        one_request: bool,
    ) -> None:
        self._owner = owner
        self._tunnel = tunnel
        self._client = client
        self._target = target
        self._one_request = one_request
        self._machine = HttpProxyServer(origin="https" if target.scheme == "https" else "http")
        self._commands: deque[ProxyCommand] = deque()
        self._server: ByteStream | None = None

    async def run(self) -> None:
        for _ in range(MAX_REQUESTS_PER_CONNECTION):
            command = await self._next_command()
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
            self._check_host(forward)
            plan = plan_injection(
                self._tunnel.grant, self._target, forward.head.method, forward.head.target, forward.head.headers
            )
            values = await self._owner.reveal(self._tunnel.grant, plan, self._target)
            server = await self._connected()
            exchange = InjectedExchange(
                self._client,
                server,
                self._target,
                report=self._tunnel.report,
                keep_alive=not self._one_request,
            )
            has_body = not (self._commands and isinstance(self._commands[0], RequestEnded))
            if not has_body:
                self._commands.popleft()
            goes_on = await exchange.run(forward, plan, values, self._send_body if has_body else None)
        except EgressRefused as refused:
            # On record first: a client that hangs up on hearing why must not hide it.
            self._tunnel.record(refused)
            if exchange is None or not exchange.answer_begun:
                await self._farewell(error_reply(status_of(refused), refusal_body(type(refused), refused.message)))
            raise
        if not exchange.reusable:
            self._server = None
            self._tunnel.drop_connection()
        return goes_on

    def _check_host(self, forward: Forward) -> None:
        named = Target.from_url(forward.target_url)
        if (named.host, named.port) != (self._target.host, self._target.port):
            raise HostHeaderMismatch(
                f"a request for {named.authority} on a connection to {self._target.authority}",
                host=named.host,
                port=named.port,
            )

    async def _connected(self) -> ByteStream:
        if self._tunnel.server is not None and self._tunnel.server.has_ended():
            self._tunnel.drop_connection()
            self._server = None
        if self._server is None:
            stream = await self._tunnel.connect()
            self._server = stream
            if self._target.scheme == "https":
                secured = TlsStream(
                    stream, self._owner.upstream_context(), server_side=False, server_name=self._target.host
                )
                try:
                    await secured.handshake()
                except EgressRefused as error:
                    raise Unreachable(f"{self._target.authority}: {error.message}", **self._tunnel.where()) from None
                self._server = secured
        return self._server

    async def _next_command(self) -> ProxyCommand | None:
        """What the client says next; None at its end."""
        while not self._commands:
            data = await self._client.read(BODY_READ_BYTES)
            if not data:
                return None
            self._commands.extend(self._machine.receive(data))
            if not self._commands:
                self._tunnel.handshake_goes_on()
        self._tunnel.handshake_done()
        command = self._commands.popleft()
        if isinstance(command, Reject):
            await self._farewell(command.reply)
            raise command.leaf(command.why, **self._tunnel.where())
        return command

    async def _send_body(self, server: ByteStream) -> None:
        while True:
            command = await self._next_command()
            if isinstance(command, RequestBody):
                try:
                    await server.write(command.data)
                except OSError:
                    # The server wants no more of it; what it answers is still to come.
                    return
            elif isinstance(command, RequestEnded):
                return
            else:
                raise ConnectionResetError("the client left in the middle of a request")

    async def _farewell(self, answer: bytes) -> None:
        """Tells the client why, inside its TLS where there is one."""
        if not isinstance(self._client, TlsStream):
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
        if isinstance(self._client, TlsStream):
            self._client.end_writing()
