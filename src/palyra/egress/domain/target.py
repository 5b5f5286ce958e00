"""Targets of traffic, in the one spelling that is judged, resolved, dialled and recorded.

Programs read a strange name in different ways: one folds full-width digits, one reads ``127.1`` as loopback, one drops
a zero-width space. A program that checks one reading and dials another is fooled. So what every program reads alike
(case, one trailing dot, plain IDNA) is folded, and everything else is refused, not guessed.
"""

import ipaddress
import re
import unicodedata
from functools import lru_cache
from typing import Any, Final, Self

import msgspec

from palyra.egress.domain.address import address_text
from palyra.egress.domain.refusal import OddTarget, SchemeNotAllowed, render
from palyra.egress.limits import MAX_HOST_CHARS, MAX_LABEL_CHARS, MAX_PORT, MAX_URL_CHARS, REMEMBERED_VERDICTS

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
# A last label that is a number makes resolvers read the whole name as an IPv4 address.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Old and new IDNA map these to different names; the last is a full stop to some.
_DEVIATIONS: Final = frozenset("ßẞς\u200c\u200d\u3002")
_ACE: Final = "xn--"
# Some scripts need them, and in the ASCII form there is nothing left to read differently.
_JOINERS: Final = "\u200c\u200d"


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def canonical_host(raw: str) -> str:
    """Return a name in lower-case ASCII without its trailing dot, or an address in canonical text without brackets."""
    # A name in non-ASCII letters is shorter than its ASCII form, so that this bound holds for both.
    if len(raw) > MAX_HOST_CHARS + len("[]"):
        raise _odd(raw, "is longer than any host name")
    if raw.startswith("[") and raw.endswith("]"):
        return _ipv6(raw, raw[1:-1])
    if ":" in raw:
        return _ipv6(raw, raw)
    name = raw.removesuffix(".")
    host = name.lower() if name.isascii() else _to_ascii(raw, name)
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(
        _LABEL.fullmatch(label) and len(label) <= MAX_LABEL_CHARS for label in labels
    ):
        raise _odd(raw, "is no host name")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(raw, host)
    for label in labels:
        if label.startswith(_ACE):
            _check_encoded_label(raw, label)
    return host


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def is_address(host: str) -> bool:
    """Return whether a canonical host is an address. No canonical name ends in a number or holds a colon."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def _ipv4(raw: str, host: str) -> str:
    try:
        address = str(ipaddress.IPv4Address(host))
    except ValueError:
        raise _odd(raw, "is an address in an odd spelling") from None
    if address != raw:
        raise _odd(raw, "is an address in an odd spelling")
    return address


def _ipv6(raw: str, inside: str) -> str:
    # A zone, after %, is the business of one machine's interfaces.
    if "%" in inside:
        raise _odd(raw, "names a zone of one machine")
    try:
        return address_text(ipaddress.IPv6Address(inside))
    except ValueError:
        raise _odd(raw, "is no IPv6 address") from None


def _to_ascii(raw: str, name: str) -> str:
    lower = name.lower()
    if (
        unicodedata.normalize("NFKC", name) != name
        or unicodedata.normalize("NFKC", lower) != lower
        or len(lower) != len(name)
        or lower.casefold() != lower
        or not _DEVIATIONS.isdisjoint(name)
        or any(unicodedata.category(character)[0] in "CZ" for character in name)
        or any(unicodedata.category(label[:1] or "a")[0] == "M" for label in lower.split("."))
    ):
        raise _odd(raw, "has characters that programs read differently")
    try:
        host = lower.encode("idna").decode("ascii").lower()
        # What the encoding dropped or mapped would not come back.
        same = host.encode("ascii").decode("idna") == lower
    except UnicodeError:
        same = False
    if not same:
        raise _odd(raw, "is no host name")
    return host


def _check_encoded_label(raw: str, label: str) -> None:
    """Refuse an ``xn--`` label that does not stand for one non-ASCII label: it would be displayed as another."""
    try:
        plain = label.removeprefix(_ACE).encode("ascii").decode("punycode")
        again = plain.encode("punycode").decode("ascii")
    except (UnicodeError, ValueError, OverflowError):
        raise _odd(raw, "has a label that is not IDNA") from None
    if (
        plain.isascii()
        or _ACE + again != label
        or unicodedata.normalize("NFC", plain) != plain
        or plain.lower() != plain
        or any(unicodedata.category(character)[0] in "CZ" for character in plain if character not in _JOINERS)
    ):
        raise _odd(raw, "has a label that is not IDNA")


def _odd(raw: str, why: str) -> OddTarget:
    return OddTarget(f"{render(raw)!r} {why}", host=render(raw))


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

    Its host is always canonical: building one from an odd or uncanonical host raises.
    """

    scheme: str
    host: str
    port: int

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise SchemeNotAllowed(f"{render(self.scheme)!r} is no scheme that goes out", host=render(self.host))
        if not 1 <= self.port <= MAX_PORT:
            raise OddTarget(f"{self.port} is no port", host=render(self.host))
        if canonical_host(self.host) != self.host:
            raise OddTarget(f"{render(self.host)!r} is not in its canonical spelling", host=render(self.host))

    @classmethod
    def of(cls, host: str, port: int, *, scheme: str) -> Self:
        """Build from the parts of a protocol such as SOCKS. An IPv6 address may have brackets."""
        return cls(scheme, canonical_host(host), port)

    @classmethod
    def from_authority(cls, raw: str, *, scheme: str) -> Self:
        """Parse ``host``, ``host:port`` or ``[v6]:port``. Without a default for the scheme a port is required."""
        odd = _NEVER_IN_AN_AUTHORITY.search(raw)
        if odd is not None:
            raise OddTarget(f"{render(raw)!r} has {odd.group()!r} where a host should be", host=render(raw))
        found = _AUTHORITY.fullmatch(raw)
        if found is None or not found.group(1):
            raise OddTarget(f"{render(raw)!r} is no host and port", host=render(raw))
        text = found.group(2)
        if text is None:
            port = _DEFAULT_PORTS.get(scheme)
            if port is None:
                raise OddTarget(f"{render(raw)!r} has no port", host=render(raw))
        elif _PORT.fullmatch(text) and int(text) <= MAX_PORT:
            port = int(text)
        else:
            raise OddTarget(f"{render(text)!r} is no port", host=render(raw))
        return cls.of(found.group(1), port, scheme=scheme)

    @classmethod
    def from_url(cls, raw: str) -> Self:
        """Parse the target of an http or https URL. Nothing is stripped, decoded or repaired."""
        if len(raw) > MAX_URL_CHARS:
            raise OddTarget(f"the URL is longer than {MAX_URL_CHARS} characters")
        odd = _NEVER_IN_A_URL.search(raw)
        if odd is not None:
            raise OddTarget(f"{render(raw)!r} has {odd.group()!r} in it, which programs read differently")
        found = _URL.fullmatch(raw)
        if found is None:
            raise OddTarget(f"{render(raw)!r} is no URL of the form http://host/path")
        scheme = found.group(1).lower()
        if scheme not in _DEFAULT_PORTS:
            raise SchemeNotAllowed(f"{render(scheme)!r} is neither http nor https")
        return cls.from_authority(found.group(2), scheme=scheme)

    @property
    def is_address(self) -> bool:
        return is_address(self.host)

    @property
    def where(self) -> dict[str, Any]:
        """Return host and port as the details of a refusal."""
        return {"host": self.host, "port": self.port}

    @property
    def authority(self) -> str:
        """``host:port``, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"
