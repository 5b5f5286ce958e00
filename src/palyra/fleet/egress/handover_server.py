"""The socket at which the worker hands over the doors of its sandboxes. One worker process at a time, of one user.

The doors belong to the connection: when it ends, however it ends, they are closed.
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
    Answer,
    AskBinding,
    AskClose,
    AskDoor,
    Asked,
    AskGrant,
    Bound,
    Granted,
    Kind,
    Problem,
    Usage,
    close_all,
    door_socket,
    own_network,
    peer_of,
    read_asked,
    receive,
    send,
    written,
)
from palyra.fleet.egress.leases import AnotherConnected, BadDoorSocket, LeaseRef, WrongUser

log = logging.getLogger("palyra.egress")


class DoorsUnserved(Failed):
    code = "worker_egress.door_failed"
    hint = "the proxy's own log says more"


class DoorKeeper(Protocol):
    """Who decides and serves."""

    async def bind(self, worker_id: str, nonce: str) -> Bound: ...

    async def granted(self, ref: LeaseRef) -> Granted: ...

    async def open(self, ref: LeaseRef, sockets: list[tuple[Kind, socket.socket]]) -> None:
        """The sockets are the keeper's from now on, also when it raises."""

    async def close(self, ref: LeaseRef) -> Usage: ...

    async def close_all(self) -> None:
        """The worker's process is gone."""


class DoorServer:
    def __init__(self, keeper: DoorKeeper, *, uids: frozenset[int], foreign_network_only: bool = True) -> None:
        """``uids`` may connect. ``foreign_network_only`` refuses sockets of the network that this process is in."""
        self._keeper = keeper
        self._uids = uids
        self._own_network = own_network() if foreign_network_only else -1
        self._listening: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self.turned_away = 0

    def listen(self, path: Path) -> None:
        """Where other users may connect too they are told apart by the kernel's word, not by the file's mode."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.setblocking(False)
        listening.bind(str(path))
        os.chmod(path, 0o600 if self._uids == {os.geteuid()} else 0o666)
        listening.listen(limits.DOOR_BACKLOG)
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
            self._serving.add_done_callback(_look)

    def _turn_away(self, connection: socket.socket, why: PalyraError, pid: int) -> None:
        self.turned_away += 1
        log.warning("process %d was turned away: %s", pid, why.message)
        with contextlib.suppress(OSError):
            connection.send(written(Answer(id=0, problem=_problem(why))), socket.MSG_NOSIGNAL)
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
                while (received := _received(connection)) is not None:
                    packet, descriptors = received
                    if not packet:
                        return
                    if len(answering) >= limits.MAX_ASKED_AT_ONCE:
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
            await self._keeper.close_all()

    async def _answer(
        self, connection: socket.socket, sending: asyncio.Lock, packet: bytes, descriptors: list[int]
    ) -> None:
        number = 0
        try:
            asked = read_asked(packet)
            number = asked.id
            answer = await self._answered(asked, descriptors)
        except PalyraError as error:
            answer = Answer(id=number, problem=_problem(error))
        except OSError as error:
            failed = DoorsUnserved(f"the door could not be served: {error.strerror}")
            answer = Answer(id=number, problem=_problem(failed))
        finally:
            close_all(descriptors)
        with contextlib.suppress(OSError):
            async with sending:
                await send(connection, written(answer))

    async def _answered(self, asked: Asked, descriptors: list[int]) -> Answer:
        match asked:
            case AskBinding():
                return Answer(id=asked.id, bound=await self._keeper.bind(asked.worker_id, asked.nonce))
            case AskGrant():
                return Answer(id=asked.id, granted=await self._keeper.granted(LeaseRef(asked.lease_id, asked.fence)))
            case AskDoor():
                sockets = self._sockets(asked.kinds, descriptors)
                await self._keeper.open(LeaseRef(asked.lease_id, asked.fence), sockets)
                return Answer(id=asked.id)
            case AskClose():
                return Answer(id=asked.id, usage=await self._keeper.close(LeaseRef(asked.lease_id, asked.fence)))

    def _sockets(self, kinds: tuple[Kind, ...], descriptors: list[int]) -> list[tuple[Kind, socket.socket]]:
        if len(kinds) != len(descriptors):
            raise BadDoorSocket(f"{len(descriptors)} sockets came for {len(kinds)}")
        opened: list[tuple[Kind, socket.socket]] = []
        try:
            for kind in kinds:
                opened.append((kind, door_socket(descriptors.pop(0), kind, self._own_network)))
        except BaseException:
            for _, each in opened:
                each.close()
            raise
        return opened


def _received(connection: socket.socket) -> tuple[bytes, list[int]] | None:
    """None while there is nothing. A packet of its own making ends the connection."""
    try:
        return receive(connection)
    except (BlockingIOError, InterruptedError):
        return None
    except (OSError, BadDoorSocket):
        return b"", []


def _problem(error: PalyraError) -> Problem:
    return Problem(code=error.code, message=error.message, hint=error.hint)


def _look(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the worker's connection failed", exc_info=error)
