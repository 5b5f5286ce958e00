"""HTTP server of the proxy: CONNECT, absolute-form requests, and origin-form ones.

Origin-form requests come to a synthetic address or through the proxy's own TLS. Bytes in, commands out: each request of
a kept-alive connection is a command. The machine takes no second request before ``next_request`` says that the first
is answered. So answers cannot be mixed up, and no request hides behind an allowed one.
"""

import re
from typing import Final, Literal

import msgspec

from palyra.egress.domain.refusal import (
    EgressRefused,
    HostHeaderMismatch,
    MalformedTraffic,
    OddTarget,
    SchemeNotAllowed,
)
from palyra.egress.limits import MAX_EARLY_BYTES, MAX_PORT
from palyra.egress.protocols.http1_body import BodyReader, body_of_request
from palyra.egress.protocols.http1_head import (
    RequestHead,
    asks_for_websocket,
    render_request,
    render_response,
    request_buffer,
    separate,
    stays_open,
    upgrade_headers,
)
from palyra.egress.protocols.state_machine import MachineEvent, MachineMisused, MachineState, step


class ProxyState(MachineState):
    HEAD = "head"
    BODY = "body"
    ANSWERING = "answering"
    TUNNEL = "tunnel"
    REFUSED = "refused"


class ProxyEvent(MachineEvent):
    TUNNEL_REQUESTED = "tunnel_requested"
    FORWARD_REQUESTED = "forward_requested"
    REQUEST_WHOLE = "request_whole"
    MALFORMED = "malformed"
    EARLY_BYTES = "early_bytes"
    ANSWERED = "answered"
    UPGRADED = "upgraded"
    REFUSED = "refused"


_S = ProxyState
_E = ProxyEvent
TRANSITIONS: Final[dict[tuple[ProxyState, ProxyEvent], ProxyState]] = {
    (_S.HEAD, _E.TUNNEL_REQUESTED): _S.TUNNEL,
    (_S.HEAD, _E.FORWARD_REQUESTED): _S.BODY,
    (_S.HEAD, _E.MALFORMED): _S.REFUSED,
    (_S.HEAD, _E.REFUSED): _S.REFUSED,
    (_S.BODY, _E.REQUEST_WHOLE): _S.ANSWERING,
    (_S.BODY, _E.MALFORMED): _S.REFUSED,
    (_S.BODY, _E.REFUSED): _S.REFUSED,
    (_S.ANSWERING, _E.EARLY_BYTES): _S.ANSWERING,
    (_S.ANSWERING, _E.MALFORMED): _S.REFUSED,
    (_S.ANSWERING, _E.ANSWERED): _S.HEAD,
    (_S.ANSWERING, _E.UPGRADED): _S.TUNNEL,
    (_S.ANSWERING, _E.REFUSED): _S.REFUSED,
    (_S.TUNNEL, _E.EARLY_BYTES): _S.TUNNEL,
    (_S.TUNNEL, _E.MALFORMED): _S.REFUSED,
    (_S.TUNNEL, _E.REFUSED): _S.REFUSED,
    (_S.REFUSED, _E.EARLY_BYTES): _S.REFUSED,
    (_S.REFUSED, _E.REFUSED): _S.REFUSED,
}


class Tunnel(msgspec.Struct, frozen=True):
    """A CONNECT request. Bytes that came with it are in the machine's ``rest``."""

    authority: str


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """A request to pass on. ``head`` is in origin-form, without hop-by-hop headers; ``head.raw`` are its bytes.

    ``keep_alive``: the client may send another request. ``upgrade``: it asks for a WebSocket.
    """

    head: RequestHead
    target_url: str
    keep_alive: bool
    upgrade: bool = False


class RequestBody(msgspec.Struct, frozen=True):
    """Bytes of the request's body, in the framing they came in."""

    data: bytes


class RequestEnded(msgspec.Struct, frozen=True):
    """End of the request: stop reading until it is answered, then call ``next_request``."""


