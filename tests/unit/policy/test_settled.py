"""Policies with a part of the context settled, and that they answer as the ones they were made of."""

from collections.abc import Callable
from typing import Any

import cedarpy
import msgspec
import pytest

from palyra.policy import cedar
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Answer, Outcome
from palyra.policy.limits import MAX_SETTLED_PER_SLICE, MIN_ASKED_TO_SETTLE
from palyra.policy.request import PolicyRequest
from palyra.policy.settled import settle

Ask = Callable[..., PolicyRequest]
EngineOf = Callable[..., CedarEngine]

CLI = {"__entity": {"type": "Channel", "id": "cli"}}


@pytest.mark.parametrize(
    ("condition", "becomes"),
    [
        ("context.approved", "false"),
        ("context has approved && context has run", "true && context has run"),
        ('context["channel"] in ChannelSet::"a"', 'Channel::"cli" in ChannelSet::"a"'),
        ("resource.approved && principal has channel", "resource.approved && principal has channel"),
        ('{approved: context.run}.approved == "x"', '{approved: context.run}.approved == "x"'),
        ("{left: context.approved, attr: 1}.left", "{left: false, attr: 1}.left"),
        ("[1, 2].contains(if context.approved then 1 else 3)", "[1, 2].contains(if false then 1 else 3)"),
        ("context.channel.level > 1", 'Channel::"cli".level > 1'),
    ],
)
def test_where_policies_look_at_it_the_value_stands(condition: str, becomes: str) -> None:
    def parsed(text: str) -> Any:
        policy = f"permit (principal, action, resource) when {{ {text} }} unless {{ {text} }};"
        return msgspec.json.decode(cedarpy.policies_to_json_str(policy))

    given = parsed(condition)
    assert settle(given, {"approved": False, "channel": CLI}) == parsed(becomes)
    assert given == parsed(condition)


def settled_of(engine: CedarEngine) -> list[Any]:
    return [settled for part in engine._slices._kept.values() for settled in part.settled]


LIMIT = (
    '@id("limit") forbid(principal, action == Action::"tool.execute", resource) when { context.argument_bytes > 100 };'
)


def test_a_slice_that_is_asked_often_is_settled_and_answers_the_same(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of(LIMIT)
    for size in range(MIN_ASKED_TO_SETTLE):
        assert settled_of(engine) == []
        assert engine.decide(ask(argument_bytes=size)).policies == ("baseline.allowed-tools",)
    assert len(settled_of(engine)) == 1
    assert engine.decide(ask(argument_bytes=50)).policies == ("baseline.allowed-tools",)
    assert engine.decide(ask(argument_bytes=101)).policies == ("limit",)
    # Another channel, and approval, are other values.
    assert engine.decide(ask(argument_bytes=51, channel="irc")).outcome is Outcome.DENY
    assert engine.decide(ask(argument_bytes=52, tool="fs.write")).outcome is Outcome.NEEDS_APPROVAL
    assert engine.decide(ask(argument_bytes=53, tool="fs.write", approved=True)).outcome is Outcome.ALLOW


def test_settled_slices_are_few_and_small(engine_of: EngineOf, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(LIMIT)
    for number in range(3 * MAX_SETTLED_PER_SLICE):
        engine.evaluate(ask(argument_bytes=number, channel=f"c{number}"))
    assert len(settled_of(engine)) == MAX_SETTLED_PER_SLICE
    monkeypatch.setattr(cedar, "MAX_SETTLED_POLICIES", 1)
    large = engine_of(LIMIT)
    for number in range(2 * MIN_ASKED_TO_SETTLE):
        large.evaluate(ask(argument_bytes=number))
    assert settled_of(large) == []


def test_policies_nested_too_deeply_for_json_are_asked_as_they_are_written(engine_of: EngineOf, ask: Ask) -> None:
    chain = " || ".join(f"context.argument_bytes == {number}" for number in range(100, 160))
    engine = engine_of(
        f'@id("chain") forbid(principal, action == Action::"tool.execute", resource) when {{ {chain} }};'
    )
    for size in range(2 * MIN_ASKED_TO_SETTLE):
        assert engine.evaluate(ask(argument_bytes=size)).answer is Answer.ALLOW
    assert settled_of(engine) == []
    assert engine.evaluate(ask(argument_bytes=159)).policies == ("chain",)
