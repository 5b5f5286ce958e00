"""A question to Cedar is answered alike through cedarpy's wrapper and through what it wraps."""

import importlib
from collections.abc import Iterator
from typing import Any

import cedarpy
import pytest

from palyra.policy import cedar_call

SCHEMA = "entity U; action a appliesTo { principal: U, resource: U, context: { n: Long } };"
POLICIES = (
    "permit (principal, action, resource) when { context.n > 0 };"
    "permit (principal, action, resource) when { context.n > 1 };"
    "forbid (principal, action, resource) when { context.n + 9223372036854775806 < 0 };"
)


def replies(module: Any) -> list[Any]:
    schema, policies = cedarpy.Schema.from_str(SCHEMA), cedarpy.PolicySet.from_str(POLICIES)
    entities = module.parse_entities(b'[{"uid": {"type": "U", "id": "u"}, "attrs": {}, "parents": []}]', schema)
    user, action = {"type": "U", "id": "u\n"}, {"type": "Action", "id": "a"}
    found = []
    for context in (b'{"n": 1}', b'{"n": 2}', b'{"n": 0}', b'{"n": "x"}', b"{", b'{"n": 1, "m": 1}'):
        for held in (schema, None):
            reply = module.authorize(user, action, user, context, policies, entities, held)
            found.append((reply.decision, sorted(reply.diagnostics.reason), sorted(reply.diagnostics.errors)))
    return found


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module as it is where the extension is not the one we know."""
    with monkeypatch.context() as changed:
        changed.delattr(cedarpy._internal, "is_authorized_batch")
        module = importlib.reload(cedar_call)
        assert module._direct is None
    yield module
    importlib.reload(cedar_call)


def test_both_ways_give_the_same_answers(wrapped: Any) -> None:
    through_wrapper = replies(wrapped)
    assert importlib.reload(cedar_call)._direct is not None
    assert replies(cedar_call) == through_wrapper
    assert {decision for decision, _, _ in through_wrapper} == {"Allow", "Deny", "NoDecision"}


def test_entities_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="entity"):
        cedar_call.parse_entities(
            b'[{"uid": {"type": "No", "id": "u"}, "attrs": {}, "parents": []}]', cedarpy.Schema.from_str(SCHEMA)
        )
