"""What the schema was asked once about a shape holds for every request of it, and changes no answer."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.policy import cedar, cedar_call
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Answer
from palyra.policy.entities import Entity, EntityRef
from palyra.policy.lru import Lru
from palyra.policy.request import PolicyRequest
from palyra.policy.shape import MAX_IGNORED_CHARS, MAX_IGNORED_ITEMS, asked_of, sample_of

CLI = EntityRef("Channel", "cli")
IN_CEDAR = {"__entity": {"type": "Channel", "id": "cli"}}


def test_small_values_that_nobody_looks_at_are_left_out() -> None:
    context = {"run": "r", "n": 1, "yes": True, "channel": CLI, "door": EntityRef("Door", "d"), "paths": ["a"]}
    asked, settled, shape = asked_of(context, frozenset())
    assert (asked, settled) == ({}, ())
    door = {"__entity": {"type": "Door", "id": "d"}}
    assert asked_of(context, frozenset({"run", "door"})) == ({"run": "r", "door": door}, (), shape)
    assert asked_of(context, None) == ({**context, "channel": IN_CEDAR, "door": door}, (), shape)


def test_what_is_looked_at_and_has_few_values_is_told_apart() -> None:
    context = {"run": "r", "yes": True, "channel": CLI}
    asked, settled, _ = asked_of(context, frozenset(context))
    assert (asked, settled) == ({"run": "r"}, (("yes", True), ("channel", CLI)))


@pytest.mark.parametrize(
    "value",
    [
        "x" * (MAX_IGNORED_CHARS + 1),
        "ß",
        "\ud800",
        ["ß"],
        ["a", "x" * (MAX_IGNORED_CHARS + 1)],
        ["a"] * (MAX_IGNORED_ITEMS + 1),
        EntityRef("Channel", "ß"),
        EntityRef("Channel", "x" * (MAX_IGNORED_CHARS + 1)),
    ],
)
def test_what_is_large_or_not_plain_is_always_asked_with(value: Any) -> None:
    asked, _, shape = asked_of({"value": value}, frozenset())
    assert "value" in asked and shape is not None


@pytest.mark.parametrize("value", [None, 1.5, 2**63, -(2**63) - 1, {"a": 1}, ["a", 1], [["a"]], {"a"}, ("a",), b"a"])
def test_a_context_of_unusual_values_has_no_shape_and_is_asked_whole(value: Any) -> None:
    asked, settled, shape = asked_of({"run": "r", "yes": True, "value": value}, frozenset({"yes"}))
    assert shape is None and settled == () and asked.keys() == {"run", "yes", "value"}


def test_a_shape_tells_types_apart_and_values_not() -> None:
    def shape(**context: Any) -> Any:
        return asked_of(context, frozenset())[2]

    assert shape(a="x", b=1) == shape(a="y", b=2)
    assert shape(a=["x"]) == shape(a=["y", "z"])
    values = ["x", 1, True, [], ["x"], CLI, EntityRef("Device", "cli")]
    assert len({shape(a=value) for value in values} | {shape(b="x"), shape(), shape(a="x", b="y")}) == len(values) + 3


def test_a_sample_is_of_its_shape() -> None:
    context = {"a": "x", "b": 1, "c": True, "d": [], "e": ["x"]}
    shape = asked_of(context, None)[2]
    assert shape is not None and asked_of(sample_of(shape), None)[2] == shape
    reference = asked_of({"channel": CLI}, None)[2]
    assert reference is not None and sample_of(reference)["channel"]["__entity"]["type"] == "Channel"


# Types that leave values free, and all those that do not: extensions, enumerations, actions, records.
SCHEMA = """
entity Group;
entity Agent in [Group];
entity Tool;
entity Mood enum ["calm", "cross"];
entity Doors;
entity Door;
entity Channel in [Doors] { level: Long };
action "all";
action "run", "look" in ["all"] appliesTo {
  principal: [Agent], resource: [Tool, Mood],
  context: {
    approved: Bool, n: Long, text: String, texts: Set<String>, door?: Door, mood?: Mood, address?: ipaddr,
    price?: decimal, numbers?: Set<Long>, record?: { text: String, door?: Door }, spare?: String, spares?: Set<String>,
    channel?: Channel, sure?: Bool,
  }
};
"""
CONDITIONS = (
    "context.approved",
    "context.n > 1",
    "9223372036854775807 + context.n > 0",
    'context.text == "a"',
    'context.texts.contains("a")',
    'context has door && context.door == Door::"a"',
    'context has mood && context.mood == Mood::"calm"',
    "context has address && context.address.isLoopback()",
    'context has price && context.price.lessThan(decimal("1.0"))',
    "context has numbers && context.numbers.contains(1)",
    'context has record && context.record.text == "a"',
    'action in Action::"all"',
    "context has sure && context.sure == context.approved",
    "context has sure || context has channel",
    'context has channel && context.channel == Channel::"a"',
    'context has channel && (context["channel"] in Doors::"d" || context.channel.level + 9223372036854775806 > 0)',
    'context has channel && [context.channel, Channel::"b"].containsAll([Channel::"a"])',
    "if context.approved then context.n > 1 else context has channel",
    'principal in Group::"g"',
    '{whole: context}.whole.text == "a"',
)
texts = st.sampled_from(["a", "b", "", "ß", "\ud800", "x" * 300, "127.0.0.1", "0.5", "~ any text ~"])
plain: Any = st.one_of(
    texts,
    st.booleans(),
    st.integers(0, 3),
    st.just(2**63),
    st.just(None),
    st.lists(texts, max_size=2),
    st.lists(st.integers(0, 2), max_size=2),
    st.builds(
        EntityRef, st.sampled_from(["Door", "Mood", "Action", "Agent", "No type"]), st.sampled_from(["a", "calm"])
    ),
    st.just({"text": "a"}),
    st.just({"type": "Door", "id": "a"}),
)
contexts = st.builds(
    lambda usual, odd: {**usual, **odd},
    st.fixed_dictionaries(
        {"approved": st.booleans(), "n": st.integers(0, 3), "text": texts, "texts": st.lists(texts, max_size=2)},
        optional={
            "door": st.builds(EntityRef, st.just("Door"), st.sampled_from(["a", "b"])),
            "mood": st.builds(EntityRef, st.just("Mood"), st.sampled_from(["calm", "cross", "sad"])),
            "channel": st.builds(EntityRef, st.just("Channel"), st.sampled_from(["a", "b", "absent"])),
            "sure": st.booleans(),
            "address": texts,
            "price": texts,
            "spare": texts,
            "spares": st.lists(texts, max_size=2),
        },
    ),
    st.dictionaries(
        st.sampled_from(["n", "text", "texts", "door", "mood", "numbers", "record", "spare", "unknown"]),
        plain,
        max_size=1,
    ),
)
CHANNELS = (
    Entity(uid=EntityRef("Channel", "a"), attrs={"level": 1}, parents=(EntityRef("Doors", "d"),)),
    Entity(uid=EntityRef("Channel", "b"), attrs={"level": 2}),
)
requests = st.builds(
    lambda who, member, resource, action, context: PolicyRequest(
        principal=Entity(uid=EntityRef("Agent", who), parents=(EntityRef("Group", "g"),) if member else ()),
        resource=Entity(uid=EntityRef(*resource)),
        action=action,
        context=context,
        entities=CHANNELS,
    ),
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.sampled_from([("Tool", "a"), ("Tool", "b"), ("Mood", "calm"), ("Mood", "sad"), ("Door", "a")]),
    st.sampled_from(["run", "look", "other"]),
    contexts,
)


@pytest.mark.promise("P-policy-same")
@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["permit", "forbid"]), st.sampled_from(CONDITIONS)), max_size=4),
    st.lists(requests, min_size=1, max_size=10),
)
def test_no_answer_depends_on_what_was_learned_of_shapes(drawn: list[Any], asked: list[PolicyRequest]) -> None:
    text = "\n".join(
        f'@id("p{number}") {effect} (principal, action in Action::"all", resource) when {{ {condition} }};'
        for number, (effect, condition) in enumerate(drawn)
    )
    bundle = Bundle(schema=SCHEMA, files=(("x", text),))
    engine, plain_engine = CedarEngine(bundle), CedarEngine(bundle, sliced=False)
    engine._answers = Lru(1)
    # Often enough that slices are settled.
    for request in asked * 4:
        found, expected = engine.evaluate(request), plain_engine.evaluate(request)
        assert (found.answer, found.policies) == (expected.answer, expected.policies)
        assert sorted(found.errors) == sorted(expected.errors)


def ask(**context: Any) -> PolicyRequest:
    usual = {"approved": True, "n": 1, "text": "a", "texts": []}
    return PolicyRequest(
        principal=Entity(uid=EntityRef("Agent", "a")),
        resource=Entity(uid=EntityRef("Tool", "a")),
        action="run",
        context={**usual, **context},
    )


def test_the_schema_is_asked_once_about_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = CedarEngine(Bundle(schema=SCHEMA, files=(("x", '@id("p") permit(principal, action, resource);'),)))
    held: list[bool] = []
    authorize = cedar_call.authorize

    def counted(*arguments: Any) -> Any:
        held.append(len(arguments) > 6)
        return authorize(*arguments)

    monkeypatch.setattr(cedar, "authorize", counted)
    assert engine.evaluate(ask(spare="x")).answer is Answer.ALLOW
    assert held == [True, False]
    for number in range(5):
        assert engine.evaluate(ask(spare="ß" * number)).answer is Answer.ALLOW
    assert held[2:] and not any(held[2:])


def test_a_shape_whose_values_the_schema_judges_is_held_against_it_each_time() -> None:
    engine = CedarEngine(Bundle(schema=SCHEMA, files=(("x", '@id("p") permit(principal, action, resource);'),)))
    for _ in range(2):
        assert engine.evaluate(ask(mood=EntityRef("Mood", "calm"))).answer is Answer.ALLOW
        assert engine.evaluate(ask(mood=EntityRef("Mood", "sad"))).answer is Answer.INVALID
        assert engine.evaluate(ask(address="10.0.0.1")).answer is Answer.ALLOW
        assert engine.evaluate(ask(address="10.0.0.1.2")).answer is Answer.INVALID


def test_what_is_known_of_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cedar, "MAX_CACHED_SHAPES", 3)
    engine = CedarEngine(Bundle(schema=SCHEMA, files=(("x", '@id("p") permit(principal, action, resource);'),)))
    for number in range(10):
        assert engine.evaluate(ask(**{f"unknown{number}": "x"})).answer is Answer.INVALID
    assert len(engine._shapes) <= 3
