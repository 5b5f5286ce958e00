"""Decisions on the baseline and on operators' policies."""

from collections.abc import Callable
from typing import Any

import pytest

from palyra.ids import Principal
from palyra.policy import cedar
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Answer, Obligations, Outcome, Reason
from palyra.policy.request import GATEWAY, Entity, EntityDirectory, EntityRef, PolicyRequest, tool_request

Ask = Callable[..., PolicyRequest]
EngineOf = Callable[..., CedarEngine]


@pytest.mark.parametrize(
    ("asked", "outcome", "policies", "reason"),
    [
        ({"tool": "echo"}, Outcome.ALLOW, ("baseline.allowed-tools",), Reason.PERMITTED),
        (
            {"tool": "fs.write"},
            Outcome.NEEDS_APPROVAL,
            ("baseline.sensitive-needs-approval",),
            Reason.APPROVAL_REQUIRED,
        ),
        ({"tool": "fs.write", "approved": True}, Outcome.ALLOW, ("baseline.allowed-tools",), Reason.PERMITTED),
        ({"tool": "fs.list"}, Outcome.ALLOW, ("baseline.allowed-tools",), Reason.PERMITTED),
        ({"tool": "http.fetch"}, Outcome.DENY, (), Reason.NO_PERMIT),
        ({"tool": "http.fetch", "approved": True}, Outcome.DENY, (), Reason.NO_PERMIT),
        ({"tool": "echo", "channel": "irc"}, Outcome.DENY, (), Reason.NO_PERMIT),
    ],
)
def test_the_baseline(
    engine_of: EngineOf, ask: Ask, asked: dict[str, Any], outcome: Outcome, policies: tuple[str, ...], reason: str
) -> None:
    engine = engine_of()
    decision = engine.decide(ask(**asked))
    assert (decision.outcome, decision.policies, decision.reasons) == (outcome, policies, (reason,))
    assert decision.bundle_digest == engine.bundle_digest == engine.bundle.digest


@pytest.mark.promise("P-default-deny")
def test_without_settings_everything_is_denied(engine_of: EngineOf, ask: Ask) -> None:
    empty = EntityDirectory.from_lists()
    engine = engine_of(directory=empty)
    for approved in (False, True):
        assert engine.decide(ask(directory=empty, approved=approved)).outcome is Outcome.DENY


@pytest.mark.parametrize(
    ("principal", "action", "outcome"),
    [
        ("user:operator", "journal.read", Outcome.ALLOW),
        ("user:operator", "config.change", Outcome.ALLOW),
        ("agent:bot", "journal.read", Outcome.DENY),
        ("agent:bot", "config.change", Outcome.DENY),
        ("agent:bot", "status.read", Outcome.ALLOW),
    ],
)
def test_actions_on_the_gateway(
    engine_of: EngineOf, directory: EntityDirectory, principal: str, action: str, outcome: Outcome
) -> None:
    channel = directory.channel("cli")
    request = PolicyRequest(
        principal=directory.principal(Principal.parse(principal)),
        action=action,
        resource=GATEWAY,
        context={"approved": False, "channel": channel.uid},
        entities=(channel,),
    )
    assert engine_of().decide(request).outcome is outcome


