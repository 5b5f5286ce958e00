"""Who may use which secret: the rule in code and the rule in the baseline, held against each other."""

import itertools
import re
from pathlib import Path

import pytest

from palyra.daemon.pipeline_wiring import directory_of
from palyra.daemon.settings import Settings
from palyra.errors import PalyraError
from palyra.ids import Principal
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Decision, Outcome, Reason
from palyra.policy.live_policy import load_bundle
from palyra.policy.request import Entity, EntityRef, PolicyRequest
from palyra.vault.access import SecretUse, refusal_of, require_scope, secret_entity, use_request
from palyra.vault.key_source import ScopeDenied, UseDenied, UseNeedsApproval
from palyra.vault.reference import SecretRef

DIRECTORY = directory_of(Settings())
BASE = load_bundle(None, DIRECTORY)
WIDE_OPEN = '@id("open") permit(principal, action, resource);'
REFS = ("global/k", "principal:agent:bot/k", "principal:user:bot/k", "principal:agent:bot2/k", "channel:api/k",
        "channel:ap/k", "skill:acme.mail/k", "skill:acme/k")  # fmt: skip


def engine(*texts: str) -> CedarEngine:
    files = tuple((f"{number}.cedar", text) for number, text in enumerate(texts))
    return CedarEngine(Bundle(schema=BASE.schema, files=(*BASE.files, *files), directory=DIRECTORY))


BASELINE, OPENED = engine(), engine(WIDE_OPEN)


def skill(name: str | None) -> Entity | None:
    attrs = {"publisher": "p", "version": "1.0.0", "trust": "verified", "status": "active"}
    return None if name is None else Entity(uid=EntityRef("Skill", name), attrs=attrs)


def use(principal: str = "agent:bot", channel: str = "api", skill_id: str | None = None, **more: object) -> SecretUse:
    fields: dict[str, object] = {"run": "r", "host": "api.example.com", "port": 443, **more}
    return SecretUse(principal=Principal.parse(principal), channel=channel, skill=skill(skill_id), **fields)  # type: ignore[arg-type]


def decided(by: CedarEngine, ref: str, wanted: SecretUse) -> Decision:
    return by.decide(use_request(DIRECTORY, SecretRef.parse(ref), wanted))


def test_code_and_baseline_agree_on_whose_a_secret_is_whatever_a_policy_permits() -> None:
    everyone = itertools.product(
        REFS, ("agent:bot", "user:bot", "agent:bot2"), ("api", "ap"), (None, "acme.mail", "acme"), (False, True)
    )
    outcomes = set()
    for ref, principal, channel, skill_id, approved in everyone:
        wanted = use(principal, channel, skill_id, approved=approved)
        try:
            require_scope(SecretRef.parse(ref), wanted)
        except ScopeDenied:
            expected = Outcome.DENY
        else:
            expected = Outcome.ALLOW
        outcomes.add(expected)
        decision = decided(OPENED, ref, wanted)
        assert decision.outcome is expected, (ref, wanted)
        if expected is Outcome.DENY:
            assert decision.policies == ("baseline.secrets-of-others",)
            assert decided(BASELINE, ref, wanted).outcome is Outcome.DENY
    assert outcomes == {Outcome.ALLOW, Outcome.DENY}


@pytest.mark.parametrize(
    ("ref", "wanted", "outcome", "policy"),
    [
        ("principal:agent:bot/k", use(), Outcome.ALLOW, "baseline.own-secrets"),
        ("principal:user:ann/k", use("user:ann"), Outcome.ALLOW, "baseline.own-secrets"),
        ("skill:acme/k", use(skill_id="acme"), Outcome.ALLOW, "baseline.own-secrets"),
        ("global/k", use(), Outcome.NEEDS_APPROVAL, "baseline.shared-secrets-with-approval"),
        ("global/k", use(approved=True), Outcome.ALLOW, "baseline.shared-secrets-with-approval"),
        ("channel:api/k", use(), Outcome.NEEDS_APPROVAL, "baseline.shared-secrets-with-approval"),
        ("channel:api/k", use(approved=True), Outcome.ALLOW, "baseline.shared-secrets-with-approval"),
    ],
)
def test_the_baseline(ref: str, wanted: SecretUse, outcome: Outcome, policy: str) -> None:
    decision = decided(BASELINE, ref, wanted)
    assert (decision.outcome, decision.policies) == (outcome, (policy,))


def test_a_door_that_is_not_allowed_gives_no_secret() -> None:
    assert decided(BASELINE, "principal:agent:bot/k", use(channel="elsewhere")).reasons == (Reason.NO_PERMIT,)
    assert decided(BASELINE, "global/k", use(channel="elsewhere", approved=True)).outcome is Outcome.DENY


def test_an_operators_permit_may_name_the_secret_and_the_host() -> None:
    text = """@id("github")
    permit (principal == Agent::"bot", action == Action::"vault.use", resource == Secret::"global/github")
    when { context has host && context.host.name == "api.github.com" && context.host.port == 443 };"""
    narrow = engine(text)
    assert decided(narrow, "global/github", use(host="api.github.com")).policies == ("github",)
    for wanted in (use(host="evil.example"), use(host="api.github.com", port=80), use(host=""), use("agent:other")):
        assert decided(narrow, "global/github", wanted).outcome is Outcome.NEEDS_APPROVAL


@pytest.mark.parametrize(
    ("principal", "texts", "outcome"),
    [
        ("user:operator", (), Outcome.DENY),
        ("user:operator", (WIDE_OPEN,), Outcome.ALLOW),
        ("agent:bot", (WIDE_OPEN,), Outcome.DENY),
    ],
)
def test_a_value_is_shown_only_where_a_policy_says_so_and_only_to_operators(
    principal: str, texts: tuple[str, ...], outcome: Outcome
) -> None:
    channel = DIRECTORY.channel("cli")
    request = PolicyRequest(
        principal=DIRECTORY.principal(Principal.parse(principal)),
        action="vault.reveal",
        resource=secret_entity(SecretRef.parse("principal:agent:bot/k")),
        context={"approved": True, "channel": channel.uid},
        entities=(channel,),
    )
    assert engine(*texts).decide(request).outcome is outcome


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(Outcome.ALLOW, None), (Outcome.DENY, UseDenied), (Outcome.NEEDS_APPROVAL, UseNeedsApproval)],
)
def test_a_decision_means_an_error_or_none(outcome: Outcome, error: type[PalyraError] | None) -> None:
    found = refusal_of(SecretRef.parse("global/k"), use(), Decision(outcome=outcome, policies=("p",)))
    assert (found is None) if error is None else isinstance(found, error)
    if found is not None:
        assert found.details == {"ref": "global/k", "policies": ["p"]}


def test_the_note_names_everything_but_the_value() -> None:
    note = use(skill_id="acme", call="c").note("palyrad", Decision(outcome=Outcome.ALLOW, policies=("p",)))
    assert (note.principal, note.skill, note.host, note.call) == ("agent:bot", "acme", "api.example.com:443", "c")


def test_the_policies_of_the_how_to_are_valid_and_do_what_they_say() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "keep-secrets.md"
    examples = re.findall(r"^```cedar\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    rules = engine(*examples)
    assert decided(rules, "global/github", use(host="api.github.com")).policies == ("bot-uses-github",)
    assert decided(rules, "global/github", use(host="evil.example")).outcome is Outcome.NEEDS_APPROVAL
