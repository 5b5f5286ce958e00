"""HTTP client of http.fetch and of skills: one connection for each hop, through the connector only.

It uses no proxy of the environment and keeps nothing between calls. A hop that the judge or the rules for redirects
refuse is not made.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator

import msgspec

from palyra.egress.client.request import (
    ContentFormat,
    FetchAccess,
    FetchRequest,
    Hop,
    Passed,
    RedirectMode,
    is_redirect,
    next_hop,
    refused,
)
from palyra.egress.domain.events import Closed, Connected, EgressObserver, ResponseRedacted
from palyra.egress.domain.grant import ByteBudget, Meter
from palyra.egress.domain.header_rules import Headers
from palyra.egress.domain.injection import ResponseScan
from palyra.egress.domain.refusal import EgressRefused, MalformedTraffic
from palyra.egress.domain.request_rules import require_request
from palyra.egress.limits import FETCH_CHUNK_BYTES, MAX_INTERIM_RESPONSES, SCAN_AHEAD_BYTES, TLS_HANDSHAKE_SECONDS
from palyra.egress.protocols.http1_body import BodyKind, body_of_response
from palyra.egress.protocols.http1_head import ResponseHead, response_buffer
from palyra.egress.protocols.http1_request import WebAddress, write_request
from palyra.egress.protocols.http_content import ContentDecoder
from palyra.egress.tls import Connection, TlsStream, client_context, reason_of
from palyra.errors import Failed, PalyraError


class Redactions:
    """Remover of the secrets of all requests of one call. Without credentials it changes nothing."""

    def __init__(self) -> None:
        self._each: list[ResponseScan] = []

    def add(self, redaction: ResponseScan) -> None:
        self._each.append(redaction)

    @property
    def times(self) -> int:
        return sum(each.times for each in self._each)

    def whole(self, data: bytes) -> bytes:
        for each in self._each:
            data = each.whole(data)
        return data

    def name(self, name: bytes) -> bytes:
        for each in self._each:
            name = each.name(name)
        return name

    def broken_off(self, data: bytes) -> bytes:
        for each in self._each:
            data = each.broken_off(data)
        return data

    def found_in(self, text: str) -> bool:
        raw = text.encode("utf-8", "surrogatepass")
        return self.whole(raw) != raw


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The last response of a call, as the client read it. ``content`` is unpacked and may be cut."""

    address: WebAddress
    passed: tuple[Passed, ...] = ()
    status: int
    headers: Headers
    content: bytes = b""
    # The content broke off: by the limit, by the server, or by the deadline.
    truncated: bool = False
    left_encoded: str = ""
    redaction: Redactions

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


_SWITCHING_PROTOCOLS = 101
_FIRST_FINAL_STATUS = 200


class ConnectionBroken(Failed):
    code = "fetch.connection_broken"
    hint = "the server ended the connection in the middle; try again"
    http_status = 502


class CertificateRefused(Failed):
    code = "fetch.certificate_refused"
    hint = "the server could not prove that it is the host; a private authority's certificate goes into egress.ca_file"
    http_status = 502


class TlsFailed(Failed):
    code = "fetch.tls_failed"
    hint = "the server does not speak TLS 1.2 or later as it should"
    http_status = 502


class FetchTlsStream(TlsStream):
    """TLS as the client of ``host``. Its errors name the host and count as failures, not as violations."""

    def __init__(self, inner: Connection, context: ssl.SSLContext, host: str) -> None:
        super().__init__(inner, context, server_name=host)
        self._host = host

    def failure(self, error: ssl.SSLError | TimeoutError, *, in_handshake: bool) -> PalyraError:
        host = self._host
        if isinstance(error, ssl.SSLCertVerificationError):
            return CertificateRefused(f"the certificate of {host} is not accepted: {reason_of(error)}", host=host)
        if not isinstance(error, ssl.SSLError):
            seconds = f"{TLS_HANDSHAKE_SECONDS:g} s"
            return TlsFailed(f"the TLS handshake with {host} took longer than {seconds}", host=host)
        if in_handshake:
            return TlsFailed(f"the TLS handshake with {host} failed: {reason_of(error)}", host=host)
        return TlsFailed(f"the TLS connection to {host} broke: {reason_of(error)}")


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    authority: str
    address: str
    tls: str = ""
    secrets: tuple[str, ...] = ()


class FetchClient:
    def __init__(self, observer: EgressObserver, *, ca_file: str = "") -> None:
        self.observer = observer
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """Make the context at first use: reading the system's authorities takes a while."""
        if self._context is None:
            self._context = client_context(self._ca_file)
        return self._context

    def fetch(self, access: FetchAccess, request: FetchRequest) -> "Fetch":
        return Fetch(self, access, request)


