"""The worker's end of the handover socket: listeners go to the worker's egress proxy, and their usage comes back."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from palyra.errors import RemoteError
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.egress.handover_protocol import (
    BindingReply,
    BindingRequest,
    CloseRequest,
    ErrorReply,
    GrantReply,
    GrantRequest,
    HandoverReply,
    Kind,
    OpenRequest,
    UsageReply,
    encode,
    read_reply,
    receive,
    send,
)
from palyra.fleet.egress.leases import BadHandoverMessage, BadListenerSocket, LeaseRef, ProxyGone
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.network.call_network import OpenedSockets


class HandoverClient:
    """One connection for all leases. When it ends, the proxy closes every listener of this worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self._waiting: dict[int, asyncio.Future[HandoverReply]] = {}
        self._sending = asyncio.Lock()
        self._gone: ProxyGone | RemoteError | None = None
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read)

    @classmethod
    async def connect(cls, path: Path) -> Self:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(path))
        except OSError as error:
            connection.close()
            raise ProxyGone(f"no egress proxy answers at {path}: {error.strerror}") from error
        return cls(connection)

    async def bind(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        """Return the proxy's id and its signed binding for this challenge."""
        bound: BindingReply = await self._request(BindingRequest, "bound", worker_id=worker_id, nonce=nonce)
        try:
            signed = SignedStatement(bytes.fromhex(bound.payload), bytes.fromhex(bound.signature))
        except ValueError:
            raise BadHandoverMessage("the proxy's binding is not in hex") from None
        return bound.egress_id, signed

    async def granted(self, ref: LeaseRef) -> GrantReply:
        """Return what the daemon granted this lease, as the proxy knows it."""
        granted: GrantReply = await self._request(GrantRequest, "granted", lease_id=ref.lease_id, fence=ref.fence)
        return granted

    async def open(self, ref: LeaseRef, sockets: Sequence[tuple[Kind, socket.socket]]) -> None:
        """Send copies of the sockets to the proxy. The caller still closes its own."""
        kinds = tuple(kind for kind, _ in sockets)
        descriptors = [each.fileno() for _, each in sockets]
        await self._request(OpenRequest, "", descriptors, lease_id=ref.lease_id, fence=ref.fence, kinds=kinds)

    async def close_listener(self, ref: LeaseRef) -> UsageReply:
        usage: UsageReply = await self._request(CloseRequest, "usage", lease_id=ref.lease_id, fence=ref.fence)
        return usage

    def close(self) -> None:
        self._end(ProxyGone("the connection was closed here"))

    async def _request(self, kind: Any, field: str, descriptors: list[int] | None = None, **values: Any) -> Any:
        """Send a request and return this field of its reply. An empty field name expects nothing but success."""
        if self._gone is not None:
            raise self._gone
        self._count += 1
        number = self._count
        reply: asyncio.Future[HandoverReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            async with self._sending:
                await send(self._connection, encode(kind(id=number, **values)), descriptors)
            found = await reply
        except OSError as error:
            # A proxy that refused this connection has sent the reason, which may still be unread.
            self._read()
            self._end(ProxyGone(f"the egress proxy does not take anything: {error.strerror}"))
            raise self._gone or ProxyGone("the egress proxy is gone") from error
        finally:
            self._waiting.pop(number, None)
        if found.problem is not None:
            raise _to_remote_error(found.problem)
        value = getattr(found, field) if field else found
        if value is None:
            raise BadHandoverMessage(f"the proxy's reply has no {field}")
        return value

    def _read(self) -> None:
        reset = False
        while self._gone is None:
            try:
                packet, _ = receive(self._connection)
                reply = read_reply(packet) if packet else None
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                # The kernel reports the reset before the last packet; the second read gives that packet.
                if reset:
                    self._end(ProxyGone("the egress proxy ended the connection"))
                reset = True
                continue
            except (OSError, BadHandoverMessage, BadListenerSocket) as error:
                self._end(ProxyGone(f"the egress proxy's reply cannot be read: {error}"))
                return
            if reply is None:
                self._end(ProxyGone("the egress proxy ended the connection"))
            elif reply.id == 0 and reply.problem is not None:
                self._end(_to_remote_error(reply.problem))
            elif (waiting := self._waiting.get(reply.id)) is not None and not waiting.done():
                waiting.set_result(reply)

    def _end(self, why: ProxyGone | RemoteError) -> None:
        if self._gone is None:
            self._gone = why
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._connection.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(why)
            self.ended.set()


def _to_remote_error(problem: ErrorReply) -> RemoteError:
    known = RemoteError.registry.get(problem.code, RemoteError)
    return RemoteError(
        problem.message,
        remote_code=problem.code,
        hint=problem.hint,
        exit_code=known.exit_code,
        http_status=known.http_status,
    )


class ProxyOfWorker:
    """The egress proxy of this worker. It is connected on first use, and again after its connection ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: HandoverClient | None = None
        self._connecting = asyncio.Lock()

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        return await (await self.connected()).bind(worker_id, nonce)

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        """Return the rules of the daemon's grant. Raise if the daemon granted nothing, not even an empty list."""
        return (await (await self.connected()).granted(LeaseRef(lease_id, fence))).hosts

    def network(self, lease_id: str, fence: int) -> "LeaseNetwork":
        return LeaseNetwork(self, LeaseRef(lease_id, fence))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def connected(self) -> HandoverClient:
        async with self._connecting:
            if self._client is None or self._client.ended.is_set():
                self._client = await HandoverClient.connect(self._path)
            return self._client


class LeaseNetwork:
    """The network of one lease's sandbox. The daemon tells the proxy, not the worker, what the program may reach."""

    def __init__(self, proxy: ProxyOfWorker, ref: LeaseRef) -> None:
        self._proxy = proxy
        self._ref = ref

    async def serve(self, sockets: OpenedSockets) -> "LeaseNetwork":
        client = await self._proxy.connected()
        await client.open(self._ref, [(each.plan.kind.value, each.socket) for each in sockets])
        return self

    async def close(self) -> NetworkUsage:
        usage = await (await self._proxy.connected()).close_listener(self._ref)
        return NetworkUsage(**msgspec.structs.asdict(usage))
