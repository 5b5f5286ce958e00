"""Relay of HTTP requests of one client connection, each judged or compared with the connection's target.

Request and answer are framed exactly, so a second request can neither hide behind the first nor get its answer. The
connection to the server is kept for the next request to the same target, and dropped for any other.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from palyra.egress.domain.refusal import (
    EgressRefused,
    HandshakeTimeout,
    HostHeaderMismatch,
    IdleTimeout,
    MalformedTraffic,
    NameUnresolved,
    TooManyTunnels,
    Unreachable,
)
from palyra.egress.domain.request_rules import require_request
from palyra.egress.domain.target import Target
from palyra.egress.limits import BODY_READ_BYTES, MAX_REQUESTS_PER_CONNECTION
from palyra.egress.protocols.http1_body import BodyKind
from palyra.egress.protocols.http1_head import relay_response
from palyra.egress.protocols.http1_proxy import (
    Forward,
    HttpProxyServer,
    ProxyCommand,
    Reject,
    RequestBody,
    RequestEnded,
    refusal_reply,
)
from palyra.egress.protocols.http1_proxy import Tunnel as TunnelRequest
from palyra.egress.protocols.http1_response import Answer, AnswerBody, AnswerEnded, ResponseReader, Switched
from palyra.egress.protocols.tunnel_opening import Opening
from palyra.egress.proxy.socket_stream import SocketStream
from palyra.egress.proxy.tunnel import Tunnel
from palyra.egress.tls import Connection

_STATUS: Final[dict[type[EgressRefused], int]] = {
    MalformedTraffic: 400,
    HandshakeTimeout: 408,
    TooManyTunnels: 429,
    NameUnresolved: 502,
    Unreachable: 502,
    IdleTimeout: 504,
}
_FORBIDDEN: Final = 403


def status_of(refused: EgressRefused) -> int:
    return _STATUS.get(type(refused), _FORBIDDEN)


def require_same_host(named: Target, target: Target) -> None:
    if (named.host, named.port) != (target.host, target.port):
        raise HostHeaderMismatch(
            f"a request for {named.authority} on a connection to {target.authority}", **named.where
        )


class ClientConversation(ABC):
    """The requests of one client connection, and the body of the one under way."""

    def __init__(self, tunnel: Tunnel, client: Connection, machine: HttpProxyServer) -> None:
        self._tunnel = tunnel
        self._client = client
        self._machine = machine
        self._commands: deque[ProxyCommand] = deque()
        self._body_sent = True

    @abstractmethod
    async def reject(self, command: Reject) -> EgressRefused:
        """Send the reply to a malformed request. Return the refusal to raise."""

    async def next_command(self) -> ProxyCommand | None:
        """Return the client's next command; None at its end. The deadline of a handshake holds for a begun request."""
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
            raise await self.reject(command)
        return command

    def take_body_end(self) -> bool:
        """Return whether the request is whole already, with nothing left to send."""
        self._body_sent = bool(self._commands) and isinstance(self._commands[0], RequestEnded)
        if self._body_sent:
            self._commands.popleft()
        return self._body_sent

    async def send_body(self, server: Connection) -> None:
        while True:
            command = await self.next_command()
            if isinstance(command, RequestBody):
                try:
                    await server.write(command.data)
                except OSError:
                    # The server takes no more of it; its answer is still to come.
                    return
            elif isinstance(command, RequestEnded):
                self._body_sent = True
                return
            else:
                raise ConnectionResetError("the client left in the middle of a request")


async def answer_while_sending(send: Coroutine[Any, Any, None], answer: Coroutine[Any, Any, bool]) -> bool:
    """Send the body while the answer comes down: a server may answer before it has read everything.

    The result is False for an answer that came before the request was whole: the connection is in the middle of it.
    """
    sender, answerer = asyncio.create_task(send), asyncio.create_task(answer)
    try:
        done, _ = await asyncio.wait({sender, answerer}, return_when=asyncio.FIRST_COMPLETED)
        if answerer not in done:
            sender.result()
        return await answerer and sender.done()
    finally:
        for task in (sender, answerer):
            task.cancel()
        await asyncio.gather(sender, answerer, return_exceptions=True)