HOST = Entity(uid=EntityRef("Host", "h:443"), attrs={"name": "h", "port": 443})
SKILL = Entity(
    uid=EntityRef("Skill", "s"), attrs={"publisher": "p", "version": "1", "trust": "first_use", "status": "approved"}
)
SESSION = Entity(uid=EntityRef("BrowserSession", "b"), attrs={"owner": "agent:bot", "hosts": ["h"]})
TOOL = Entity(uid=EntityRef("Tool", "t"), attrs={"capabilities": [], "sensitive": True, "tier": "c"})


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("skill.execute", SKILL, {"workspace": "", "run": "", "entrypoint": "e", "argument_bytes": 0}),
        ("browser.evaluate", SESSION, {"run": ""}),
        (
            "node.invoke",
            Entity(uid=EntityRef("Node", "n"), attrs={"name": "n", "capabilities": ["d"]}),
            {"run": "", "capability": "c"},
        ),
        (
            "worker.lease",
            Entity(uid=EntityRef("Worker", "w"), attrs={"status": "ready"}),
            {"run": "", "tool": TOOL.uid},
        ),
        ("approval.decide", TOOL, {"requester": "agent:bot", "scope": "once"}),
    ],
)
def test_every_other_action_can_be_asked_and_permitted(
    engine_of: EngineOf, directory: EntityDirectory, action: str, resource: Entity, context: dict[str, Any]
) -> None:
    channel = directory.channel("cli")
    request = PolicyRequest(
        principal=directory.principal(Principal.parse("agent:bot")),
        action=action,
        resource=resource,
        context={"approved": False, "channel": channel.uid, **context},
        entities=(channel,),
    )
    assert engine_of().decide(request).reasons == (Reason.NO_PERMIT,)
    opened = f'@id("open") permit(principal, action == Action::"{action}", resource);'
    assert engine_of(opened).decide(request).outcome is Outcome.ALLOW


def test_a_browser_goes_to_its_hosts_and_uploads_only_what_a_person_approved(
    engine_of: EngineOf, directory: EntityDirectory
) -> None:
    channel = directory.channel("cli")

    def outcome(action: str, resource: Entity, policies: str = "", **context: Any) -> Outcome:
        request = PolicyRequest(
            principal=directory.principal(Principal.parse("agent:bot")),
            action=action,
            resource=resource,
            context={"approved": False, "channel": channel.uid, "run": "", **context},
            entities=(channel, SESSION),
        )
        return engine_of(policies).decide(request).outcome

    going = {"scheme": "https", "browser_session": SESSION.uid}
    assert outcome("browser.navigate", HOST, **going) is Outcome.ALLOW
    closed = '@id("no") forbid(principal, action == Action::"browser.navigate", resource == Host::"h:443");'
    assert outcome("browser.navigate", HOST, closed, **going) is Outcome.DENY
    assert outcome("browser.upload", SESSION, paths=["a.txt"]) is Outcome.NEEDS_APPROVAL


def test_a_call_inside_a_browser_session_is_not_asked_about_again(
    engine_of: EngineOf, directory: EntityDirectory
) -> None:
    tool = directory.tool("fs.read", frozenset({"browser"}), sensitive=True, tier="browser")

    def outcome(session: Entity | None) -> Outcome:
        request = tool_request(
            directory.principal(Principal.parse("agent:bot")),
            tool,
            directory.channel("cli"),
            workspace="",
            run="",
            argument_bytes=0,
            browser_session=session,
        )
        return engine_of().decide(request).outcome

    assert (outcome(None), outcome(SESSION)) == (Outcome.NEEDS_APPROVAL, Outcome.ALLOW)


def test_connecting_is_permitted_beside_the_list_of_hosts_and_can_be_taken_away(
    engine_of: EngineOf, directory: EntityDirectory
) -> None:
    channel = directory.channel("cli")
    request = PolicyRequest(
        principal=directory.principal(Principal.parse("agent:bot")),
        action="egress.connect",
        resource=HOST,
        context={"approved": False, "channel": channel.uid, "run": "", "scheme": "https", "tool": TOOL.uid},
        entities=(channel,),
    )
    decision = engine_of().decide(request)
    assert decision.outcome is Outcome.ALLOW and decision.policies == ("baseline.allowed-hosts",)
    closed = f'@id("closed") forbid(principal, action == Action::"egress.connect", resource == {HOST.uid});'
    assert engine_of(closed).decide(request).policies == ("closed",)


