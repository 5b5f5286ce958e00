"""What of the traffic that was refused is held against the worker, and told to the daemon."""

from typing import Final

import msgspec

from palyra.egress.events import Refused
from palyra.egress.rules import find_rule, parse_rules
from palyra.workers.egress import limits
from palyra.workers.egress.lease_grant import LeaseAccess

# The target was the lease's to reach, and the lease is over.
LEASE_OUTLIVED: Final = "egress.lease_outlived"


class Violation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    worker_id: str
    lease_id: str
    code: str
    host: str = ""
    port: int = 0
    seen_ms: int


class Held(msgspec.Struct, frozen=True):
    """A refusal that counts: its code may be another than the one the tool was told."""

    code: str
    host: str
    port: int


def held_against(access: LeaseAccess, event: Refused, now_ms: int) -> Held | None:
    """None for what honest programs do too.

    When a lease ends under a running program, nothing is allowed any more and the program cannot know: what it was
    allowed until then is only refused for a while. What it never was allowed counts at any time.
    """
    refusal = event.refusal
    if not event.violation:
        return None
    if access.is_over and refusal.host and _was_allowed(access, refusal.host, refusal.port):
        if now_ms < access.ended_ms + limits.ENDED_GRACE_MS:
            return None
        return Held(LEASE_OUTLIVED, refusal.host, refusal.port)
    return Held(refusal.code, refusal.host, refusal.port)


def opened_late(access: LeaseAccess, now_ms: int) -> Held | None:
    """For a worker that wants a door for a lease that is over."""
    late = access.is_over and now_ms >= access.ended_ms + limits.ENDED_GRACE_MS
    return Held(LEASE_OUTLIVED, "", 0) if late else None


class TellOnce:
    """Each kind once for each lease, and so many kinds: the first quarantines, a flood only costs."""

    def __init__(self) -> None:
        self._told: dict[str, set[Held]] = {}

    def is_new(self, lease_id: str, held: Held) -> bool:
        told = self._told.setdefault(lease_id, set())
        if held in told or len(told) >= limits.MAX_VIOLATIONS_PER_LEASE:
            return False
        told.add(held)
        return True

    def is_first(self, lease_id: str) -> bool:
        return len(self._told.get(lease_id, ())) <= 1

    def keep_only(self, lease_ids: frozenset[str]) -> None:
        for lease_id in [each for each in self._told if each not in lease_ids]:
            del self._told[lease_id]


def _was_allowed(access: LeaseAccess, host: str, port: int) -> bool:
    return find_rule(parse_rules(access.grant.hosts), host, port or None) is not None
