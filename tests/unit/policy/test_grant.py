"""What is offered lifts the denial, and nothing larger is offered than is needed."""

from collections.abc import Callable

import msgspec
import pytest

from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import MissingGrant, Outcome, SettingChange
from palyra.policy.request import EntityDirectory, PolicyRequest

Ask = Callable[..., PolicyRequest]
EngineOf = Callable[..., CedarEngine]
BundleOf = Callable[..., Bundle]


def grant_for(engine: CedarEngine, request: PolicyRequest) -> MissingGrant:
    grant = engine.decide(request).missing_grant
    assert grant is not None
    return grant


@pytest.mark.parametrize(
    ("lists", "setting", "add"),
    [
        ({"tools": (), "principals": ("agent:*",), "channels": ("cli",)}, "tools.allowed", "echo"),
        ({"tools": ("echo",), "principals": (), "channels": ("cli",)}, "access.principals", "agent:bot"),
        ({"tools": ("echo",), "principals": ("agent:*",), "channels": ()}, "access.channels", "cli"),
    ],
)
def test_the_one_setting_that_is_missing_is_named_and_suffices(
    engine_of: EngineOf, ask: Ask, lists: dict[str, tuple[str, ...]], setting: str, add: str
) -> None:
    before = EntityDirectory.from_lists(**lists)
    grant = grant_for(engine_of(directory=before), ask(directory=before))
    assert (grant.setting, grant.add, grant.leads_to) == (setting, add, Outcome.ALLOW)
    assert grant.settings == (SettingChange(setting=setting, add=add),)
    key = setting.partition(".")[2].replace("allowed", "tools")
    after = EntityDirectory.from_lists(**{**lists, key: (*lists[key], grant.add)})
    assert engine_of(directory=after).decide(ask(directory=after)).outcome is Outcome.ALLOW


def test_several_settings_where_one_does_not_suffice(engine_of: EngineOf, ask: Ask) -> None:
    nothing = EntityDirectory.from_lists(principals=("agent:*",))
    grant = grant_for(engine_of(directory=nothing), ask(directory=nothing))
    assert grant.setting == ""
    assert [change.setting for change in grant.settings] == ["tools.allowed", "access.channels"]


def test_the_permit_lifts_the_denial_when_pasted(engine_of: EngineOf, ask: Ask) -> None:
    request = ask(tool="http.fetch")
    grant = grant_for(engine_of(), request)
    assert (
        'permit (principal == Agent::"bot", action == Action::"tool.execute", resource == Tool::"http.fetch");'
        in grant.permit
    )
    after = engine_of(grant.permit)
    assert after.decide(request).outcome is grant.leads_to is Outcome.ALLOW
    assert after.decide(ask("agent:other", "http.fetch")).outcome is Outcome.DENY


def test_a_sensitive_tool_that_is_granted_still_needs_approval(engine_of: EngineOf, ask: Ask) -> None:
    only_echo = EntityDirectory.from_lists(principals=("*",), tools=("echo",), channels=("*",))
    request = ask(tool="fs.write", directory=only_echo)
    grant = grant_for(engine_of(directory=only_echo), request)
    assert (grant.setting, grant.leads_to) == ("tools.allowed", Outcome.NEEDS_APPROVAL)
    assert engine_of(grant.permit, directory=only_echo).decide(request).outcome is Outcome.NEEDS_APPROVAL


def test_a_forbid_is_named_with_the_exception_that_lifts_it(engine_of: EngineOf, ask: Ask) -> None:
    forbid = '@id("no-echo")\nforbid (principal, action == Action::"tool.execute", resource == Tool::"echo") // why\n;'
    grant = grant_for(engine_of(forbid), ask())
    (exception,) = grant.exceptions
    assert (exception.policy, exception.location) == ("no-echo", "a.cedar:1:1")
    assert exception.clause == 'unless { principal == Agent::"bot" }'
    assert grant.permit == ""
    narrowed = engine_of(f"{forbid[:-1]}\n{exception.clause};")
    assert narrowed.decide(ask()).outcome is Outcome.ALLOW
    assert narrowed.decide(ask("agent:other")).outcome is Outcome.DENY


def test_every_forbid_that_holds_gets_its_exception(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of(
        '@id("one") forbid (principal, action, resource);',
        '@id("two") forbid (principal == Agent::"bot", action == Action::"tool.execute", resource == Tool::"other");',
    )
    grant = grant_for(engine, ask(tool="other"))
    assert [exception.policy for exception in grant.exceptions] == ["one", "two"]
    assert "permit" in grant.permit
    assert grant.exceptions[1].clause.count("==") == 3


def test_a_forbid_that_approval_satisfies_needs_no_exception(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of('@id("never") forbid (principal, action, resource == Tool::"fs.write");')
    grant = grant_for(engine, ask(tool="fs.write"))
    assert [exception.policy for exception in grant.exceptions] == ["never"]
    assert grant.leads_to is Outcome.NEEDS_APPROVAL


def test_operators_only_where_it_is_what_is_missing(engine_of: EngineOf, ask: Ask, directory: EntityDirectory) -> None:
    tool = ask()
    request = msgspec.structs.replace(
        tool,
        action="approval.decide",
        context={"approved": True, "channel": tool.context["channel"], "requester": "agent:x", "scope": "once"},
    )
    assert grant_for(engine_of(), request).setting == "access.operators"
    assert grant_for(engine_of(), ask(tool="other")).setting == "tools.allowed"


def test_nothing_is_offered_for_an_allowed_or_broken_request(engine_of: EngineOf, ask: Ask) -> None:
    engine = engine_of()
    assert engine.decide(ask()).missing_grant is None
    assert engine.decide(ask(tool="fs.write")).missing_grant is None
    assert engine.decide(ask().with_context(extra=1)).missing_grant is None


def test_a_name_with_glob_characters_is_added_literally(engine_of: EngineOf, ask: Ask) -> None:
    lists = {"principals": ("*",), "channels": ("*",)}
    before = EntityDirectory.from_lists(**lists)
    grant = grant_for(engine_of(directory=before), ask(tool="a*[x]", directory=before))
    after = EntityDirectory.from_lists(**lists, tools=(grant.add,))
    assert engine_of(directory=after).decide(ask(tool="a*[x]", directory=after)).outcome is Outcome.ALLOW
    assert engine_of(directory=after).decide(ask(tool="ab[x]", directory=after)).outcome is Outcome.DENY
