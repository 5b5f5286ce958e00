"""A relay of bytes between a worker and its daemon that loses what the daemon says, and cuts and mends the line."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 65_536


class LossyRelay:
    """``losing``: what comes from the daemon goes nowhere, though the daemon sees it leave."""

    def __init__(self, daemon_port: int) -> None:
        self.daemon_port = daemon_port
        self.port = 0
        self.losing = False
        self.lost_bytes = 0
        self._is_cut = False
        self._lines: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Every connection ends, and new ones end at once."""
        self._is_cut = True
        for line in list(self._lines):
            line.close()

    def mend(self) -> None:
        self._is_cut = self.losing = False

    async def serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        if self._is_cut:
            near_out.close()
            return
        far_in, far_out = await asyncio.open_connection("127.0.0.1", self.daemon_port)
        self._lines |= {near_out, far_out}
        try:
            await asyncio.gather(self._up(near_in, far_out), self._down(far_in, near_out))
        finally:
            self._lines -= {near_out, far_out}
            for line in (near_out, far_out):
                line.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                writer.write(data)
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.losing:
                    self.lost_bytes += len(data)
                else:
                    writer.write(data)
        writer.close()


@asynccontextmanager
async def lossy_relay(daemon_port: int) -> AsyncIterator[LossyRelay]:
    relay = LossyRelay(daemon_port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
