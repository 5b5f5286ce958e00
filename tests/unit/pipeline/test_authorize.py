"""A call as a door hands it in becomes a decision, and a plan or the reason for none. The path: test_broker."""

from pathlib import Path

from fakes.gateway_harness import open_harness
from fakes.skill_harness import PUBLISHER, entries, key, manifest
from fakes.wasm_guests import wasm
from fakes.wasm_skills import ECHO_SKILL
from palyra.pipeline.authorize import Authorizer
from palyra.pipeline.domain.spec import ToolTier
from palyra.skills.package.artifact import pack_artifact
from palyra.skills.trust.signature import sign_artifact


async def asked(tmp_path: Path, tool: str, arguments: dict[str, object], **more: object):
    """What the broker's own authorizer made of a call."""
    async with open_harness(tmp_path) as harness:
        seen = []
        authorizer = harness.gateway.broker._authorizer
        assert isinstance(authorizer, Authorizer)

        class Noting:
            def authorize(self, *given):
                seen.append(authorizer.authorize(*given))
                return seen[-1]

        harness.gateway.broker._authorizer = Noting()
        await harness.call(tool, arguments, **more)
    return seen[0]


async def test_an_allowed_call_has_a_plan_in_its_callers_name(tmp_path):
    made = await asked(tmp_path, "echo", {"text": "x"}, timeout_ms=1234)
    plan = made.plan
    assert made.denial is None and (plan.principal, plan.channel, plan.timeout_ms) == ("agent:bot", "cli", 1234)
    assert made.decision["outcome"] == "allow" and made.record.decision == made.decision
    assert {kind.value: amount for kind, amount in made.reserve.items()} == {"calls": 1, "wall_ms": 1234}


async def test_a_denied_one_has_none_and_says_what_would_lift_it(tmp_path):
    made = await asked(tmp_path, "echo", {"text": "x"}, channel="carrier-pigeon")
    assert made.plan is None and made.denial.code == "call.denied" and made.denial.hint
    assert made.decision["outcome"] == "deny"


async def test_new_policies_are_asked_at_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_harness(tmp_path) as harness:
        assert (await harness.call("echo", {"text": "x"})).error is None
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("stop") forbid (principal, action == Action::"tool.execute", resource);'
        )
        await harness.gateway.policy.reload()
        denied = await harness.call("echo", {"text": "x"})
        assert denied.state.value == "denied" and denied.decision is not None
        assert denied.decision["policies"] == ["stop"]


async def test_the_journal_says_of_each_call_what_it_was(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        calls = [await harness.call("echo", {"text": "x" * length}) for length in (1, 30, 200)]
        for call, length in zip(calls, (1, 30, 200), strict=True):
            events = dict(harness.events(call=call.call_id))
            assert list(events)[-4:] == ["call.requested", "call.decided", "call.started", "call.finished"]
            asked = events["call.decided"]["policy_request"]["context"]
            assert (asked["run"], asked["argument_bytes"]) == (call.run_id, length + len('{"text":""}'))
            assert events["call.requested"]["arguments"] == {"text": "x" * length}
            assert events["call.requested"]["argument_digest"] == call.argument_digest
            assert events["call.decided"]["outcome"] == "allow"
            assert events["call.started"]["reserved"]["calls"] == 1


async def test_what_a_call_does_on_a_worker_is_recorded_as_it_was_asked(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("lease") permit (principal, action == Action::"worker.lease", resource);'
    )
    settings = {"tools": {"allowed": ["process.run"], "preapproved": ["process.run"]}}
    async with open_harness(tmp_path, settings) as harness:
        said = []
        for _ in range(2):
            call = await harness.call(
                "process.run", {"command": "true"}, tier=ToolTier.WORKER, timeout_ms=200, run_id=None
            )
            events = [payload for kind, payload in harness.events(call=call.call_id) if kind == "call.decided"]
            said.append([sorted(payload["policy_request"]["context"]) for payload in events])
        assert len(said[0]) == 2 and said[0] == said[1]


async def test_a_decision_is_about_the_version_of_the_skill_in_use(tmp_path: Path) -> None:
    """Quarantined, put back, upgraded, rolled back between calls: what runs is what is in use."""
    async with open_harness(tmp_path) as harness:
        skills, publisher = harness.gateway.skills, key(PUBLISHER)
        await skills.trust_publisher(PUBLISHER, publisher.public_key(), actor="a")
        digests = []
        for version in ("1.0.0", "1.1.0"):
            packed = pack_artifact(entries(manifest(version), modules={"main.wasm": wasm(ECHO_SKILL)}))
            installed = await skills.install(sign_artifact(packed, publisher).raw, actor="a")
            digests.append(installed.digest)
        skill_id, tool = installed.skill_id, f"skill.{installed.skill_id}.add"

        async def ran() -> str:
            """The digest of the archive that answered, or why none did."""
            for _ in range(2):
                call = await harness.call(tool, {"text": "x", "numbers": [1]})
            if call.error is not None:
                return str(call.error["code"])
            asked = [said for kind, said in harness.events(call=call.call_id) if kind == "call.decided"]
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
