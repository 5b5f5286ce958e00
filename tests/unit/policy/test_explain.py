"""Explanations say who decided, where it is written, and what to do."""

from collections.abc import Callable

from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome, SettingChange
from palyra.policy.explain import describe_explanation, describe_grant
from palyra.policy.request import PolicyRequest

Ask = Callable[..., PolicyRequest]
EngineOf = Callable[..., CedarEngine]


def test_an_allowed_request(engine_of: EngineOf, ask: Ask) -> None:
    explanation = engine_of().explain(ask())
    assert explanation.outcome is Outcome.ALLOW
    (policy,) = explanation.determining
    assert (policy.id, policy.effect) == ("baseline.allowed-tools", "permit")
    assert policy.location.startswith("defaults/baseline.cedar:")
    assert policy.text.startswith("@id")
    assert 'Tool::"echo" is in ToolSet::"allowed"' in explanation.memberships
    assert explanation.missing_grant is None


def test_a_request_that_needs_approval(engine_of: EngineOf, ask: Ask) -> None:
    explanation = engine_of().explain(ask(tool="fs.write"))
    assert [policy.id for policy in explanation.determining] == ["baseline.sensitive-needs-approval"]
    assert [policy.id for policy in explanation.permits] == ["baseline.allowed-tools"]
    assert explanation.preapproval == SettingChange(setting="tools.preapproved", add="fs.write")
    assert "to allow it without asking: add 'fs.write' to tools.preapproved" in describe_explanation(explanation)


def test_the_preapproval_is_not_offered_where_it_would_not_do(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of('@id("ask") forbid(principal, action, resource) unless { context.approved };')
    assert engine.explain(ask(tool="fs.write")).preapproval is None


def test_a_denied_request_lists_ways_that_each_suffice(engine_of: EngineOf, ask: Ask) -> None:
    explanation = engine_of().explain(ask(tool="http.fetch", channel="irc"))
    page = describe_explanation(explanation)
    assert 'Channel::"irc" is in no set' in page
    assert "no policy permits it, even with approval" in page
    assert explanation.missing_grant is not None
    ways = tuple(describe_grant(explanation.missing_grant))
    assert ways[0] == "add 'http.fetch' to tools.allowed and add 'irc' to access.channels: it is then allowed"
    assert ways[1].startswith("add this policy (it is then allowed):\n@id(")


def test_a_forbidden_request_names_the_forbid_and_the_exception(engine_of: EngineOf, ask: Ask) -> None:
    explanation = engine_of('@id("stop") forbid(principal, action, resource);').explain(ask(approved=True))
    assert explanation.reasons == (
        'denied: agent:bot may not do tool.execute on Tool::"echo", because stop (a.cedar:1) forbids it',
    )
    assert explanation.missing_grant is not None
    (way,) = describe_grant(explanation.missing_grant)
    assert way.startswith("in stop (a.cedar:1:1) add, before its semicolon, unless {")


def test_errors_are_shown(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of(
        '@id("odd") forbid(principal, action == Action::"tool.execute", resource) '
        "when { context.argument_bytes + 9223372036854775807 > 0 };"
    )
    explanation = engine.explain(ask())
    assert explanation.codes == ("policy.evaluation_error",)
    assert [policy.id for policy in explanation.determining] == ["odd"]
    assert "overflow" in describe_explanation(explanation)
    invalid = engine.explain(ask().with_context(more=1))
    assert invalid.codes == ("policy.request_invalid",)
    assert "does not fit the schema" in invalid.reasons[0]


def test_obligations_are_shown(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of('@id("o") @obligation_read_only("true") permit(principal, action, resource);')
    assert "held to: read_only True" in describe_explanation(engine.explain(ask()))


def test_the_explanation_agrees_with_the_decision(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of()
    for request in (ask(), ask(tool="fs.write"), ask(channel="irc"), ask().with_context(x=1)):
        explanation, decision = engine.explain(request), engine.decide(request)
        assert explanation.outcome is decision.outcome
        assert explanation.codes == decision.reasons
        assert explanation.missing_grant == decision.missing_grant
        assert tuple(policy.id for policy in explanation.determining) == decision.policies
