"""What of a head concerns only the next connection, and does not go on beyond it.

A client may name further headers in ``Connection`` and so have them removed. Those that a server decides by are not
removed at a stranger's word: such a head is refused.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from palyra.egress.http_head import Headers, RequestHead, ResponseHead, render_response
from palyra.egress.machine_limits import REMEMBERED_OPTIONS
from palyra.egress.refusal import MalformedTraffic

_HOP_BY_HOP: Final = frozenset(
    {
        "connection", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authentication-info",
        "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade",
    }
)  # fmt: skip
_NEVER_REMOVED: Final = frozenset(
    {
        "authorization", "cache-control", "content-encoding", "content-length", "content-range", "content-type",
        "cookie", "expect", "forwarded", "host", "location", "range", "set-cookie", "transfer-encoding",
    }
)  # fmt: skip
_COMMON_OPTIONS: Final = frozenset({"close", "keep-alive", "upgrade", "te", "http2-settings"})
_option: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
WEBSOCKET: Final = "websocket"


class Hops(msgspec.Struct, frozen=True):
    """A head's headers in two: ``kept`` go on, and ``options`` and ``upgrade`` were for us."""

    kept: Headers
    options: frozenset[str]
    upgrade: str


def separate(headers: Headers) -> Hops:
    """Raises ``MalformedTraffic``."""
    kept = []
    options: set[str] = set()
    upgrade = ""
    for header in headers:
        low = header[0].lower()
        if low not in _HOP_BY_HOP:
            kept.append(header)
        elif low == "connection" or low == "proxy-connection":
            options.update(_options(header[1]))
        elif low == "upgrade":
            upgrade = f"{upgrade},{header[1].lower()}" if upgrade else header[1].lower()
    named = options - _COMMON_OPTIONS
    if named:
        if not named.isdisjoint(_NEVER_REMOVED):
            raise MalformedTraffic("a connection option that would remove a header which is not the connection's")
        kept = [header for header in kept if header[0].lower() not in named]
    return Hops(tuple(kept), frozenset(options), upgrade)


@lru_cache(REMEMBERED_OPTIONS)
def _options(value: str) -> frozenset[str]:
    options = frozenset([option.strip(" \t") for option in value.lower().split(",")])
    if not all(map(_option, options)):
        raise MalformedTraffic("a connection option that is no plain word")
    return options


def stays_open(version: str, options: frozenset[str]) -> bool:
    """HTTP/1.0 connections are closed after one exchange, whatever they ask for: their framing was never settled."""
    return version == "1.1" and "close" not in options


def asks_for_websocket(head: RequestHead, hops: Hops) -> bool:
    """Raises ``MalformedTraffic`` for a WebSocket request that could be read as something else too."""
    if "upgrade" not in hops.options or hops.upgrade != WEBSOCKET:
        return False
    if head.method != "GET" or head.version != "1.1" or head.chunked or head.content_length:
        raise MalformedTraffic("a WebSocket request that is not a plain GET")
    return True


def upgrade_headers() -> Headers:
    return (("Connection", "Upgrade"), ("Upgrade", WEBSOCKET))


def relayed_response(head: ResponseHead, *, keep_alive: bool) -> bytes:
    """The head for our client. ``keep_alive`` says whether our connection to it outlives this answer."""
    kept = separate(head.headers).kept
    if head.status == 101:
        kept += upgrade_headers()
    elif not keep_alive and head.status >= 200:
        kept += (("Connection", "close"),)
    return render_response(head.status, head.reason, "1.1", kept)
