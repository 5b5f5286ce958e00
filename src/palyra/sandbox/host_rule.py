"""Host names in one spelling, and rules that allow them: ``HOST``, ``HOST:PORT``, ``*.example.com``.

This is the small judge of the preflight check. It stands alone so that the egress policy can take its place.
"""

import ipaddress
import re
import unicodedata
from typing import Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.sandbox.guard_limits import MAX_HOST_CHARS, MAX_LABEL_CHARS, MAX_PORT

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
# A last label that begins like a number makes resolvers read the whole name as an IPv4 address.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Old and new IDNA map these to different names; the last is a full stop to some.
_DEVIATIONS: Final = frozenset("ßẞς\u200c\u200d\u3002")


class BadHostRule(InvalidInput):
    code = "sandbox.bad_host_rule"
    hint = "write HOST, HOST:PORT or *.example.com; every host is allowed only by the egress mode none"


class OddHost(InvalidInput):
    code = "sandbox.odd_host"
    hint = "write the host plainly: lower-case letters, digits and hyphens, or an address in its usual form"


def canonical_host(raw: str) -> str:
    """The one spelling of a host. Case, a trailing dot and IDNA are folded; anything odder is refused, not guessed."""
    host = raw.removesuffix(".").lower()
    if host.startswith("[") and host.endswith("]"):
        try:
            # A zone, after %, is the business of one machine's interfaces.
            return str(ipaddress.IPv6Address(host[1:-1].replace("%", "?")))
        except ValueError:
            raise OddHost(f"{raw!r} is no IPv6 address") from None
    if not host.isascii():
        host = _to_ascii(raw.removesuffix("."))
    labels = host.split(".")
    if len(host) > MAX_HOST_CHARS or not all(
        _LABEL.fullmatch(label) and len(label) <= MAX_LABEL_CHARS for label in labels
    ):
        raise OddHost(f"{raw!r} is no host name")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise OddHost(f"{raw!r} is an address in an odd spelling") from None
    return host


def _to_ascii(host: str) -> str:
    if unicodedata.normalize("NFKC", host) != host or _DEVIATIONS & set(host):
        raise OddHost(f"{host!r} has characters that programs read differently")
    try:
        return host.lower().encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise OddHost(f"{host!r} is no host name") from None


class HostRule(msgspec.Struct, frozen=True):
    """One allowed host. ``port`` None is every port; ``below`` allows the names beneath the host and not itself."""

    host: str
    port: int | None = None
    below: bool = False

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = re.fullmatch(r"(\*\.)?(\[[^\]]*\]|[^:\[\]/@]+)(:([0-9]{1,5}))?", raw)
        if found is None or "*" in found.group(2):
            raise BadHostRule(f"{raw!r} is no host rule")
        port = None if found.group(4) is None else int(found.group(4))
        if port is not None and not 1 <= port <= MAX_PORT:
            raise BadHostRule(f"{raw!r} has no such port")
        try:
            host = canonical_host(found.group(2))
        except OddHost as odd:
            raise BadHostRule(f"{raw!r} is no host rule: {odd.message}") from None
        below = found.group(1) is not None
        if below and ("." not in host or host[-1].isdigit() or ":" in host):
            raise BadHostRule(f"{raw!r} would allow a whole top-level domain, or parts of an address")
        return cls(host=host, port=port, below=below)

    def covers(self, host: str, port: int | None) -> bool:
        """``host`` is canonical. A port that nobody said is not held against a rule that names one."""
        same = host.endswith("." + self.host) if self.below else host == self.host
        return same and (self.port is None or port is None or port == self.port)


class HostRules:
    """An empty list allows nothing."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        self._rules = tuple(map(HostRule.parse, rules))

    def cover(self, host: str, port: int | None) -> bool:
        return any(rule.covers(host, port) for rule in self._rules)