class HttpConversation(ClientConversation):
    """``fixed`` is the only target that requests may name if the connection was made for one; else each is judged."""

    def __init__(self, tunnel: Tunnel, *, fixed: Target | None) -> None:
        super().__init__(tunnel, tunnel.client, HttpProxyServer(origin=None if fixed is None else "http"))
        self._fixed = fixed
        self._answer_begun = False

    async def run(self) -> TunnelRequest | None:
        """Relay requests until the client ends, or asks for a tunnel instead."""
        for _ in range(MAX_REQUESTS_PER_CONNECTION):
            command = await self.next_command()
            if command is None:
                return None
            if isinstance(command, TunnelRequest):
                self._tunnel.client.unread(self._machine.rest)
                return command
            assert isinstance(command, Forward)
            if not await self._exchange(command):
                return None
            self._answer_begun = False
            self._commands.extend(self._machine.next_request())
        return None

    async def refuse(self, refused: EgressRefused) -> EgressRefused:
        """Send the client the refusal as an HTTP answer, and record it."""
        if not self._answer_begun:
            await self._tunnel.farewell(self._machine.refused(status_of(refused), refused), refused)
        return refused

    async def reject(self, command: Reject) -> EgressRefused:
        refused = command.leaf(command.why, **self._tunnel.where())
        if not self._answer_begun:
            await self._tunnel.farewell(command.reply, refused)
        return refused

    async def _exchange(self, forward: Forward) -> bool:
        """Relay one request and its answer. Return whether the connection may carry another."""
        tunnel = self._tunnel
        try:
            await self._admit(Target.from_url(forward.target_url))
            if tunnel.terminated():
                tunnel.client.unread(self._as_sent(forward))
                await tunnel.terminate(Opening.HTTP, one_request=self._fixed is None)
                return False
            if tunnel.grant.request_rules:
                # A guard that ends no TLS, as the browser's, still judges what it can read.
                rules, target = tunnel.grant.request_rules, Target.from_url(forward.target_url)
                require_request(rules, target, forward.head.method, forward.head.target, forward.head.headers)
            server = await tunnel.connect()
        except EgressRefused as refused:
            raise await self.refuse(refused) from None
        await server.write(forward.head.raw)
        reader = ResponseReader(forward.head.method, upgrade=forward.upgrade)
        if self.take_body_end():
            goes_on = await self._relay_answer(server, reader, forward)
        else:
            goes_on = await answer_while_sending(self.send_body(server), self._relay_answer(server, reader, forward))
        if not reader.reusable:
            tunnel.drop_connection()
        return goes_on and self._body_sent

    async def _admit(self, target: Target) -> None:
        tunnel = self._tunnel
        if self._fixed is not None:
            require_same_host(target, self._fixed)
        # The same target was judged at its admission, and a change of policy that forbids it has cut the tunnel since.
        if tunnel.target is None or (target.host, target.port) != (tunnel.target.host, tunnel.target.port):
            await tunnel.admit(target)
        elif tunnel.server is not None and tunnel.server.has_ended():
            tunnel.drop_connection()

    def _as_sent(self, forward: Forward) -> bytes:
        """Return the request in origin-form, with all bytes read of its body and of what follows."""
        body = b"".join(command.data for command in self._commands if isinstance(command, RequestBody))
        return forward.head.raw + body + self._machine.rest

    async def _relay_answer(self, server: SocketStream, reader: ResponseReader, forward: Forward) -> bool:
        client = self._tunnel.client
        while True:
            data = await server.read(BODY_READ_BYTES)
            try:
                commands = reader.receive(data) if data else reader.closed()
            except MalformedTraffic as malformed:
                raise await self._bad_answer(malformed) from None
            out: list[bytes] = []
            ended = False
            for command in commands:
                if isinstance(command, AnswerBody):
                    out.append(command.data)
                elif isinstance(command, Answer):
                    out.append(relay_response(command.head, keep_alive=self._stays_open(reader, forward)))
                    self._answer_begun = self._answer_begun or not command.interim
                elif isinstance(command, AnswerEnded):
                    ended = True
                elif isinstance(command, Switched):
                    await self._switch(server, reader, command)
                    return False
            if out:
                await client.write(out[0] if len(out) == 1 else b"".join(out))
            if ended:
                return self._stays_open(reader, forward)

    @staticmethod
    def _stays_open(reader: ResponseReader, forward: Forward) -> bool:
        return forward.keep_alive and (reader.body is None or reader.body.kind is not BodyKind.UNTIL_CLOSE)

    async def _switch(self, server: SocketStream, reader: ResponseReader, switched: Switched) -> None:
        tunnel = self._tunnel
        await tunnel.client.write(relay_response(switched.head, keep_alive=True))
        server.unread(reader.rest)
        tunnel.client.unread(self._machine.upgraded())
        self._answer_begun = True
        await tunnel.relay_opaque()

    async def _bad_answer(self, malformed: MalformedTraffic) -> Unreachable:
        """Turn a fault of the server into a refusal that is not a violation. Answer the client if still possible."""
        refused = Unreachable(f"the server's answer is not sound: {malformed.message}", **self._tunnel.where())
        if not self._answer_begun:
            await self._tunnel.farewell(refusal_reply(status_of(refused), refused), refused)
        return refused
