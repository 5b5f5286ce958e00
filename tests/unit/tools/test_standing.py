"""An answer of policy stands for the calls that differ in nothing a policy looks at, and for no others."""

from pathlib import Path
from typing import Any

import pytest

from fakes.house import House, open_house
from fakes.skill_scene import PUBLISHER, entries, key, manifest
from fakes.wasm_guests import wasm
from fakes.wasm_skills import ECHO_SKILL
from palyra.identity.principal import Principal
from palyra.policy.decision import Decision, Outcome
from palyra.policy.request import PolicyRequest
from palyra.skills.artifact import pack_artifact
from palyra.skills.signature import sign_artifact
from palyra.tools.builtin import ECHO
from palyra.tools.call import ToolRequestContext, tool_entity
from palyra.tools.questions import worker_request_for
from palyra.tools.spec import ToolTier, Touches
from palyra.tools.standing import MAX_FRAMES, Frame, Standing, StandingAnswers, asked_with

LOOKS_AT_LENGTH = """
@id("short-only")
forbid (principal, action == Action::"tool.execute", resource == Tool::"echo")
when { context.argument_bytes > 40 };
"""
LOOKS_AT_RUN = """
@id("not-that-run")
forbid (principal, action == Action::"tool.execute", resource == Tool::"echo")
when { context.run == "01ARZ3NDEKTSV4RRFFQ69G5FAV" };
"""


class Counting:
    """The policy of a house, and how often it was really asked."""

    def __init__(self, house: House) -> None:
        self.policy = house.gateway.broker._asking._policy
        self.asked = 0
        house.gateway.broker._asking._policy = self  # type: ignore[assignment]

    @property
    def bundle_digest(self) -> str:
        return self.policy.bundle_digest

    def decide(self, request: PolicyRequest) -> Decision:
        self.asked += 1
        return self.policy.decide(request)

    def looks_at(self, request: PolicyRequest) -> Any:
        return self.policy.looks_at(request)