class Fetch:
    """Requests of one call. After ``run``, finished or broken off, ``answer`` is the answer so far."""

    def __init__(self, client: FetchClient, access: FetchAccess, request: FetchRequest) -> None:
        self._client = client
        self._access = access
        self._grant = access.grant
        self._request = request
        self._hop = Hop.first(request)
        self._head: ResponseHead | None = None
        self._decoder: ContentDecoder | None = None
        self._whole = False
        self.redactions = Redactions()
        self.budget = ByteBudget(access.grant.max_bytes)
        self.reached: list[Reached] = []

    @property
    def answer(self) -> Answer | None:
        if self._head is None:
            return None
        decoder = self._decoder
        return Answer(
            address=self._hop.address,
            passed=self._hop.passed,
            status=self._head.status,
            headers=self._head.headers,
            content=b"" if decoder is None else decoder.content,
            truncated=not self._whole or (decoder is not None and (decoder.full or decoder.unfinished)),
            left_encoded="" if decoder is None else decoder.left_encoded,
            redaction=self.redactions,
        )

    async def run(self) -> None:
        while True:
            try:
                following = await self._exchange(self._hop)
            except OSError as error:
                raise ConnectionBroken(
                    f"the connection to {self._hop.address.target.authority} broke: {error.strerror or error}"
                ) from error
            if following is None:
                return
            self._hop = following

    async def _exchange(self, hop: Hop) -> Hop | None:
        """Make one request. Return the next hop, or None after the last answer."""
        rules = self._grant.request_rules
        require_request(rules, hop.address.target, hop.method, hop.address.path, hop.headers)
        async with self._connect(hop) as stream:
            # Reveal the secret only after the server has proved its identity.
            headers = hop.headers
            if hop.with_credentials:
                target = hop.address.target
                prepared = await self._access.credentials.prepare(
                    self._grant, target, hop.method, hop.address.path, headers
                )
                self.redactions.add(prepared.redaction)
                headers = prepared.headers
                self.reached[-1] = msgspec.structs.replace(self.reached[-1], secrets=prepared.secrets)
            await stream.write(write_request(hop.address, hop.method, headers, hop.body))
            head, rest = await self._read_head(stream)
            location = next(iter(head.values("location")), None)
            if location is not None and self._request.redirect is not RedirectMode.MANUAL and is_redirect(head.status):
                if self.redactions.found_in(location):
                    raise refused(hop, head.status, "", "it repeats a secret of the request")
                return next_hop(hop, head.status, location, self._request.redirect)
            await self._read_body(stream, head, rest)
            return None

    @contextlib.asynccontextmanager
    async def _connect(self, hop: Hop) -> "AsyncIterator[Connection]":
        client, target = self._client, hop.address.target
        meter = Meter(self.budget)
        connection, address = await self._access.connector.connect(self._grant, target, meter)
        reason = "done"
        try:
            client.observer.observe(self._grant, Connected(target=target, address=address, face="fetch"))
            self.reached.append(Reached(authority=target.authority, address=address))
            if target.scheme == "https":
                secured = FetchTlsStream(connection, client.context, target.host)
                await secured.handshake()
                self.reached[-1] = msgspec.structs.replace(self.reached[-1], tls=secured.version)
                yield secured
            else:
                yield connection
        except PalyraError as error:
            reason = error.code
            raise
        except BaseException:
            reason = "broken off"
            raise
        finally:
            connection.close()
            client.observer.observe(self._grant, Closed(target=target, up=meter.up, down=meter.down, reason=reason))

    async def _read_head(self, stream: Connection) -> tuple[ResponseHead, bytes]:
        buffer, rest = response_buffer(), b""
        for _ in range(MAX_INTERIM_RESPONSES + 1):
            head = buffer.receive(rest) if rest else None
            while head is None:
                data = await stream.read(FETCH_CHUNK_BYTES)
                if not data:
                    raise ConnectionBroken(
                        f"{self._hop.address.target.authority} ended the connection without an answer"
                    )
                head = buffer.receive(data)
            rest = buffer.rest
            if head.status == _SWITCHING_PROTOCOLS:
                raise MalformedTraffic("an answer in another protocol that nobody asked for")
            if head.status >= _FIRST_FINAL_STATUS:
                return head, rest
        raise MalformedTraffic(f"more than {MAX_INTERIM_RESPONSES} informational answers")

    async def _read_body(self, stream: Connection, head: ResponseHead, rest: bytes) -> None:
        request = self._request
        body = body_of_response(head, self._hop.method)
        if body.finished:
            self._head, self._whole = head, True
            return
        decoder = ContentDecoder(
            ", ".join(head.values("content-encoding")),
            request.max_bytes + SCAN_AHEAD_BYTES,
            # What stays packed cannot be searched for the secrets that were sent.
            keep_unknown=request.format in (ContentFormat.AUTO, ContentFormat.RAW_BASE64)
            and not any(each.secrets for each in self.reached),
        )
        self._head, self._decoder = head, decoder
        data = rest
        while not decoder.full:
            if data:
                payload, _, finished = body.decode(data)
                decoder.receive(payload)
                if finished:
                    self._whole = True
                    return
            data = await stream.read(FETCH_CHUNK_BYTES)
            if not data:
                body.closed()
                # Over TLS an end that nobody announced may be an attacker's.
                unannounced = body.kind is BodyKind.UNTIL_CLOSE and getattr(stream, "cut_off", False)
                self._whole = not unannounced
                return

    def note_redactions(self) -> None:
        """Report the secrets that the finished result was cleaned of."""
        refs = [ref for each in self.reached for ref in each.secrets]
        if refs and (times := self.redactions.times):
            self._client.observer.observe(
                self._grant,
                ResponseRedacted(
                    target=self._hop.address.target, secret_ref=", ".join(dict.fromkeys(refs)), times=times
                ),
            )


def keeps_what_came(error: PalyraError) -> bool:
    """Return whether a part of the answer is worth showing with this error."""
    return isinstance(error, EgressRefused | ConnectionBroken)
