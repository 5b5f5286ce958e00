"""An operator's own proxy between us and the world.

Targets are judged here all the same. What is sent on is the judged address, so that the upstream proxy cannot be led to
another one; only an operator whose network has no DNS of its own lets names through (``send_names``).
"""

import re
from typing import Final, Literal, Self

import msgspec

from palyra.egress.host_name import canonical_host
from palyra.egress.target import Target
from palyra.errors import InvalidInput
from palyra.secret import Secret

_KINDS: Final = {"http": ("connect", False), "socks5": ("socks5", False), "socks5h": ("socks5", True)}


class BadUpstream(InvalidInput):
    code = "egress.bad_upstream"
    hint = "write http://HOST:PORT, socks5://HOST:PORT, or socks5h://HOST:PORT to leave names to the proxy"


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where the operator's proxy is and how it is spoken to. ``credentials`` are ``user:password``."""

    kind: Literal["connect", "socks5"]
    host: str
    port: int
    send_names: bool = False
    credentials: Secret | None = None

    @classmethod
    def parse(cls, raw: str, *, credentials: Secret | None = None) -> Self:
        found = re.fullmatch(r"([a-z0-9]+)://([^/@]+?)/?", raw)
        if found is None or found.group(1) not in _KINDS:
            raise BadUpstream(f"{raw!r} is no upstream proxy")
        where = Target.from_authority(found.group(2), scheme="tcp")
        kind, send_names = _KINDS[found.group(1)]
        return cls(
            kind="connect" if kind == "connect" else "socks5",
            host=canonical_host(where.host),
            port=where.port,
            send_names=send_names,
            credentials=credentials,
        )
