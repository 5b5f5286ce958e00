"""Rules that allow hosts: ``HOST``, ``HOST:PORT``, ``*.example.com``, ``*.example.com:PORT``, an address.

A rule without a port opens the ports of the web, 80 and 443, and no other. A star stands for one or more whole labels
beneath a name of at least two, but not for the name itself. An empty list allows nothing.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Self

import msgspec

from palyra.egress.domain.refusal import OddTarget, render
from palyra.egress.domain.target import canonical_host, is_address
from palyra.egress.limits import MAX_PORT, REMEMBERED_VERDICTS, WEB_PORTS
from palyra.errors import InvalidInput

_RULE: Final = re.compile(r"(\*\.)?(\[[^\]]*\]|[^:\[\]/@*]+)(?::([1-9][0-9]{0,4}))?")


class BadHostRule(InvalidInput):
    code = "egress.bad_host_rule"
    hint = "write HOST, HOST:PORT, *.example.com or *.example.com:PORT; no rule allows every host"


class HostRule(msgspec.Struct, frozen=True):
    """One allowed host. ``port`` None is 80 and 443; ``below`` allows the names beneath the host and not itself."""

    host: str
    port: int | None = None
    below: bool = False

    @classmethod
    def parse(cls, raw: str) -> Self:
        found = _RULE.fullmatch(raw)
        if found is None:
            raise BadHostRule(f"{render(raw)!r} is no host rule")
        port = None if found.group(3) is None else int(found.group(3))
        if port is not None and port > MAX_PORT:
            raise BadHostRule(f"{render(raw)!r} has no such port")
        try:
            host = canonical_host(found.group(2))
        except OddTarget as odd:
            raise BadHostRule(f"{render(raw)!r} is no host rule: {odd.message}") from None
        below = found.group(1) is not None
        if below and ("." not in host or is_address(host)):
            raise BadHostRule(f"{render(raw)!r} would allow a whole top-level domain, or parts of an address")
        return cls(host=host, port=port, below=below)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ("*." if self.below else "") + host + ("" if self.port is None else f":{self.port}")

    @property
    def ports(self) -> tuple[int, ...]:
        return WEB_PORTS if self.port is None else (self.port,)

    @property
    def is_address(self) -> bool:
        return is_address(self.host)

    def names(self, host: str) -> bool:
        """Return whether a canonical host is one of this rule's, for any port."""
        if self.below:
            return host.endswith("." + self.host) and not is_address(host)
        return host == self.host

    def covers(self, host: str, port: int | None) -> bool:
        """Return whether the rule allows a canonical host at a port; port None matches every rule."""
        return self.names(host) and (port is None or port == self.port or (self.port is None and port in WEB_PORTS))


@lru_cache(maxsize=REMEMBERED_VERDICTS)
def parse_rules(texts: tuple[str, ...]) -> tuple[HostRule, ...]:
    """Parse each text, in order; raise ``BadHostRule`` for the first that is not a rule."""
    return tuple(map(HostRule.parse, texts))


def find_rule(rules: Iterable[HostRule], host: str, port: int | None) -> HostRule | None:
    return next((rule for rule in rules if rule.covers(host, port)), None)


def common(first: HostRule, second: HostRule) -> HostRule | None:
    """Intersect two rules; None if they share nothing. Two starred names do so only if one holds the other."""
    ports = tuple(port for port in first.ports if port in second.ports)
    if not ports:
        return None
    narrow = first if _holds(second, first) else second if _holds(first, second) else None
    if narrow is None:
        return None
    return HostRule(narrow.host, None if ports == WEB_PORTS else ports[0], narrow.below)


def is_within(rule: HostRule, ceiling: Iterable[HostRule]) -> bool:
    """Return whether the ceiling allows everything that a rule allows, each port by some rule of it."""
    holding = [other for other in ceiling if _holds(other, rule)]
    return all(any(port in other.ports for other in holding) for port in rule.ports)


def overlap(first: Iterable[HostRule], second: Iterable[HostRule]) -> bool:
    """Return whether any host may be named by a rule of each list, whatever the ports."""
    others = tuple(second)
    return any(
        one.host == other.host or one.names(other.host) or other.names(one.host) for one in first for other in others
    )


def _holds(other: HostRule, rule: HostRule) -> bool:
    if rule.below:
        return other.below and f".{rule.host}".endswith(f".{other.host}")
    return other.names(rule.host)