@pytest.mark.promise("P-policy-same")
async def test_the_same_call_again_is_not_decided_again(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        policy = Counting(house)
        for text in ("x", "y" * 30, "z"):
            assert (await house.call("echo", {"text": text})).error is None
        assert policy.asked == 1


@pytest.mark.parametrize("changed", [{"principal": "agent:other"}, {"channel": "api"}, {"session": "s"}])
async def test_anything_else_about_the_caller_is_a_question_of_its_own(tmp_path: Path, changed: dict[str, str]) -> None:
    async with open_house(tmp_path) as house:
        policy = Counting(house)
        await house.call("echo", {"text": "x"})
        await house.call("echo", {"text": "x"}, **changed)
        assert policy.asked == 2


@pytest.mark.promise("P-policy-same")
async def test_a_policy_that_looks_at_the_length_is_asked_about_every_call(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(LOOKS_AT_LENGTH)
    async with open_house(tmp_path) as house:
        policy = Counting(house)
        states = [(await house.call("echo", {"text": "x" * length})).state.value for length in (1, 60, 1)]
        assert states == ["succeeded", "denied", "succeeded"] and policy.asked == 3


@pytest.mark.promise("P-policy-same")
async def test_a_policy_that_looks_at_the_run_is_too(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(LOOKS_AT_RUN)
    async with open_house(tmp_path) as house:
        policy = Counting(house)
        await house.call("echo", {"text": "x"})
        await house.call("echo", {"text": "x"})
        assert policy.asked == 2


@pytest.mark.promise("P-policy-same")
async def test_new_policies_are_asked_at_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_house(tmp_path) as house:
        assert (await house.call("echo", {"text": "x"})).error is None
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("stop") forbid (principal, action == Action::"tool.execute", resource);'
        )
        await house.gateway.policy.reload()
        denied = await house.call("echo", {"text": "x"})
        assert denied.state.value == "denied" and denied.decision is not None
        assert denied.decision["policies"] == ["stop"]


async def test_a_denial_and_a_call_that_needs_approval_are_decided_each_time(tmp_path: Path) -> None:
    async with open_house(tmp_path, {"tools": {"allowed": ["echo", "fs.write"]}}) as house:
        policy = Counting(house)
        for _ in range(2):
            await house.call("fs.write", {"path": "a", "content": "b"})
            await house.call("fs.list", {})
        assert policy.asked >= 4


async def test_the_journal_says_of_each_call_what_it_was(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        calls = [await house.call("echo", {"text": "x" * length}) for length in (1, 30, 200)]
        for call, length in zip(calls, (1, 30, 200), strict=True):
            events = dict(house.events(call=call.call_id))
            assert list(events)[-4:] == ["call.requested", "call.decided", "call.started", "call.finished"]
            asked = events["call.decided"]["policy_request"]["context"]
            assert (asked["run"], asked["argument_bytes"]) == (call.run_id, length + len('{"text":""}'))
            assert events["call.requested"]["arguments"] == {"text": "x" * length}
            assert events["call.requested"]["argument_digest"] == call.argument_digest
            assert events["call.decided"]["outcome"] == "allow"
            assert events["call.started"]["reserved"]["calls"] == 1


def test_only_so_many_are_kept() -> None:
    answers = StandingAnswers()
    decision = Decision(outcome=Outcome.ALLOW, bundle_digest="d")
    frames = [
        Frame(Principal.parse("agent:a"), "cli", f"s{number}", "", Touches(), False) for number in range(MAX_FRAMES + 1)
    ]
    for frame in frames:
        answers.keep(frame, Standing(decision, (), False))
    assert answers.find(frames[0], "d") is None and answers.find(frames[-1], "d") is not None
    assert answers.find(frames[-1], "other") is None


async def test_a_question_keeps_its_own_attributes(tmp_path: Path) -> None:
    """Not every question has both that vary: one about workers says nothing of the length of arguments."""
    async with open_house(tmp_path) as house:
        directory = house.gateway.directory
        asked = worker_request_for(
            house.gateway.broker.config,
            ToolRequestContext(principal=Principal.parse("agent:a"), actor="a", channel="cli", run="R1"),
            tool_entity(directory, ECHO),
        )
        again = asked_with(asked, {"run": "R2", "argument_bytes": 7})
        assert again.context == {**asked.context, "run": "R2"} and "argument_bytes" not in again.context


async def test_what_a_call_does_on_a_worker_is_recorded_as_it_was_asked(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("lease") permit (principal, action == Action::"worker.lease", resource);'
    )
    settings = {"tools": {"allowed": ["process.run"], "preapproved": ["process.run"]}}
    async with open_house(tmp_path, settings) as house:
        said = []
        for _ in range(2):
            call = await house.call(
                "process.run", {"command": "true"}, tier=ToolTier.WORKER, timeout_ms=200, run_id=None
            )
            events = [payload for kind, payload in house.events(call=call.call_id) if kind == "call.decided"]
            said.append([sorted(payload["policy_request"]["context"]) for payload in events])
        assert len(said[0]) == 2 and said[0] == said[1]


async def test_files_are_asked_about_each_time(tmp_path: Path) -> None:
    settings = {"tools": {"allowed": ["fs.list"], "preapproved": ["fs.list"]}}
    async with open_house(tmp_path, settings) as house:
        policy = Counting(house)
        for _ in range(2):
            assert (await house.call("fs.list", {})).error is None
        assert policy.asked == 2


async def test_an_answer_does_not_outlive_the_skill_it_was_about(tmp_path: Path) -> None:
    """Quarantined, put back, upgraded, rolled back between calls whose answer stands: what runs is what is in use."""
    async with open_house(tmp_path) as house:
        skills, publisher = house.gateway.skills, key(PUBLISHER)
        await skills.trust_publisher(PUBLISHER, publisher.public_key(), actor="a")
        digests = []
        for version in ("1.0.0", "1.1.0"):
            packed = pack_artifact(entries(manifest(version), modules={"main.wasm": wasm(ECHO_SKILL)}))
            installed = await skills.install(sign_artifact(packed, publisher).raw, actor="a")
            digests.append(installed.digest)
        skill_id, tool = installed.skill_id, f"skill.{installed.skill_id}.add"

        async def ran() -> str:
            """The digest of the archive that answered, or why none did."""
            for _ in range(3):
                call = await house.call(tool, {"text": "x", "numbers": [1]})
            if call.error is not None:
                return str(call.error["code"])
            asked = [said for kind, said in house.events(call=call.call_id) if kind == "call.decided"]
            assert [said["outcome"] for said in asked] == ["allow", "allow"]
            return next(line["asked"] for line in call.receipt if line["layer"] == "skill").rpartition(" ")[2]

        await skills.approve(skill_id, "1.0.0", digests[0], actor="a")
        assert await ran() == digests[0]
        await skills.quarantine(skill_id, "1.0.0", actor="a")
        assert await ran() == "tool.unknown"
        await skills.approve(skill_id, "1.0.0", digests[0], actor="a")
        assert await ran() == digests[0]
        await skills.approve(skill_id, "1.1.0", digests[1], actor="a")
        assert await ran() == digests[1]
        await skills.rollback(skill_id, actor="a")
        assert await ran() == digests[0]
