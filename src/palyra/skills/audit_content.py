"""What is written in an archive that should not be: secrets, and names of hosts the skill may not reach."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from palyra.egress.host_name import canonical_host
from palyra.egress.rules import HostRules
from palyra.errors import PalyraError
from palyra.skills.artifact import ASSETS, MODULES, SkillArtifact
from palyra.skills.findings import Finding, finding
from palyra.skills.limits import MAX_AUDITED_PLACES

_SHOWN_HOSTS: Final = 5


class _Credential(msgspec.Struct, frozen=True):
    """``starts`` are looked for first: a search for fixed bytes is a hundred times faster than one for a pattern."""

    what: str
    starts: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


def _credential(what: str, starts: tuple[bytes, ...], rest: bytes) -> _Credential:
    return _Credential(what, starts, re.compile(rb"(?<![A-Za-z0-9])" + rest))


# Credentials that can be told from chance by their form. The value itself is never shown.
_CREDENTIALS: Final = (
    _credential(
        "a private key",
        (b"-----BEGIN ",),
        rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----[\r\n]+[A-Za-z0-9+/=\r\n]{40}",
    ),
    _credential("an AWS access key", (b"AKIA", b"ASIA"), rb"A[KS]IA[A-Z2-7]{16}(?![A-Z0-9])"),
    _credential(
        "a GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        rb"(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{82})",
    ),
    _credential("a GitLab token", (b"glpat-",), rb"glpat-[A-Za-z0-9_-]{20}"),
    _credential("a Slack token", (b"xox",), rb"xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    _credential("a Google API key", (b"AIza",), rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _credential("a Stripe key", (b"sk_live_", b"rk_live_"), rb"[rs]k_live_[A-Za-z0-9]{24,}"),
    _credential("an npm token", (b"npm_",), rb"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _credential("an API key", (b"sk-ant-", b"sk-proj-"), rb"sk-(?:ant-|proj-)[A-Za-z0-9_-]{32,}"),
    _credential("a Palyra token", (b"plr_",), rb"plr_[A-Za-z0-9_-]{32,}"),
    _credential(
        "a password in an address",
        (b"http://", b"https://"),
        rb"https?://[^\s/@:\"'<>]{1,64}:[^\s/@\"'<>]{4,64}@[A-Za-z0-9.-]+\.[a-z]+",
    ),
)
_SCHEMES: Final = (b"http", b"https", b"ws", b"wss")
_LONGEST_SCHEME: Final = max(map(len, _SCHEMES))
# Behind a scheme, as it is and as JSON may escape it.
_SLASHES: Final = (b"://", b":\\/\\/")
_NAME: Final = rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)"
# In brackets an IPv6 address, in its longest spelling with the last part written as IPv4; a zone makes it no other.
_IPV6: Final = rb"\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})(?:%[^\]\"'<>\x00-\x20\x7f-\xff]{0,64})?\]"
_HOST: Final = rb"(?:" + _NAME + rb"|" + _IPV6 + rb")(?::(?P<port>[0-9]{1,5}))?"
# Without and with a user before the host. In a text nobody can tell where an address ends, so both are looked at.
_AUTHORITIES: Final = (
    re.compile(rb":(?:\\?/){2}" + _HOST),
    re.compile(rb":(?:\\?/){2}[^/@\"'<>\\?#\x00-\x20\x7f-\xff]{0,128}@" + _HOST),
)
# A last part that is a number makes many programs read the whole as an IPv4 address: ``127.1``, ``0x7f000001``.
_IPV4_TO_SOME: Final = re.compile(r"(?:[0-9a-z_-]{1,63}\.){0,3}(?:[0-9]+|0x[0-9a-f]*)", re.IGNORECASE)
# Names that nobody can reach: RFC 2606 and the machine itself.
_EXAMPLES: Final = (".example", ".invalid", ".test", ".localhost", ".example.com", ".example.net", ".example.org")


class _TooMany(Exception):
    """There are more places to look at than an audit looks at."""


class _Places:
    """Those of one kind in a whole archive. Beyond the limit it is made of them to keep us busy."""

    def __init__(self) -> None:
        self._left = MAX_AUDITED_PLACES

    def of(self, data: bytes, starts: tuple[bytes, ...]) -> Iterator[int]:
        for start in starts:
            at = data.find(start)
            while at >= 0:
                if not self._left:
                    raise _TooMany
                self._left -= 1
                yield at
                at = data.find(start, at + 1)


def audit_content(artifact: SkillArtifact) -> Iterator[Finding]:
    allowed = HostRules(artifact.manifest.capabilities.http_egress_allowlist)
    addresses, places = _Places(), {credential.what: _Places() for credential in _CREDENTIALS}
    for entry, data in artifact.signed_entries():
        for credential in _CREDENTIALS:
            try:
                found = _first(data, credential, places[credential.what])
            except _TooMany:
                yield finding("content-crowded", entry, f"too many places that may be {credential.what}")
                continue
            if found is not None:
                line = None if b"\0" in data[:1024] else data.count(b"\n", 0, found.start()) + 1
                yield finding("embedded-secret", entry, f"{credential.what} at byte {found.start()}", line=line)
        if entry.startswith((MODULES, ASSETS)):
            yield from _hosts(entry, data, allowed, addresses)


def _first(data: bytes, credential: _Credential, places: _Places) -> re.Match[bytes] | None:
    matches = (credential.pattern.match(data, at) for at in places.of(data, credential.starts))
    return next((found for found in matches if found is not None), None)


def _hosts(entry: str, data: bytes, allowed: HostRules, places: _Places) -> Iterator[Finding]:
    """One finding for each entry, however many names: an interpreter's own documentation has dozens."""
    authorities: dict[tuple[str, bytes | None], None] = {}
    try:
        for at in places.of(data, _SLASHES):
            if data[max(0, at - _LONGEST_SCHEME) : at].lower().endswith(_SCHEMES):
                matches = (pattern.match(data, at) for pattern in _AUTHORITIES)
                authorities |= {(_host(found), found["port"]): None for found in matches if found is not None}
    except _TooMany:
        yield finding("content-crowded", entry, "too many addresses")
    named: dict[str, None] = {}
    for name, number in authorities:
        try:
            host = canonical_host(name)
        except PalyraError:
            if _IPV4_TO_SOME.fullmatch(name):
                # Nobody can ask for it in this spelling, so it is in no list of what was asked for.
                named[name] = None
            continue
        port = int(number) if number else None
        harmless = f".{host}".endswith(_EXAMPLES) or not ("." in host or ":" in host)
        if not harmless and not allowed.cover(host, port):
            named[f"[{host}]" if ":" in host else host] = None
    if named:
        hosts = list(named)
        shown = ", ".join(hosts[:_SHOWN_HOSTS])
        rest = f" and {len(hosts) - _SHOWN_HOSTS} more" if len(hosts) > _SHOWN_HOSTS else ""
        yield finding("url-not-allowed", entry, f"it names {shown}{rest}")


def _host(found: re.Match[bytes]) -> str:
    name, address = found["name"], found["ipv6"]
    return name.decode("ascii") if address is None else f"[{address.decode('ascii')}]"
