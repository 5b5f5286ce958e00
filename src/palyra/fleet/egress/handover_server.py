"""The socket at which a worker hands over the listeners of its sandboxes. One process of the worker connects at a time.

The listeners belong to the connection: they are closed when it ends, whatever the reason.
"""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path
from typing import Protocol

from palyra.errors import Failed, PalyraError
from palyra.fleet import limits
from palyra.fleet.egress.handover_protocol import (
    BindingReply,
    BindingRequest,
    CloseRequest,
    ErrorReply,
    GrantReply,
    GrantRequest,
    HandoverReply,
    HandoverRequest,
    Kind,
    OpenRequest,
    UsageReply,
    close_all,
    encode,
    own_network,
    peer_of,
    read_request,
    receive,
    send,
    take_listener_socket,
)
from palyra.fleet.egress.leases import AnotherConnected, BadListenerSocket, LeaseRef, WrongUser

log = logging.getLogger("palyra.egress")


class ListenerFailed(Failed):
    code = "worker_egress.door_failed"
    hint = "the proxy's own log says more"


class HandoverHandler(Protocol):
    """Decides requests and serves listeners."""

    async def bind(self, worker_id: str, nonce: str) -> BindingReply: ...

    async def granted(self, ref: LeaseRef) -> GrantReply: ...

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        """Take over the sockets, also when this raises."""

    async def close(self, ref: LeaseRef) -> UsageReply: ...

    async def close_all(self) -> None:
        """Close every listener: the worker's process is gone."""


class HandoverServer:
    def __init__(self, handler: HandoverHandler, *, uids: frozenset[int], foreign_network_only: bool = True) -> None:
        """Let only ``uids`` connect. ``foreign_network_only`` refuses sockets of this process's own network."""
        self._handler = handler
        self._uids = uids
        self._own_network = own_network() if foreign_network_only else -1
        self._listening: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.turned_away = 0

    def listen(self, path: Path) -> None:
        """Listen on a unix socket. If other users may connect, the kernel's peer credentials tell them apart."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.setblocking(False)
        listening.bind(str(path))
        os.chmod(path, 0o600 if self._uids == {os.geteuid()} else 0o666)
        listening.listen(limits.HANDOVER_BACKLOG)
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept)

    async def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                log.warning("a connection of the worker could not be taken: %s", error.strerror)
            return
        connection.setblocking(False)
        pid, uid = peer_of(connection)
        if uid not in self._uids:
            self._turn_away(connection, WrongUser(f"the user {uid} may not use this proxy", uid=uid), pid)
        elif self._serving is not None and not self._serving.done():
            self._turn_away(connection, AnotherConnected("a process of the worker is connected already"), pid)
        else:
            self._serving = asyncio.create_task(self._serve(connection), name="the worker's connection")
            self._serving.add_done_callback(_log_failure)

    def _turn_away(self, connection: socket.socket, why: PalyraError, pid: int) -> None:
        self.turned_away += 1
        log.warning("process %d was turned away: %s", pid, why.message)
        with contextlib.suppress(OSError):
            connection.send(encode(HandoverReply(id=0, problem=_to_reply(why))), socket.MSG_NOSIGNAL)
        connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(connection.fileno(), readable.set)
        answering: set[asyncio.Task[None]] = set()
        sending = asyncio.Lock()
        try:
            while True:
                await readable.wait()
                readable.clear()
                while (received := _receive(connection)) is not None:
                    packet, descriptors = received
                    if not packet:
                        return
                    if len(answering) >= limits.MAX_REQUESTS_AT_ONCE:
                        close_all(descriptors)
                        return
                    task = loop.create_task(self._answer(connection, sending, packet, descriptors))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        finally:
            loop.remove_reader(connection.fileno())
            for task in tuple(answering):
                task.cancel()
            if answering:
                await asyncio.wait(tuple(answering))
            connection.close()
            await self._handler.close_all()

    async def _answer(
        self, connection: socket.socket, sending: asyncio.Lock, packet: bytes, descriptors: list[int]
    ) -> None:
        number = 0
        try:
            request = read_request(packet)
            number = request.id
            reply = await self._handle(request, descriptors)
        except PalyraError as error:
            reply = HandoverReply(id=number, problem=_to_reply(error))
        except OSError as error:
            failed = ListenerFailed(f"the listener could not be served: {error.strerror}")
            reply = HandoverReply(id=number, problem=_to_reply(failed))
        finally:
            close_all(descriptors)
        with contextlib.suppress(OSError):
            async with sending:
                await send(connection, encode(reply))

    async def _handle(self, request: HandoverRequest, descriptors: list[int]) -> HandoverReply:
        handler = self._handler
        match request:
            case BindingRequest(id=number, worker_id=worker_id, nonce=nonce):
                return HandoverReply(id=number, bound=await handler.bind(worker_id, nonce))
            case GrantRequest(id=number, lease_id=lease_id, fence=fence):
                return HandoverReply(id=number, granted=await handler.granted(LeaseRef(lease_id, fence)))
            case OpenRequest(id=number, lease_id=lease_id, fence=fence):
                await handler.open(LeaseRef(lease_id, fence), self._take_sockets(request.kinds, descriptors))
                return HandoverReply(id=number)
            case CloseRequest(id=number, lease_id=lease_id, fence=fence):
                return HandoverReply(id=number, usage=await handler.close(LeaseRef(lease_id, fence)))

    def _take_sockets(self, kinds: tuple[Kind, ...], descriptors: list[int]) -> list[tuple[Kind, socket.socket]]:
        if len(kinds) != len(descriptors):
            raise BadListenerSocket(f"{len(descriptors)} sockets came for {len(kinds)}")
        opened: list[tuple[Kind, socket.socket]] = []
        try:
            for kind in kinds:
                opened.append((kind, take_listener_socket(descriptors.pop(0), kind, self._own_network)))
        except BaseException:
            for _, each in opened:
                each.close()
            raise
        return opened


def _receive(connection: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return None if no packet waits. An invalid packet ends the connection, as an empty one does."""
    try:
        return receive(connection)
    except (BlockingIOError, InterruptedError):
        return None
    except (OSError, BadListenerSocket):
        return b"", []


def _to_reply(error: PalyraError) -> ErrorReply:
    return ErrorReply(code=error.code, message=error.message, hint=error.hint)


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the worker's connection failed", exc_info=error)
