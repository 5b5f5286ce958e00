"""Slicing changes the cost of a decision and nothing else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.policy.bundle import Bundle, Location, Policy, Scope
from palyra.policy.cedar import CedarEngine, PolicyIndex
from palyra.policy.request import Entity, EntityRef, PolicyRequest

SCHEMA = """
entity Group;
entity Agent in [Group] { level: Long };
entity Kit;
entity Tool in [Kit] { level: Long };
action "all";
action "run", "look" in ["all"] appliesTo {
  principal: [Agent], resource: [Tool], context: { approved: Bool, n: Long }
};
"""
NAMES = ("a", "b", "c")

principals = st.one_of(
    st.just("principal"),
    st.sampled_from([f'principal == Agent::"{name}"' for name in NAMES]),
    st.sampled_from(
        ['principal in Group::"g"', "principal is Agent", 'principal in Agent::"a"', 'principal is Agent in Group::"g"']
    ),
)
actions = st.sampled_from(
    [
        "action",
        'action == Action::"run"',
        'action == Action::"look"',
        'action in Action::"all"',
        'action in [Action::"run"]',
    ]
)
resources = st.one_of(
    st.just("resource"),
    st.sampled_from([f'resource == Tool::"{name}"' for name in NAMES]),
    st.sampled_from(['resource in Kit::"k"', 'resource in Tool::"b"', "resource is Tool"]),
)
conditions = st.sampled_from(
    [
        "",
        "when { context.approved }",
        "unless { context.approved }",
        "when { context.n > 1 }",
        "when { principal.level > resource.level }",
        "when { 9223372036854775807 + context.n > 0 }",
        'when { principal in Group::"g" }',
    ]
)
policies = st.lists(
    st.tuples(st.sampled_from(["permit", "forbid"]), principals, actions, resources, conditions), max_size=14
)


def entity(kind: str, name: str, level: int, parent: EntityRef | None) -> Entity:
    return Entity(uid=EntityRef(kind, name), attrs={"level": level}, parents=(parent,) if parent else ())


requests = st.builds(
    lambda who, which, action, context, levels, member, packed: PolicyRequest(
        principal=entity("Agent", who, levels[0], EntityRef("Group", "g") if member else None),
        resource=entity("Tool", which, levels[1], EntityRef("Kit", "k") if packed else None),
        action=action,
        context=context,
    ),
    st.sampled_from((*NAMES, "z")),
    st.sampled_from((*NAMES, "z")),
    st.sampled_from(("run", "look")),
    st.fixed_dictionaries({"approved": st.booleans(), "n": st.integers(0, 3)}),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.promise("P-policy-same")
@settings(max_examples=150, deadline=None)
@given(policies, st.lists(requests, min_size=1, max_size=8))
def test_sliced_and_unsliced_decisions_agree(drawn: list[Any], asked: list[PolicyRequest]) -> None:
    text = "\n".join(
        f'@id("p{number}") {effect} ({who}, {action}, {which}) {condition};'
        for number, (effect, who, action, which, condition) in enumerate(drawn)
    )
    bundle = Bundle(schema=SCHEMA, files=(("x", text),))
    sliced, whole = CedarEngine(bundle), CedarEngine(bundle, sliced=False)
    for request in asked:
        assert sliced.evaluate(request).policies == whole.evaluate(request).policies
        assert sliced.decide(request) == whole.decide(request)


def policy(name: str, **scope: Any) -> Policy:
    return Policy(id=name, effect="permit", location=Location(file="", line=1, column=1), text="", scope=Scope(**scope))


ANA, BOB, SAW = EntityRef("Agent", "ana"), EntityRef("Agent", "bob"), EntityRef("Tool", "saw")


def chosen(index: PolicyIndex, who: EntityRef, action: str, which: EntityRef) -> list[str]:
    return [each.id for each in index.policies_in(index.slice_for(who, action, which))]


def test_a_request_selects_its_own_and_the_open_policies_in_order() -> None:
    index = PolicyIndex(
        [
            policy("exact", principal=ANA, action="run", resource=SAW),
            policy("open"),
            policy("of-bob", principal=BOB),
            policy("running", action="run"),
            policy("saws", resource=SAW),
        ]
    )
    assert chosen(index, ANA, "run", SAW) == ["exact", "open", "running", "saws"]
    assert chosen(index, BOB, "look", SAW) == ["open", "of-bob", "saws"]


def test_requests_without_exact_policies_share_a_slice() -> None:
    index = PolicyIndex([policy("open"), policy("of-bob", principal=BOB)])
    strangers = [index.slice_for(EntityRef("Agent", f"a{n}"), "run", SAW) for n in range(50)]
    assert len(set(strangers)) == 1


def test_an_entity_of_another_type_with_the_same_id_is_another() -> None:
    index = PolicyIndex([policy("of-bob", principal=BOB)])
    assert chosen(index, EntityRef("User", "bob"), "run", SAW) == []
