"""What is written in an archive that should not be: secrets, and names of hosts the skill may not reach."""

import re
from collections.abc import Iterator
from typing import Final

from palyra.egress.host_name import canonical_host
from palyra.egress.rules import HostRules
from palyra.errors import PalyraError
from palyra.skills.artifact import SkillArtifact
from palyra.skills.findings import Finding, finding

_SHOWN_HOSTS: Final = 5
# Credentials that can be told from chance by their form. The value itself is never shown.
_SECRETS: Final = (
    ("a private key", re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----[\r\n]+[A-Za-z0-9+/=\r\n]{40}")),
    ("an AWS access key", re.compile(rb"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Z0-9])")),
    ("a GitHub token", re.compile(rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{82})")),
    ("a GitLab token", re.compile(rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20}")),
    ("a Slack token", re.compile(rb"(?<![A-Za-z0-9])xox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}")),
    ("a Google API key", re.compile(rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    ("a Stripe key", re.compile(rb"(?<![A-Za-z0-9])[rs]k_live_[A-Za-z0-9]{24,}")),
    ("an npm token", re.compile(rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])")),
    ("an API key", re.compile(rb"(?<![A-Za-z0-9])sk-(?:ant-|proj-)[A-Za-z0-9_-]{32,}")),
    ("a Palyra token", re.compile(rb"(?<![A-Za-z0-9])plr_[A-Za-z0-9_-]{32,}")),
    (
        "a password in an address",
        re.compile(rb"https?://[^\s/@:\"'<>]{1,64}:[^\s/@\"'<>]{4,64}@[A-Za-z0-9.-]+\.[a-z]+"),
    ),
)
_URL: Final = re.compile(rb"https?://([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(?::([0-9]{1,5}))?")
# Names that nobody can reach: RFC 2606 and the machine itself.
_EXAMPLES: Final = (".example", ".invalid", ".test", ".localhost", "example.com", "example.net", "example.org")


def audit_content(artifact: SkillArtifact) -> Iterator[Finding]:
    allowed = HostRules(artifact.manifest.capabilities.http_egress_allowlist)
    for entry, data in artifact.signed_entries():
        for what, pattern in _SECRETS:
            match = pattern.search(data)
            if match:
                line = None if b"\0" in data[:1024] else data.count(b"\n", 0, match.start()) + 1
                yield finding("embedded-secret", entry, f"{what} at byte {match.start()}", line=line)
        if entry.startswith(("modules/", "assets/")):
            yield from _hosts(entry, data, allowed)


def _hosts(entry: str, data: bytes, allowed: HostRules) -> Iterator[Finding]:
    """One finding for each entry, however many names: an interpreter's own documentation has dozens."""
    named: dict[str, None] = {}
    for match in _URL.finditer(data):
        try:
            host = canonical_host(match.group(1).decode("ascii"))
        except PalyraError:
            continue
        port = int(match.group(2)) if match.group(2) else None
        harmless = host.endswith(_EXAMPLES) or "." not in host
        if not harmless and not allowed.cover(host, port):
            named[host] = None
    if named:
        hosts = list(named)
        shown = ", ".join(hosts[:_SHOWN_HOSTS])
        rest = f" and {len(hosts) - _SHOWN_HOSTS} more" if len(hosts) > _SHOWN_HOSTS else ""
        yield finding("url-not-allowed", entry, f"it names {shown}{rest}")
