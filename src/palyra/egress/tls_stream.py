"""TLS over a ``SocketStream``, as server or as client, with the same reading and writing as the stream beneath it.

The event loop's own TLS cannot begin with bytes that were already read, and a peek at the hello has read them.
"""

import asyncio
import contextlib
import ssl
from typing import Final

from palyra.egress.injection_limits import CHUNK_BYTES, TLS_HANDSHAKE_SECONDS
from palyra.egress.refusal import HandshakeTimeout, MalformedTraffic
from palyra.egress.socket_stream import SocketStream

# One TLS record and its head: reading more at once brings several records in.
_RECORDS: Final = 64 * 1024


class TlsStream:
    def __init__(
        self, inner: SocketStream, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None
    ) -> None:
        self.inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._sending = asyncio.Lock()
        self._kept = b""
        # Whether the peer's end came without being said in TLS: somebody on the way may have made it.
        self.cut_off = False

    async def handshake(self, seconds: float = TLS_HANDSHAKE_SECONDS) -> None:
        """Raises ``MalformedTraffic`` for a peer that does not speak TLS or is not who it should be."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        self._tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        await self._flush()
                        await self._more()
                await self._flush()
        except TimeoutError:
            raise HandshakeTimeout("the TLS handshake took too long") from None
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                # The alert tells the peer what it did wrong.
                await self._flush()
            raise MalformedTraffic(f"the TLS handshake failed: {_reason(error)}") from error

    def unread(self, data: bytes) -> None:
        self._kept = data + self._kept

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Some bytes; none at the peer's end of the stream, whether it said so in TLS or only closed."""
        if self._kept:
            data, self._kept = self._kept[:most], self._kept[most:]
            return data
        while True:
            try:
                data = self._tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._more():
                    self.cut_off = True
                    return b""
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                self.cut_off = True
                return b""
            except ssl.SSLError as error:
                raise MalformedTraffic(f"broken TLS: {_reason(error)}") from error
            else:
                # All that is decrypted already comes along: fewer, larger pieces.
                while len(data) < most and self._tls.pending():
                    data += self._tls.read(most - len(data))
                return data

    async def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._tls.write(rest[:CHUNK_BYTES]) :]
            except ssl.SSLError as error:
                raise MalformedTraffic(f"broken TLS: {_reason(error)}") from error
            await self._flush()

    def end_writing(self) -> None:
        """Says in TLS that nothing more comes, if the peer can still be told without waiting."""
        with contextlib.suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self.inner.sock.send(self._outgoing.read())
        self.inner.end_writing()

    def has_ended(self) -> bool:
        """For a connection kept for the next request: anything that came meanwhile makes it unfit."""
        return self.inner.has_ended() or bool(self._kept) or bool(self._tls.pending())

    def close(self) -> None:
        self.inner.close()

    def reset(self) -> None:
        self.inner.reset()

    async def _more(self) -> bool:
        data = await self.inner.read(_RECORDS)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            # Records must leave in the order in which they were made, also when both directions are busy.
            async with self._sending:
                if data := self._outgoing.read():
                    await self.inner.write(data)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return (error.reason or "unknown").replace("_", " ").lower()
