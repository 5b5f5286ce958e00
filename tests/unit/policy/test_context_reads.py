"""What a policy looks at in the context, and that the rest does not change its answer."""

from collections.abc import Callable
from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.policy.cedar import CedarEngine
from palyra.policy.context_reads import context_reads, together
from palyra.policy.decision import Answer, Outcome
from palyra.policy.request import PolicyRequest


def reads(condition: str) -> frozenset[str] | None:
    text = f"permit (principal, action, resource) when {{ {condition} }};"
    document = msgspec.json.decode(cedarpy.policies_to_json_str(text))
    return context_reads(next(iter(document["staticPolicies"].values()))["conditions"])


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("true", set()),
        ("resource.sensitive", set()),
        ("context.approved", {"approved"}),
        ('context["run"] == "x" && context has session', {"run", "session"}),
        ("context has channel.name", {"channel"}),
        ("resource has run && principal.run == context.device", {"device"}),
        ("if context.approved then context.argument_bytes < 3 else true", {"approved", "argument_bytes"}),
        ("[context.run].isEmpty()", {"run"}),
        ('{a: context.run}.a == "x"', {"run"}),
        ("{run: 1}.run == 1", set()),
    ],
)
def test_the_attributes_a_condition_looks_at(condition: str, names: set[str]) -> None:
    assert reads(condition) == names


@pytest.mark.parametrize("condition", ['{a: context}.a.run == "x"', "context == resource", "[context].isEmpty()"])
def test_a_context_used_as_a_whole_is_looked_at_as_a_whole(condition: str) -> None:
    assert reads(condition) is None
    assert together([frozenset({"run"}), reads(condition)]) is None


def test_several_policies_look_at_what_each_of_them_does() -> None:
    assert together([frozenset({"run"}), frozenset(), frozenset({"session"})]) == {"run", "session"}


def test_an_answer_from_memory_is_for_the_same_question_only(
    engine_of: Callable[..., CedarEngine], ask: Callable[..., PolicyRequest]
) -> None:
    text = (
        '@id("t.run") forbid (principal, action == Action::"tool.execute", resource) when { context.run == "bad" };'
        '@id("t.size") forbid (principal, action == Action::"tool.execute", resource)'
        " when { context.argument_bytes > 100 };"
    )
    engine = engine_of(text)
    for _ in range(2):
        assert engine.decide(ask(tool="echo").with_context(run="good")).outcome is Outcome.ALLOW
        assert engine.decide(ask(tool="echo").with_context(run="bad")).outcome is Outcome.DENY
        assert engine.decide(ask(tool="echo").with_context(argument_bytes=101)).outcome is Outcome.DENY
        assert engine.evaluate(ask(tool="echo").with_context(run=7)).answer is Answer.INVALID
        assert engine.evaluate(ask(tool="echo").with_context(unknown="x")).answer is Answer.INVALID


_TEXTS = st.sampled_from(["a", "b", "", "ß", "x" * 300])
_CONDITIONS = st.lists(
    st.sampled_from(
        [
            'context.run == "a"',
            'context.workspace == "b"',
            'context has session && context.session == "a"',
            "context.argument_bytes > 10",
            "context.approved",
        ]
    ),
    max_size=3,
    unique=True,
)
_CHANGES = st.fixed_dictionaries(
    {"run": _TEXTS, "workspace": _TEXTS, "argument_bytes": st.integers(0, 20), "approved": st.booleans()},
    optional={"session": st.one_of(_TEXTS, st.integers(0, 1))},
)


@pytest.mark.promise("P-policy-same")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_CONDITIONS, st.lists(_CHANGES, min_size=1, max_size=12))
def test_memory_and_engine_agree(
    engine_of: Callable[..., CedarEngine],
    ask: Callable[..., PolicyRequest],
    conditions: list[str],
    contexts: list[dict[str, Any]],
) -> None:
    text = "".join(
        f'@id("t.{n}") forbid (principal, action == Action::"tool.execute", resource) when {{ {condition} }};'
        for n, condition in enumerate(conditions)
    )
    engine = engine_of(text)
    plain = CedarEngine(engine.bundle, sliced=False)
    for context in contexts * 2:
        request = ask(tool="echo").with_context(**context)
        assert engine.evaluate(request) == plain.evaluate(request)
