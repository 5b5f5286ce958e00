"""A door that lets named hosts through to servers on this machine's loopback, and nothing else. For tests only: it
trusts the sandbox's bytes more than a real proxy may."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from typing import Any

from palyra.sandbox.domain.network import ListenerKind, NetworkUsage
from palyra.sandbox.network.call_network import OpenedSockets

A, AAAA = 1, 28
NXDOMAIN = 3
Upstreams = Mapping[tuple[str, int], tuple[str, int]]


class FakeNetworkProxy:
    """``upstreams`` says where each allowed name and port really leads. Each name gets an address from 127.0.1.1 on."""

    def __init__(self, upstreams: Upstreams) -> None:
        self.upstreams = upstreams
        names = sorted({name for name, _ in upstreams})
        self.addresses = {name: f"127.0.1.{number}" for number, name in enumerate(names, 1)}
        self.handles: list[FakeHandle] = []

    async def serve(self, sockets: OpenedSockets) -> "FakeHandle":
        handle = FakeHandle(self)
        self.handles.append(handle)
        await handle.serve(sockets)
        return handle


class FakeHandle:
    def __init__(self, proxy: FakeNetworkProxy) -> None:
        self.proxy = proxy
        self.names = {address: name for name, address in proxy.addresses.items()}
        self.asked: list[tuple[str, int]] = []
        self.refusals: list[dict[str, Any]] = []
        self.connections = self.up = self.down = 0
        self.closed = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._udp: tuple[socket.socket, ...] = ()

    async def serve(self, sockets: OpenedSockets) -> None:
        for kind, answer in (
            (ListenerKind.TRANSPARENT, self._transparent),
            (ListenerKind.DNS_TCP, self._dns_tcp),
            (ListenerKind.PROXY, self._proxy),
        ):
            for listener in sockets.of(kind):
                self._servers.append(await asyncio.start_server(self._counted(answer), sock=listener))
        self._udp = sockets.of(ListenerKind.DNS_UDP)
        for each in self._udp:
            asyncio.get_running_loop().add_reader(each.fileno(), self._dns_udp, each)

    async def close(self) -> NetworkUsage:
        self.closed = True
        for each in self._udp:
            asyncio.get_running_loop().remove_reader(each.fileno())
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        return NetworkUsage(
            connections=self.connections, bytes_up=self.up, bytes_down=self.down, refusals=tuple(self.refusals)
        )

    def _counted(self, answer: Any) -> Any:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await answer(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.transport.abort()
                self._tasks.discard(task)

        return served

    def _upstream(self, name: str | None, port: int) -> tuple[str, int] | None:
        found = self.proxy.upstreams.get((name or "", port))
        if found is None:
            self.refusals.append({"code": "egress.host_not_allowed", "host": name or "", "port": port})
        return found

    async def _transparent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")
        upstream = self._upstream(self.names.get(address), port)
        if upstream is not None:
            await self._relay(reader, writer, upstream)

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, authority, _ = head.split(b"\r\n")[0].decode("ascii").split(" ")
        name, _, port = authority.rpartition(":")
        upstream = self._upstream(name, int(port)) if method == "CONNECT" else None
        if upstream is None:
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await self._relay(reader, writer, upstream)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: tuple[str, int]
    ) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection(*upstream)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
            while data := await source.read(65536):
                self.up += len(data) if up else 0
                self.down += 0 if up else len(data)
                sink.write(data)
                await sink.drain()
            with contextlib.suppress(OSError):
                sink.write_eof()

        try:
            await asyncio.gather(copy(reader, far_writer, up=True), copy(far_reader, writer, up=False))
        finally:
            far_writer.transport.abort()

    def _dns_udp(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            query, asker = listener.recvfrom(4096)
            listener.sendto(self.answer(query), asker)

    async def _dns_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(2), "big")
            answer = self.answer(await reader.readexactly(size))
            writer.write(len(answer).to_bytes(2, "big") + answer)
            await writer.drain()

    def answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while size := query[at]:
            labels.append(query[at + 1 : at + 1 + size].decode("ascii").lower())
            at += 1 + size
        name = ".".join(labels)
        kind = int.from_bytes(query[at + 1 : at + 3], "big")
        question = query[12 : at + 5]
        self.asked.append((name, kind))
        address = self.proxy.addresses.get(name)
        code = 0 if address else NXDOMAIN
        record = b""
        if address and kind == A:
            record = b"\xc0\x0c" + struct.pack(">HHIH", A, 1, 60, 4) + socket.inet_aton(address)
        return query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, bool(record), 0, 0) + question + record
