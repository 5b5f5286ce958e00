"""Where traffic wants to go, in the one spelling that is judged, resolved, dialled and recorded."""

import re
from typing import Final, Self

import msgspec

from palyra.egress.host_name import canonical_host, is_address
from palyra.egress.limits import MAX_PORT, MAX_URL_CHARS
from palyra.egress.refusal import OddTarget, SchemeNotAllowed, shown

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
SCHEMES: Final = frozenset({*_DEFAULT_PORTS, "tcp"})
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([/?#].*)?")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?")
# No sign, no leading zero, no other script's digits: what one program reads as 80 another must too.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
# Parsers drop some of these, cut at others, and turn the backslash into a slash.
_NEVER_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
# In an authority they start a user, an escape or another part.
_NEVER_IN_AN_AUTHORITY: Final = re.compile(r"[@%/?#\\<>\"'`{}|^,;&=+$!*()~\s\x00-\x20]")


class Target(msgspec.Struct, frozen=True):
    """A scheme (http, https, or tcp for anything else), a canonical host and a port.

    Whichever way one is made, its host is canonical afterwards: building one from an odd or uncanonical host raises.
    """

    scheme: str
    host: str
    port: int

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise SchemeNotAllowed(f"{shown(self.scheme)!r} is no scheme that goes out", host=shown(self.host))
        if not 1 <= self.port <= MAX_PORT:
            raise OddTarget(f"{self.port} is no port", host=shown(self.host))
        if canonical_host(self.host) != self.host:
            raise OddTarget(f"{shown(self.host)!r} is not in its canonical spelling", host=shown(self.host))

    @classmethod
    def of(cls, host: str, port: int, *, scheme: str) -> Self:
        """From parts that a protocol kept apart, as SOCKS does; an IPv6 address may come with or without brackets."""
        return cls(scheme, canonical_host(host), port)

    @classmethod
    def from_authority(cls, raw: str, *, scheme: str, default_port: int | None = None) -> Self:
        """``host``, ``host:port`` or ``[v6]:port``. Without a default, or the scheme's own, the port must be there."""
        odd = _NEVER_IN_AN_AUTHORITY.search(raw)
        if odd is not None:
            raise OddTarget(f"{shown(raw)!r} has {odd.group()!r} where a host should be", host=shown(raw))
        found = _AUTHORITY.fullmatch(raw)
        if found is None or not found.group(1):
            raise OddTarget(f"{shown(raw)!r} is no host and port", host=shown(raw))
        text = found.group(2)
        if text is None:
            port = default_port or _DEFAULT_PORTS.get(scheme)
            if port is None:
                raise OddTarget(f"{shown(raw)!r} has no port", host=shown(raw))
        elif _PORT.fullmatch(text) and int(text) <= MAX_PORT:
            port = int(text)
        else:
            raise OddTarget(f"{shown(text)!r} is no port", host=shown(raw))
        return cls.of(found.group(1), port, scheme=scheme)

    @classmethod
    def from_url(cls, raw: str) -> Self:
        """The target of an http or https URL. Nothing is stripped, decoded or repaired."""
        if len(raw) > MAX_URL_CHARS:
            raise OddTarget(f"the URL is longer than {MAX_URL_CHARS} characters")
        odd = _NEVER_IN_A_URL.search(raw)
        if odd is not None:
            raise OddTarget(f"{shown(raw)!r} has {odd.group()!r} in it, which programs read differently")
        found = _URL.fullmatch(raw)
        if found is None:
            raise OddTarget(f"{shown(raw)!r} is no URL of the form http://host/path")
        scheme = found.group(1).lower()
        if scheme not in _DEFAULT_PORTS:
            raise SchemeNotAllowed(f"{shown(scheme)!r} is neither http nor https")
        return cls.from_authority(found.group(2), scheme=scheme)

    @property
    def is_address(self) -> bool:
        return is_address(self.host)

    @property
    def authority(self) -> str:
        """``host:port``, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"
