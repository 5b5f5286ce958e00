"""TLS over a connection that was judged and dialled: the certificate must be the target's, whatever the address."""

import asyncio
import contextlib
import ssl

from palyra.errors import Failed
from palyra.fetch.limits import CHUNK_BYTES, TLS_HANDSHAKE_SECONDS
from palyra.fetch.ports import Connection


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
            raise TlsFailed(f"the TLS handshake with {self._host} failed: {_reason(error)}", host=self._host) from error
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
                raise TlsFailed(f"the TLS connection to {self._host} broke: {_reason(error)}") from error

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._tls.write(rest[:CHUNK_BYTES]) :]
            except ssl.SSLError as error:
                raise TlsFailed(f"the TLS connection to {self._host} broke: {_reason(error)}") from error
            await self._flush()

    def close(self) -> None:
        self._inner.close()

    async def _more(self) -> bool:
        """Whether anything came."""
        if data := await self._inner.read(CHUNK_BYTES):
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


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or type(error).__name__).replace("_", " ").lower()
