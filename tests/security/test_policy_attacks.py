"""Attacks on the policy engine: every one must end in a denial or a refusal, and the old policies stay in force."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.daemon import Place
from fakes.eventually import eventually_sync
from palyra.errors import PalyraError
from palyra.policy.bundle import BadBundle, Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome, Reason
from palyra.policy.limits import MAX_POLICY_FILE_BYTES, MAX_REQUEST_BYTES
from palyra.policy.live_policy import (
    LAST_GOOD,
    BundleHolder,
    PolicyDirectoryMissing,
    PolicyFileRefused,
    PolicyFileTooLarge,
    Rejected,
    Swapped,
    load_bundle,
)
from palyra.policy.request import Entity, EntityDirectory, EntityRef, PolicyRequest, tool_request

pytestmark = pytest.mark.promise("P-default-deny")

DIRECTORY = EntityDirectory.from_lists(principals=("agent:bot",), tools=("echo",), channels=("cli",))
SHIPPED = load_bundle(None, DIRECTORY)
ANYTHING = '@id("anything") permit(principal, action, resource);'


def bundle_of(text: str = "", *, schema: str = SHIPPED.schema) -> Bundle:
    return Bundle(schema=schema, files=(*SHIPPED.files, ("x.cedar", text)), directory=DIRECTORY)


def engine_of(text: str = "") -> CedarEngine:
    return CedarEngine(bundle_of(text))


def asked(principal: str = "bot", tool: str = "echo", channel: str = "cli", **context: Any) -> PolicyRequest:
    return tool_request(
        DIRECTORY.placed(Entity(uid=EntityRef("Agent", principal))),
        DIRECTORY.tool(tool, frozenset(), False, "builtin"),
        DIRECTORY.channel(channel),
        **{"workspace": "/w", "run": "R", "argument_bytes": 2, **context},
    )


# ---- engine errors deny ------------------------------------------------------------------------------------------


class PanicException(BaseException):
    """Named as the extension names it."""


@pytest.mark.parametrize("fault", [RuntimeError("lost"), ValueError("odd"), MemoryError(), PanicException("rust")])
def test_a_failing_engine_denies(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> None:
    engine = engine_of(ANYTHING)

    def fail(*_: Any, **__: Any) -> None:
        raise fault

    monkeypatch.setattr("palyra.policy.cedar.cedarpy.is_authorized", fail)
    decision = engine.decide(asked())
    assert (decision.outcome, decision.reasons) == (Outcome.DENY, (Reason.ENGINE_ERROR,))


def test_an_engine_that_cannot_decide_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(ANYTHING)
    monkeypatch.setattr(cedarpy, "is_authorized", lambda *_, **__: cedarpy.AuthzResult({"decision": "NoDecision"}))
    assert engine.decide(asked()).reasons == (Reason.ENGINE_ERROR,)


def test_a_fault_while_looking_for_advice_does_not_lift_the_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("palyra.policy.cedar.find_missing_grant", fail)
    decision = engine_of().decide(asked(tool="other"))
    assert (decision.outcome, decision.missing_grant) == (Outcome.DENY, None)


OVERFLOW = "context.argument_bytes + 9223372036854775807 < 0"


@pytest.mark.parametrize("effect", ["permit", "forbid"])
def test_a_policy_that_fails_to_evaluate_denies(effect: str) -> None:
    """Cedar skips it. Were it the forbid that should have stopped this, skipping would open the door."""
    head = f'{effect}(principal, action == Action::"tool.execute", resource)'
    engine = engine_of(f'{ANYTHING}\n@id("odd") {head} when {{ {OVERFLOW} }};')
    for approved in (False, True):
        decision = engine.decide(asked(approved=approved))
        assert decision.outcome is Outcome.DENY
        assert (decision.policies, decision.reasons) == (("odd",), (Reason.EVALUATION_ERROR,))
    assert engine.decide(asked(argument_bytes=0)).outcome is Outcome.ALLOW


def test_a_policy_that_fails_only_when_approved_does_not_ask_a_person() -> None:
    engine = engine_of(
        '@id("ask") forbid(principal, action, resource) unless { context.approved };\n'
        f'@id("odd") forbid(principal, action == Action::"tool.execute", resource)'
        f" when {{ context.approved && {OVERFLOW} }};"
    )
    assert engine.decide(asked()).reasons == (Reason.EVALUATION_ERROR,)


# ---- requests that lie about their shape -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "context",
    [
        {"approved": "true"},
        {"approved": 1},
        {"approved": None},
        {"channel": "cli"},
        {"channel": {"__entity": {"type": "ChannelSet", "id": "allowed"}}},
        {"channel": {"__expr": 'Channel::"cli"'}},
        {"argument_bytes": 2**70},
        {"argument_bytes": 1.5},
        {"extra": True},
        {"paths": "a"},
        {"run": "\ud800"},
        {"run": object()},
        {"run": "x" * (MAX_REQUEST_BYTES + 1)},
    ],
    ids=lambda context: next(iter(context)),
)
def test_a_context_that_does_not_fit_the_schema_is_denied(context: dict[str, Any]) -> None:
    decision = engine_of(ANYTHING).decide(asked().with_context(**context))
    assert (decision.outcome, decision.reasons) == (Outcome.DENY, (Reason.REQUEST_INVALID,))


def test_a_missing_context_value_is_denied() -> None:
    request = asked()
    for key in request.context:
        lacking = {name: value for name, value in request.context.items() if name != key and name != "approved"}
        decision = engine_of(ANYTHING).decide(msgspec.structs.replace(request, context=lacking))
        assert decision.reasons == (Reason.REQUEST_INVALID,)


def test_a_deeply_nested_context_is_denied() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert engine_of(ANYTHING).decide(asked().with_context(paths=deep)).outcome is Outcome.DENY
    while isinstance(deep, list):  # taken apart by hand: freeing it at once would recurse
        deep = deep.pop()


@pytest.mark.parametrize(
    "change",
    [
        {"principal": Entity(uid=EntityRef("Group", "allowed"))},
        {"principal": Entity(uid=EntityRef("Root", "x"))},
        {"resource": Entity(uid=EntityRef("Tool", "echo"))},
        {"resource": Entity(uid=EntityRef("Tool", "echo"), attrs={"capabilities": [], "sensitive": "no", "tier": "a"})},
        {"action": "tool.executee"},
        {"action": 'x", "id": "tool.execute'},
        {"entities": (Entity(uid=EntityRef("Channel", "cli"), parents=(EntityRef("Group", "allowed"),)),)},
        {"entities": (Entity(uid=EntityRef("Agent", "bot"), parents=(EntityRef("Group", "operators"),)),)},
    ],
)
def test_entities_that_do_not_fit_the_schema_are_denied(change: dict[str, Any]) -> None:
    decision = engine_of(ANYTHING).decide(msgspec.structs.replace(asked(), **change))
    assert (decision.outcome, decision.reasons) == (Outcome.DENY, (Reason.REQUEST_INVALID,))


# ---- names cannot inject -----------------------------------------------------------------------------------------

INJECTIONS = (
    'bot", action, resource); permit(principal, action, resource) //',
    'bot"',
    "bot\\",
    'bot\\", "parents": [{"type": "Group", "id": "allowed"}]',
    "bot\nallowed",
    "bot\r\n",
    "bot\x00",
    'Agent::"bot"',
    "bot`policy0`",
    "böt\u2028",
    "*",
    "b?t",
    "[b]ot",
)


@pytest.mark.parametrize("name", INJECTIONS)
@pytest.mark.parametrize("part", ["principal", "tool", "channel"])
def test_odd_names_are_only_names(name: str, part: str) -> None:
    engine = engine_of('@id("exact") permit(principal == Agent::"bot", action, resource == Tool::"echo");')
    decision = engine.decide(asked(**{part: name}))
    if part == "channel":
        # The exact permit does not look at the channel; the baseline's does.
        assert decision.policies == ("exact",)
        assert engine_of().decide(asked(channel=name)).reasons == (Reason.NO_PERMIT,)
    else:
        assert (decision.outcome, decision.reasons) == (Outcome.DENY, (Reason.NO_PERMIT,))


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_grant_for_an_odd_name_grants_exactly_that_name(name: str) -> None:
    request = asked(principal=name, tool=name)
    grant = engine_of().decide(request).missing_grant
    assert grant is not None
    engine = engine_of(grant.permit)
    assert len(engine.policies) == len(engine_of().policies) + 1
    assert engine.decide(request).outcome is Outcome.ALLOW
    for other in (asked(), asked(principal=name), asked(tool=name), asked(principal="x", tool="x")):
        assert engine.decide(other) == msgspec.structs.replace(
            engine_of().decide(other), bundle_digest=engine.bundle_digest
        )


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
def test_no_name_is_taken_for_another(who: str, what: str) -> None:
    engine = engine_of('@id("exact") permit(principal == Agent::"bot", action, resource == Tool::"echo");')
    expected = Outcome.ALLOW if (who, what) == ("bot", "echo") else Outcome.DENY
    assert engine.decide(asked(principal=who, tool=what)).outcome is expected


# ---- hot reload --------------------------------------------------------------------------------------------------

BROKEN = {
    "syntax": '@id("a") permit(principal, action resource);',
    "half a file": ANYTHING + '\n@id("b") forbid(principal, action, reso',
    "unknown action": '@id("a") permit(principal, action == Action::"tool.exec", resource);',
    "no id": "permit(principal, action, resource);",
    "taken id": '@id("baseline.allowed-tools") permit(principal, action, resource);',
    "template": '@id("a") permit(principal == ?principal, action, resource);',
    "bad limit": '@id("a") @obligation_timeout_ms("soon") permit(principal, action, resource);',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_bundle_leaves_the_old_one_in_force(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.cedar"
    file.write_text('@id("stop") forbid(principal, action, resource);')
    holder = BundleHolder(CedarEngine(load_bundle(tmp_path, DIRECTORY)))
    before = holder.current.decide(asked())
    assert before.policies == ("stop",)
    file.write_text(text)
    outcome = holder.try_reload(lambda: load_bundle(tmp_path, DIRECTORY))
    assert isinstance(outcome, Rejected)
    assert outcome.problems[0].file == "x.cedar"
    assert holder.current.decide(asked()) == before
    file.write_text(ANYTHING)
    assert isinstance(holder.try_reload(lambda: load_bundle(tmp_path, DIRECTORY)), Swapped)
    assert holder.last_rejection is None


@pytest.mark.parametrize("test", ["resource.sensitive", "resource has sensitive && resource.sensitive"])
def test_schema_drift_is_refused(test: str) -> None:
    """A forbid over an attribute that the new schema no longer has must not quietly stop forbidding."""
    text = f'@id("guard") forbid(principal, action == Action::"tool.execute", resource) when {{ {test} }};'
    drifted = SHIPPED.schema.replace("sensitive: Bool,", "delicate: Bool,")
    CedarEngine(Bundle(schema=SHIPPED.schema, files=(("x.cedar", text),)))
    with pytest.raises(BadBundle) as caught:
        CedarEngine(Bundle(schema=drifted, files=(("x.cedar", text),)))
    assert "sensitive" in caught.value.problems[0].message


# ---- files -------------------------------------------------------------------------------------------------------


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "x.cedar").open("wb") as file:
        file.truncate(10 * 1024 * 1024)
    with pytest.raises(PolicyFileTooLarge):
        load_bundle(tmp_path, DIRECTORY)
    with pytest.raises(BadBundle, match="larger than"):
        engine_of("/" * (MAX_POLICY_FILE_BYTES + 1))


@pytest.mark.parametrize("how", ["file", "directory", "absolute", "chain"])
def test_a_link_out_of_the_directory_is_refused(tmp_path: Path, how: str) -> None:
    folder, outside = tmp_path / "policies", tmp_path / "policies-evil"
    folder.mkdir()
    outside.mkdir()
    (outside / "x.cedar").write_text(ANYTHING)
    match how:
        case "file":
            (folder / "x.cedar").symlink_to("../policies-evil/x.cedar")
        case "absolute":
            (folder / "x.cedar").symlink_to(outside / "x.cedar")
        case "directory":
            (folder / "sub").symlink_to(outside)
            (folder / "x.cedar").symlink_to("sub/x.cedar")
        case "chain":
            (folder / "y").symlink_to(outside / "x.cedar")
            (folder / "x.cedar").symlink_to("y")
    with pytest.raises(PolicyFileRefused, match="out of the policy directory"):
        load_bundle(folder, DIRECTORY)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.cedar")
    with pytest.raises(PolicyFileRefused, match="regular"):
        load_bundle(tmp_path, DIRECTORY)
    (tmp_path / "x.cedar").unlink()
    (tmp_path / "x.cedar").mkdir()
    with pytest.raises(PolicyFileRefused):
        load_bundle(tmp_path, DIRECTORY)
    (tmp_path / "x.cedar").rmdir()
    (tmp_path / "x.cedar").symlink_to("x.cedar")
    with pytest.raises(PolicyFileRefused):
        load_bundle(tmp_path, DIRECTORY)


def test_a_policy_hidden_behind_a_carriage_return_is_seen() -> None:
    """Editors show one comment line; Cedar reads a policy after the carriage return. So do we, and it needs an @id."""
    with pytest.raises(BadBundle, match="has no name"):
        engine_of("// looks harmless\rpermit(principal, action, resource);")


BOMBS = {
    "brackets": "(" * 50_000 + "true" + ")" * 50_000,
    "sets": "[" * 50_000 + "]" * 50_000 + " == []",
    "records": "{a: " * 50_000 + "1" + "}" * 50_000 + " == {}",
    "conditionals": "if true then " * 20_000 + "true" + " else false" * 20_000,
    "chain": " && ".join(["true"] * 60_000),
    "dots": "principal" + ".a" * 100_000,
    "unclosed": "(" * 100_000,
    "escaped quotes": '\\"\n' * 100_000,
}


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_policy_that_would_crash_the_parser_is_refused(tmp_path: Path, bomb: str) -> None:
    """In a process of its own: without the check, the stack overflow would end it."""
    head = '@id("x") permit(principal, action == Action::"tool.execute", resource)'
    (tmp_path / "x.cedar").write_text(f"{head} when {{ {bomb} }};")
    program = (
        "import sys; from pathlib import Path\n"
        "from palyra.policy.bundle import BadBundle\n"
        "from palyra.policy.cedar import CedarEngine\n"
        "from palyra.policy.request import EntityDirectory\n"
        "from palyra.policy.live_policy import load_bundle\n"
        "try: CedarEngine(load_bundle(Path(sys.argv[1]), EntityDirectory()))\n"
        "except BadBundle: sys.exit(7)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, timeout=100)
    assert finished.returncode == 7, finished.stderr.decode()[-500:]


# ---- a folder that is gone ---------------------------------------------------------------------------------------

NO_ECHO = '@id("no-echo") forbid(principal, action == Action::"tool.execute", resource == Tool::"echo");'


@pytest.mark.promise("P-policy-reload")
@pytest.mark.parametrize("how", ["removed", "emptied", "moved away", "a broken link"])
def test_a_folder_of_policies_that_is_gone_lifts_no_forbid(tmp_path: Path, how: str) -> None:
    place = Place(tmp_path)
    rule = place.policies / "a.cedar"
    rule.write_text(NO_ECHO)

    def code() -> str:
        return str(place.palyra("call", "echo", "--input", "{}", "--json").error["code"])

    with place.daemon() as daemon, daemon.client() as client:
        digest = client.status().document["policy"]["bundle_digest"]
        kept = (place.state / LAST_GOOD).read_bytes()
        if how == "moved away":
            place.policies.rename(tmp_path / "elsewhere")
        else:
            rule.unlink()
            if how != "emptied":
                place.policies.rmdir()
        if how == "a broken link":
            place.policies.symlink_to(tmp_path / "nowhere")
        rejected = eventually_sync(lambda: client.status().document["policy"]["rejected"])
        assert rejected["code"] == PolicyDirectoryMissing.code
        assert client.status().document["policy"]["bundle_digest"] == digest
        with pytest.raises(PalyraError) as denied:
            client.call("echo", {"text": "hi"})
        assert denied.value.as_dict()["code"] == "call.denied"
        with pytest.raises(PalyraError):
            client.ready()
        assert (place.state / LAST_GOOD).read_bytes() == kept
    with place.daemon() as daemon, daemon.client() as client:
        assert client.status().document["policy"]["bundle_digest"] == digest, "a restart lifts it neither"
        assert "policy file any more" in (report := place.palyra("doctor").stdout) or "no directory" in report
        if how == "a broken link":
            place.policies.unlink()
        place.policies.mkdir(exist_ok=True)
        rule.write_text("// none")
        eventually_sync(lambda: client.status().document["policy"]["bundle_digest"] != digest)
        client.ready()


def test_a_folder_that_the_settings_name_has_to_be_there(tmp_path: Path) -> None:
    place = Place(tmp_path, f'[policy]\ndir = "{tmp_path / "absent"}"\n')
    assert place.palyra("call", "echo", "--input", '{"text": "hi"}', "--json").error["code"] == (
        PolicyDirectoryMissing.code
    )