class Reject(msgspec.Struct, frozen=True):
    """Order to send ``reply`` and close. The journal records ``leaf``."""

    status: int
    body: bytes
    why: str
    leaf: type[EgressRefused] = MalformedTraffic

    @property
    def reply(self) -> bytes:
        return error_reply(self.status, self.body)


ProxyCommand = Tunnel | Forward | RequestBody | RequestEnded | Reject

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_REASONS: Final = {
    # npm and others show this line and not the text below it.
    403: "Forbidden by Palyra",
    400: "Bad Request", 405: "Method Not Allowed", 408: "Request Timeout", 429: "Too Many Requests",
    502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip

# A server must not send back what it was sent where a secret may be in it.
_MIRRORS: Final = frozenset({"TRACE", "TRACK"})
_PORTS: Final = {"http": "80", "https": "443"}
_authority: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([1-9][0-9]{0,4}))?").fullmatch
_absolute: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)(.*)").fullmatch


def error_reply(status: int, body: bytes) -> bytes:
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))))
    head = render_response(status, _REASONS.get(status, "Refused"), "1.1", (*headers, ("Connection", "close")))
    return head + body


def refusal_reply(status: int, refusal: EgressRefused) -> bytes:
    return error_reply(status, refusal_body(type(refusal), refusal.message))


def refusal_body(leaf: type[EgressRefused], why: str) -> bytes:
    return f"{leaf.code}: {why}\n".encode()