def test_a_permit_that_asks_for_approval_itself_needs_approval(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of('@id("ask") permit(principal, action, resource) when { context.approved };')
    decision = engine.decide(ask(tool="other"))
    assert (decision.outcome, decision.policies) == (Outcome.NEEDS_APPROVAL, ("ask",))


def test_an_operators_forbid_beats_approval(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of('@id("never") forbid(principal, action, resource == Tool::"fs.write");')
    decision = engine.decide(ask(tool="fs.write"))
    assert (decision.outcome, decision.policies, decision.reasons) == (Outcome.DENY, ("never",), (Reason.FORBIDDEN,))


def test_policies_see_the_arguments(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of(
        '@id("no-env") forbid(principal, action == Action::"tool.execute", resource) '
        'when { context.paths.contains(".env") };'
    )
    assert engine.decide(ask(paths=("a", ".env"))).policies == ("no-env",)
    assert engine.decide(ask(paths=("a",))).outcome is Outcome.ALLOW


def test_obligations_of_all_determining_permits_hold(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of(
        '@id("slow") @obligation_timeout_ms("900") @obligation_tier("c") permit(principal, action, resource);',
        '@id("fast") @obligation_timeout_ms("100") permit(principal == Agent::"bot", action, resource);',
    )
    assert engine.decide(ask()).obligations == Obligations(timeout_ms=100, tier="c")
    assert engine.decide(ask("agent:other")).obligations == Obligations(timeout_ms=900, tier="c")
    assert engine.decide(ask(tool="fs.write")).obligations == Obligations(timeout_ms=100, tier="c")


def test_determining_policies_are_named_in_the_order_of_the_bundle(engine_of: EngineOf, ask: Ask) -> None:
    texts = [f'@id("z{9 - n}") permit(principal, action, resource);' for n in range(3)]
    assert engine_of(*texts).decide(ask()).policies == ("baseline.allowed-tools", "z9", "z8", "z7")


def test_parsed_entities_and_slices_are_reused(engine_of: EngineOf, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    engine.decide(ask(run="1"))
    monkeypatch.setattr(cedar.cedarpy.Entities, "from_json_str", lambda *_: pytest.fail("parsed again"))
    assert engine.decide(ask(run="2")).outcome is Outcome.ALLOW


def test_caches_are_bounded(engine_of: EngineOf, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cedar, "MAX_CACHED_ENTITY_SETS", 4)
    monkeypatch.setattr(cedar, "MAX_CACHED_SLICES", 2)
    engine = engine_of(*(f'@id("p{n}") permit(principal == Agent::"a{n}", action, resource);' for n in range(20)))
    for n in range(20):
        assert engine.decide(ask(f"agent:a{n}")).policies == ("baseline.allowed-tools", f"p{n}")
    assert len(engine._parties) <= 4
    assert len(engine._slices) <= 2


def test_a_trial_does_not_change_the_engine(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of()
    request = ask(tool="other")
    permit = '@id("t") permit(principal, action, resource);'
    assert engine.evaluate(request, added=permit).answer is Answer.ALLOW
    assert engine.evaluate(request).answer is Answer.DENY


@pytest.mark.parametrize(
    ("trust", "status", "outcome"),
    [
        ("allowlisted", "approved", Outcome.ALLOW),
        ("pinned", "approved", Outcome.ALLOW),
        ("first_use", "approved", Outcome.DENY),
        ("allowlisted", "quarantined", Outcome.DENY),
        ("allowlisted", "disabled", Outcome.DENY),
    ],
)
def test_skills_run_when_they_are_approved_and_their_publisher_is_trusted(
    engine_of: EngineOf, directory: EntityDirectory, trust: str, status: str, outcome: Outcome
) -> None:
    skill = Entity(
        uid=EntityRef("Skill", "s"), attrs={"publisher": "p", "version": "1", "trust": trust, "status": status}
    )
    channel = directory.channel("cli")
    request = PolicyRequest(
        principal=directory.principal(Principal.parse("agent:bot")),
        action="skill.execute",
        resource=skill,
        context={
            "approved": False,
            "channel": channel.uid,
            "workspace": "",
            "run": "",
            "entrypoint": "e",
            "argument_bytes": 0,
        },
        entities=(channel,),
    )
    assert engine_of().decide(request).outcome is outcome
    # No permit of one's own lifts what is not in use.
    opened = '@id("open") permit(principal, action == Action::"skill.execute", resource);'
    expected = Outcome.ALLOW if status == "approved" else Outcome.DENY
    assert engine_of(opened).decide(request).outcome is expected
