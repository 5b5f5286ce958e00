"""TLS over a judged and dialled connection. The certificate must be the target's, whatever the address.

The event loop's own TLS cannot begin with bytes that were already read, and the look at a hello has read them.
"""

import asyncio
import contextlib
import ssl
from abc import abstractmethod
from typing import Protocol

from palyra.egress.limits import CHUNK_BYTES, FETCH_CHUNK_BYTES, TLS_HANDSHAKE_SECONDS
from palyra.errors import PalyraError


class Connection(Protocol):
    """A byte stream to a judged address or from a client."""

    async def read(self, most: int) -> bytes:
        """Return some bytes; none at the peer's end of the stream."""
        ...

    async def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class TlsStream:
    """Reads and writes like the connection beneath it. ``cut_off``: the peer ended without the goodbye of TLS."""

    def __init__(
        self, inner: Connection, context: ssl.SSLContext, *, server_side: bool = False, server_name: str | None = None
    ) -> None:
        self.inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._sending = asyncio.Lock()
        self.cut_off = False

    @abstractmethod
    def failure(self, error: ssl.SSLError | TimeoutError, *, in_handshake: bool) -> PalyraError:
        """Return the error to raise for an error of the TLS library or an expired deadline."""

    @property
    def version(self) -> str:
        return self._tls.version() or ""

    async def handshake(self, seconds: float = TLS_HANDSHAKE_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        self._tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        await self._flush()
                        await self._receive()
                await self._flush()
        except TimeoutError as error:
            raise self.failure(error, in_handshake=True) from None
        except ssl.SSLError as error:
            # The alert tells the peer what it did wrong.
            with contextlib.suppress(OSError, PalyraError):
                await self._flush()
            raise self.failure(error, in_handshake=True) from error

    async def read(self, most: int = CHUNK_BYTES) -> bytes:
        """Return some bytes; none at the peer's end of the stream, with or without a goodbye in TLS."""
        while True:
            try:
                data = self._tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                # Versions of Python differ in what they make of an end without a goodbye; here nothing of TLS is left.
                if not await self._receive():
                    self.cut_off = True
                    return b""
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                self.cut_off = True
                return b""
            except ssl.SSLError as error:
                raise self.failure(error, in_handshake=False) from error
            else:
                # Fewer, larger pieces: take all that is decrypted already.
                while len(data) < most and self._tls.pending():
                    data += self._tls.read(most - len(data))
                return data

    async def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._tls.write(rest[:CHUNK_BYTES]) :]
            except ssl.SSLError as error:
                raise self.failure(error, in_handshake=False) from error
            await self._flush()

    def close(self) -> None:
        self.inner.close()

    async def _receive(self) -> bool:
        """Feed the TLS library; return False at the peer's end."""
        if data := await self.inner.read(FETCH_CHUNK_BYTES):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            # Records leave in the order in which they were made, also when both directions are busy.
            async with self._sending:
                if data := self._outgoing.read():
                    await self.inner.write(data)


def reason_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return (error.reason or type(error).__name__).replace("_", " ").lower()


def client_context(ca_file: str = "") -> ssl.SSLContext:
    """Verify as the system does, with one more file of authorities. Ignore the environment's key log."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context