class HttpProxyServer:
    """Machine of one client connection. ``origin`` is the scheme of origin-form requests, or None for a proxy.

    ``rest`` holds the bytes after a CONNECT, or after a WebSocket request before its answer.
    """

    def __init__(self, *, origin: Literal["http", "https"] | None = None) -> None:
        self.state = ProxyState.HEAD
        self._held = bytearray()
        self._origin = origin
        self._heads = request_buffer()
        self._body: BodyReader | None = None
        self._upgrade = False

    @property
    def rest(self) -> bytes:
        return bytes(self._held)

    def receive(self, data: bytes) -> list[ProxyCommand]:
        said: list[ProxyCommand] = []
        try:
            while data:
                if self.state is ProxyState.HEAD:
                    data = self._read_head(data, said)
                elif self.state is ProxyState.BODY and self._body is not None:
                    data = self._read_body(self._body, data, said)
                else:
                    self._keep(data)
                    break
        except EgressRefused as refused:
            self._step(ProxyEvent.MALFORMED)
            status = 405 if refused.details.get("method") else 400
            said.append(Reject(status, refusal_body(type(refused), refused.message), refused.message, type(refused)))
        return said

    def next_request(self) -> list[ProxyCommand]:
        """Note that the answer is sent, and read on in what the client sent meanwhile."""
        self._step(ProxyEvent.ANSWERED)
        held, self._held = self._held, bytearray()
        return self.receive(bytes(held))

    def upgraded(self) -> bytes:
        """Note the switch to WebSocket: all further bytes are the tunnel's. Return those the client sent meanwhile."""
        if not self._upgrade:
            raise MachineMisused("the request did not ask for another protocol")
        self._step(ProxyEvent.UPGRADED)
        return self.rest

    def refused(self, status: int, refusal: EgressRefused) -> bytes:
        self._step(ProxyEvent.REFUSED)
        return refusal_reply(status, refusal)

    def _read_head(self, data: bytes, said: list[ProxyCommand]) -> bytes:
        head = self._heads.receive(data)
        if head is None:
            return b""
        rest = self._heads.rest
        if head.method == "CONNECT":
            said.append(self._tunnel(head))
            self._step(ProxyEvent.TUNNEL_REQUESTED)
            return rest
        forward = self._forward(head)
        self._upgrade = forward.upgrade
        self._body = body_of_request(head)
        self._step(ProxyEvent.FORWARD_REQUESTED)
        said.append(forward)
        if self._body.finished:
            self._end(said)
        return rest

    def _read_body(self, body: BodyReader, data: bytes, said: list[ProxyCommand]) -> bytes:
        consumed, finished = body.receive(data)
        said.append(RequestBody(data[:consumed]))
        if finished:
            self._end(said)
        return data[consumed:]

    def _end(self, said: list[ProxyCommand]) -> None:
        self._step(ProxyEvent.REQUEST_WHOLE)
        said.append(RequestEnded())

    def _keep(self, data: bytes) -> None:
        if len(self._held) + len(data) > MAX_EARLY_BYTES and self.state is not ProxyState.REFUSED:
            raise MalformedTraffic("too much sent before an answer")
        self._step(ProxyEvent.EARLY_BYTES)
        if self.state is not ProxyState.REFUSED:
            self._held += data

    def _tunnel(self, head: RequestHead) -> Tunnel:
        if self._origin is not None:
            raise MalformedTraffic("CONNECT to a server that is not a proxy")
        if head.chunked or head.content_length is not None:
            raise MalformedTraffic("CONNECT with a body")
        separate(head.headers)
        host, port = _split(head.target)
        if port is None:
            raise OddTarget("CONNECT without a port")
        if head.host is not None and head.host != head.target:
            named_host, named_port = _split(head.host)
            if named_host != host or named_port not in (None, port):
                raise HostHeaderMismatch("CONNECT to one host with the Host header of another")
        return Tunnel(head.target)

    def _forward(self, head: RequestHead) -> Forward:
        if head.method in _MIRRORS:
            raise MalformedTraffic(f"{head.method} is not passed on", method=head.method)
        expected = head.values("expect")
        if expected and [value.lower() for value in expected] != ["100-continue"]:
            raise MalformedTraffic("an expectation other than 100-continue")
        authority, path, url = self._origin_form(head) if self._origin is not None else _absolute_form(head)
        hops = separate(head.headers)
        upgrade = asks_for_websocket(head, hops)
        kept = tuple([header for header in hops.kept if header[0].lower() != "host"])
        headers = (("Host", authority), *kept, *(upgrade_headers() if upgrade else ()))
        onward = RequestHead(
            method=head.method,
            target=path,
            version=head.version,
            headers=headers,
            raw=render_request(head.method, path, head.version, headers),
            host=authority,
            content_length=head.content_length,
            chunked=head.chunked,
        )
        open_after = stays_open(head.version, hops.options)
        return Forward(head=onward, target_url=url, keep_alive=open_after, upgrade=upgrade)

    def _origin_form(self, head: RequestHead) -> tuple[str, str, str]:
        if head.host is None:
            raise MalformedTraffic("a request that names no host")
        _split(head.host)
        if head.target == "*" and head.method == "OPTIONS":
            return head.host, "*", f"{self._origin}://{head.host}/"
        if not head.target.startswith("/"):
            raise MalformedTraffic("a request target that is not a path")
        return head.host, head.target, f"{self._origin}://{head.host}{head.target}"

    def _step(self, event: ProxyEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)


def _absolute_form(head: RequestHead) -> tuple[str, str, str]:
    found = _absolute(head.target)
    if found is None:
        raise MalformedTraffic("a request to a proxy whose target is no URL")
    scheme, authority, path = found.groups()
    if scheme.lower() != "http":
        raise SchemeNotAllowed("a proxy forwards http URLs; https goes through CONNECT")
    host, port = _split(authority)
    if head.host is not None:
        named_host, named_port = _split(head.host)
        if (named_host, named_port or _PORTS["http"]) != (host, port or _PORTS["http"]):
            raise HostHeaderMismatch("a URL of one host with the Host header of another")
    if not path and head.method == "OPTIONS":
        return authority, "*", f"http://{authority}/"
    path = path if path.startswith("/") else "/" + path
    return authority, path, f"http://{authority}{path}"


def _split(authority: str) -> tuple[str, str | None]:
    found = _authority(authority)
    if found is None:
        raise OddTarget("a host that is not written as HOST or HOST:PORT", host=authority)
    host, port = found.groups()
    if port is not None and int(port) > MAX_PORT:
        raise OddTarget("a port that does not exist", host=authority)
    return host.lower(), port
