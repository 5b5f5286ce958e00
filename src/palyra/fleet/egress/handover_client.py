"""The worker's side of the doors' socket. The worker names leases; what they may reach it only learns."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from palyra.errors import RemoteError
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.egress.handover_protocol import (
    Answer,
    AskBinding,
    AskClose,
    AskDoor,
    Asked,
    AskGrant,
    Granted,
    Kind,
    Usage,
    read_answer,
    receive,
    send,
    written,
)
from palyra.fleet.egress.leases import BadDoorMessage, BadDoorSocket, LeaseRef, ProxyGone
from palyra.sandbox.domain.network import DoorUsage
from palyra.sandbox.network.namespace_sockets import OpenedSockets


class DoorClient:
    """One connection for all leases. When it ends the proxy closes every door; a new one begins anew."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
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
        """The proxy's id and its word for this challenge: for ``WorkerAttestation.with_binding``."""
        self._count += 1
        bound = (await self._ask(AskBinding(id=self._count, worker_id=worker_id, nonce=nonce))).bound
        if bound is None:
            raise BadDoorMessage("the proxy did not answer with a binding")
        try:
            signed = SignedStatement(bytes.fromhex(bound.payload), bytes.fromhex(bound.signature))
        except ValueError:
            raise BadDoorMessage("the proxy's binding is not in hex") from None
        return bound.egress_id, signed

    async def granted(self, ref: LeaseRef) -> Granted:
        """What the daemon told the proxy that this lease may reach."""
        self._count += 1
        granted = (await self._ask(AskGrant(id=self._count, lease_id=ref.lease_id, fence=ref.fence))).granted
        if granted is None:
            raise BadDoorMessage("the proxy did not answer with a grant")
        return granted

    async def open(self, ref: LeaseRef, sockets: Sequence[tuple[Kind, socket.socket]]) -> None:
        """The proxy has copies of the sockets when this returns; ours stay ours to close."""
        self._count += 1
        kinds = tuple(kind for kind, _ in sockets)
        asked = AskDoor(id=self._count, lease_id=ref.lease_id, fence=ref.fence, kinds=kinds)
        await self._ask(asked, [each.fileno() for _, each in sockets])

    async def close_door(self, ref: LeaseRef) -> Usage:
        self._count += 1
        usage = (await self._ask(AskClose(id=self._count, lease_id=ref.lease_id, fence=ref.fence))).usage
        if usage is None:
            raise BadDoorMessage("the proxy did not say what went through the door")
        return usage

    def close(self) -> None:
        self._end(ProxyGone("the connection was closed here"))

    async def _ask(self, asked: Asked, descriptors: list[int] | None = None) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._gone is not None:
            raise self._gone
        self._waiting[asked.id] = answer
        try:
            async with self._sending:
                await send(self._connection, written(asked), descriptors)
            found = await answer
        except OSError as error:
            # Why may still stand to be read: it was turned away.
            self._read()
            self._end(ProxyGone(f"the egress proxy does not take anything: {error.strerror}"))
            raise self._gone or ProxyGone("the egress proxy is gone") from error
        finally:
            self._waiting.pop(asked.id, None)
        if found.problem is not None:
            raise _remote(found)
        return found

    def _read(self) -> None:
        reset = False
        while self._gone is None:
            try:
                packet, _ = receive(self._connection)
                answer = read_answer(packet) if packet else None
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                # The kernel says so before it gives what was said last; asked again, it gives that.
                if reset:
                    self._end(ProxyGone("the egress proxy ended the connection"))
                reset = True
                continue
            except (OSError, BadDoorMessage, BadDoorSocket) as error:
                self._end(ProxyGone(f"the egress proxy cannot be heard: {error}"))
                return
            if answer is None:
                self._end(ProxyGone("the egress proxy ended the connection"))
            elif answer.id == 0 and answer.problem is not None:
                self._end(_remote(answer))
            elif (asked := self._waiting.get(answer.id)) is not None and not asked.done():
                asked.set_result(answer)

    def _end(self, why: ProxyGone | RemoteError) -> None:
        if self._gone is None:
            self._gone = why
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._connection.close()
            for asked in self._waiting.values():
                if not asked.done():
                    asked.set_exception(why)
            self.ended.set()


def _remote(answer: Answer) -> RemoteError:
    assert answer.problem is not None
    problem = answer.problem
    with contextlib.suppress(KeyError):
        known = RemoteError.registry[problem.code]
        return RemoteError(
            problem.message,
            remote_code=problem.code,
            hint=problem.hint,
            exit_code=known.exit_code,
            http_status=known.http_status,
        )
    return RemoteError(problem.message, remote_code=problem.code, hint=problem.hint)


# The door of a sandbox on a worker: its sockets go to the worker's egress proxy, and the account comes back.


class Proxy(Protocol):
    """The worker's connection to its proxy."""

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None: ...

    async def close_door(self, ref: LeaseRef) -> Usage: ...


class LeasedDoor:
    """A ``NetworkDoor`` for one lease: what its program may reach the daemon told the proxy, not the worker."""

    def __init__(self, proxy: Proxy, ref: LeaseRef) -> None:
        self._proxy = proxy
        self._ref = ref

    async def opened(self, sockets: OpenedSockets) -> "LeasedDoor":
        await self._proxy.open(self._ref, [(each.plan.kind.value, each.socket) for each in sockets])
        return self

    async def close(self) -> DoorUsage:
        usage = await self._proxy.close_door(self._ref)
        return DoorUsage(
            connections=usage.connections,
            bytes_up=usage.bytes_up,
            bytes_down=usage.bytes_down,
            refused=usage.refused,
            violations=usage.violations,
            refusals=usage.refusals,
        )


class ProxyOfWorker:
    """The worker's way out, at the socket of its proxy. Connected when first needed, and again after it was gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: DoorClient | None = None
        self._connecting = asyncio.Lock()

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        return await (await self._connected()).bind(worker_id, nonce)

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        """What the daemon granted the lease; raises where it granted nothing at all, not even no host."""
        return (await (await self._connected()).granted(LeaseRef(lease_id, fence))).hosts

    def door(self, lease_id: str, fence: int) -> LeasedDoor:
        return LeasedDoor(self, LeaseRef(lease_id, fence))

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        await (await self._connected()).open(ref, sockets)

    async def close_door(self, ref: LeaseRef) -> Usage:
        return await (await self._connected()).close_door(ref)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def _connected(self) -> DoorClient:
        async with self._connecting:
            if self._client is None or self._client.ended.is_set():
                self._client = await DoorClient.connect(self._path)
            return self._client
