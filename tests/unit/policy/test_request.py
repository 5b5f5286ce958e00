"""A request survives the journal exactly."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from palyra.policy.cedar import CedarEngine
from palyra.policy.request import (
    Entity,
    EntityRef,
    PolicyRequest,
    UnreadableRequest,
    cedar_value,
    policy_request_from_json,
    policy_request_to_json,
)

Ask = Callable[..., PolicyRequest]


def recorded(request: PolicyRequest) -> Any:
    return json.loads(json.dumps(policy_request_to_json(request)))


def test_round_trip(ask: Ask) -> None:
    request = ask(tool="fs.write", paths={"b", "a"}, session="s", device=Entity(uid=EntityRef("Device", "d")))
    assert policy_request_from_json(recorded(request)) == request


def test_optional_context_is_absent_rather_than_empty(ask: Ask) -> None:
    request = ask(skill=Entity(uid=EntityRef("Skill", "s")))
    assert "session" not in request.context
    assert request.context["skill"] == EntityRef("Skill", "s")
    assert request.context["approved"] is False


def test_the_recorded_request_is_decided_alike(ask: Ask, engine_of: Callable[..., CedarEngine]) -> None:
    engine = engine_of()
    for request in (ask(), ask(tool="fs.write"), ask(channel="irc")):
        assert engine.decide(policy_request_from_json(recorded(request))) == engine.decide(request)


def test_entity_references_are_found_at_any_depth() -> None:
    marked = {"__entity": {"type": "T", "id": "i"}}
    assert cedar_value({"a": [EntityRef("T", "i")], "b": frozenset({"y", "x"})}) == {"a": [marked], "b": ["x", "y"]}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: None,
        lambda whole: "text",
        lambda whole: {"clipped_bytes": 99999, "sha256": "0" * 64},
        lambda whole: {**whole, "version": 2},
        lambda whole: {**whole, "more": 1},
        lambda whole: {key: value for key, value in whole.items() if key != "resource"},
        lambda whole: {**whole, "principal": {"uid": {"type": 5, "id": "x"}}},
    ],
)
def test_what_is_not_exactly_a_request_is_refused(ask: Ask, spoil: Callable[[Any], Any]) -> None:
    with pytest.raises(UnreadableRequest):
        policy_request_from_json(spoil(recorded(ask())))
