"""Exactly the verdicts that change are told."""

from collections.abc import Callable
from typing import Any

import pytest

from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome
from palyra.policy.dry_run import NotReplayable, RecordedDecision, VerdictChanged, replay
from palyra.policy.request import EntityDirectory, PolicyRequest, policy_request_to_json

Ask = Callable[..., PolicyRequest]
EngineOf = Callable[..., CedarEngine]


def record(seq: int, request: PolicyRequest, engine: CedarEngine) -> RecordedDecision:
    decision = engine.decide(request)
    return RecordedDecision(
        seq=seq,
        call_id=f"call-{seq}",
        outcome=decision.outcome.value,
        policies=decision.policies,
        request=policy_request_to_json(request),
    )


def test_only_changed_verdicts_are_listed(engine_of: EngineOf, ask: Ask) -> None:
    before = engine_of()
    asked = [ask(), ask(tool="fs.write"), ask("agent:other"), ask(tool="http.fetch")]
    records = [record(seq, request, before) for seq, request in enumerate(asked, start=1)]
    assert list(replay(records, before)) == []
    after = engine_of(
        '@id("no-bot") forbid(principal == Agent::"bot", action, resource == Tool::"echo");',
        '@id("fetch") permit(principal, action, resource == Tool::"http.fetch");',
    )
    found = list(replay(records, after))
    assert [(each.seq, each.old, each.new) for each in found if isinstance(each, VerdictChanged)] == [
        (1, "allow", Outcome.DENY),
        (4, "deny", Outcome.ALLOW),
    ]
    first = found[0]
    assert isinstance(first, VerdictChanged)
    assert (first.old_policies, first.new_policies) == (("baseline.allowed-tools",), ("no-bot",))
    assert (first.call_id, first.principal, first.resource) == ("call-1", 'Agent::"bot"', 'Tool::"echo"')


def test_sets_are_those_recorded(engine_of: EngineOf, ask: Ask) -> None:
    records = [record(1, ask(), engine_of())]
    assert list(replay(records, engine_of(directory=EntityDirectory.from_lists()))) == []


@pytest.mark.parametrize(
    "request_as_recorded",
    [
        None,
        {"clipped_bytes": 70000, "sha256": "00"},
        {"version": 99},
        {"version": 1, "context": {"run": f"long[clipped: 900 characters, sha256 {'0' * 64}]"}},
        {"version": 1, "context": {"paths": ["a", "x[redacted]y"]}},
    ],
)
def test_what_cannot_be_decided_again_is_listed(engine_of: EngineOf, request_as_recorded: Any) -> None:
    recorded = RecordedDecision(seq=7, call_id="c", outcome="allow", request=request_as_recorded)
    (finding,) = replay([recorded], engine_of())
    assert isinstance(finding, NotReplayable)
    assert (finding.seq, finding.old) == (7, "allow")
    assert finding.why


def test_records_are_taken_one_by_one(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of()
    endless = (record(seq, ask("agent:x", "other"), engine) for seq in iter(lambda: 1, 0))
    opened = engine_of('@id("open") permit(principal, action, resource);')
    assert next(replay(endless, opened)).seq == 1
