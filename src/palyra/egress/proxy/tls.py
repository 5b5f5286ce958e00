"""TLS over a connection that was judged and dialled: the certificate must be the target's, whatever the address."""

import asyncio
import contextlib
import ssl
from typing import Final

from palyra.egress.client.request import Connection
from palyra.egress.domain.refusal import HandshakeTimeout, MalformedTraffic
from palyra.egress.limits import CHUNK_BYTES, FETCH_CHUNK_BYTES, TLS_HANDSHAKE_SECONDS
from palyra.egress.proxy.socket_stream import SocketStream
from palyra.errors import Failed

# TLS over a ``SocketStream``, as server or as client, with the same reading and writing as the stream beneath it.
#
# The event loop's own TLS cannot begin with bytes that were already read, and a peek at the hello has read them.

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


class CertificateRefused(Failed):
    code = "fetch.certificate_refused"
    hint = "the server could not prove that it is the host; a private authority's certificate goes into egress.ca_file"
    http_status = 502


class TlsFailed(Failed):
    code = "fetch.tls_failed"
    hint = "the server does not speak TLS 1.2 or later as it should"
    http_status = 502


def client_context(ca_file: str = "") -> ssl.SSLContext:
    """Verification as the system has it, plus one file of authorities. The environment's key log is never honoured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


class TlsConnection:
    """Reads and writes like the connection beneath it. ``cut_off`` tells that the peer ended without saying so."""

    def __init__(self, inner: Connection, context: ssl.SSLContext, host: str) -> None:
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._host = host
        self.cut_off = False

    @property
    def version(self) -> str:
        return self._tls.version() or ""

    async def handshake(self) -> None:
        try:
            async with asyncio.timeout(TLS_HANDSHAKE_SECONDS):
                while True:
                    try:
                        self._tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        await self._flush()
                        await self._more()
                await self._flush()
        except ssl.SSLCertVerificationError as error:
            await self._say_why()
            raise CertificateRefused(
                f"the certificate of {self._host} is not accepted: {error.verify_message}", host=self._host
            ) from error
        except ssl.SSLError as error:
            await self._say_why()
            raise TlsFailed(
                f"the TLS handshake with {self._host} failed: {_failure_reason(error)}", host=self._host
            ) from error
        except TimeoutError:
            raise TlsFailed(
                f"the TLS handshake with {self._host} took longer than {TLS_HANDSHAKE_SECONDS:g} s", host=self._host
            ) from None

    async def read(self, most: int) -> bytes:
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                # Seen here, where nothing of TLS is left to be read: what an end without a word is to the library
                # differs between versions of Python, and for some it is an ordinary one.
                if not await self._more():
                    self.cut_off = True
                    return b""
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                self.cut_off = True
                return b""
            except ssl.SSLError as error:
                raise TlsFailed(f"the TLS connection to {self._host} broke: {_failure_reason(error)}") from error

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._tls.write(rest[:FETCH_CHUNK_BYTES]) :]
            except ssl.SSLError as error:
                raise TlsFailed(f"the TLS connection to {self._host} broke: {_failure_reason(error)}") from error
            await self._flush()

    def close(self) -> None:
        self._inner.close()

    async def _more(self) -> bool:
        """Whether anything came."""
        if data := await self._inner.read(FETCH_CHUNK_BYTES):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._inner.write(data)

    async def _say_why(self) -> None:
        """The alert tells the peer what it did wrong; whether it hears is its own affair."""
        with contextlib.suppress(Exception):
            await self._flush()


def _failure_reason(error: ssl.SSLError) -> str:
    return (error.reason or type(error).__name__).replace("_", " ").lower()
