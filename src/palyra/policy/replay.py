"""Decides recorded requests again under other policies and tells which verdicts change."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from palyra.policy.decision import Outcome
from palyra.policy.port import PolicyPort
from palyra.policy.request import UnreadableRequest, policy_request_from_json
from palyra.secret import REDACTED

# How the journal marks a string it did not keep whole. What was decided on is gone, so it cannot be decided again.
_SHORTENED = re.compile(r"\[clipped: [0-9]+ characters, sha256 [0-9a-f]{64}\]\Z|" + re.escape(REDACTED))


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One ``call.decided`` event. ``request`` is its ``policy_request``, as JSON values."""

    seq: int
    call_id: str
    outcome: str
    request: Any
    policies: tuple[str, ...] = ()


class VerdictChanged(msgspec.Struct, frozen=True, kw_only=True, tag="changed", tag_field="kind"):
    seq: int
    call_id: str
    principal: str
    action: str
    resource: str
    old: str
    new: Outcome
    old_policies: tuple[str, ...]
    new_policies: tuple[str, ...]
    reasons: tuple[str, ...]


class NotReplayable(msgspec.Struct, frozen=True, kw_only=True, tag="not_replayable", tag_field="kind"):
    """A record that cannot be decided again. It is listed, because silence would read as "unchanged"."""

    seq: int
    call_id: str
    old: str
    why: str


ReplayFinding: TypeAlias = VerdictChanged | NotReplayable


def replay(records: Iterable[RecordedDecision], engine: PolicyPort) -> Iterator[ReplayFinding]:
    """Every verdict that changes, in the order of the records.

    The request's entities are used as they were recorded, memberships of sets included, so that what is compared is
    the policies alone.
    """
    for record in records:
        try:
            if _is_shortened(record.request):
                raise UnreadableRequest("a part of the request was redacted or shortened when it was recorded")
            request = policy_request_from_json(record.request)
        except UnreadableRequest as error:
            yield NotReplayable(seq=record.seq, call_id=record.call_id, old=record.outcome, why=error.message)
            continue
        decision = engine.decide(request)
        if decision.outcome.value != record.outcome:
            yield VerdictChanged(
                seq=record.seq,
                call_id=record.call_id,
                principal=str(request.principal.uid),
                action=request.action,
                resource=str(request.resource.uid),
                old=record.outcome,
                new=decision.outcome,
                old_policies=record.policies,
                new_policies=decision.policies,
                reasons=decision.reasons,
            )


def _is_shortened(value: Any) -> bool:
    match value:
        case str():
            return _SHORTENED.search(value) is not None
        case dict():
            return any(_is_shortened(key) or _is_shortened(item) for key, item in value.items())
        case list():
            return any(map(_is_shortened, value))
        case _:
            return False
