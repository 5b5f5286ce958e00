"""Every page with something on it, and what can be done there, in one process: overview, approvals, calls, journal,
policy, skills, devices, vault, egress, doctor."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.browsing import browsing
from fakes.console_user import console_user
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.node_state_harness import node_record
from fakes.skill_harness import PUBLISHER, SKILL, archive, key
from palyra.egress.domain.refusal import HostNotAllowed
from palyra.identity.device import DeviceId, DeviceKind
from palyra.ids import RunId
from palyra.nodes.domain.records import CodeState
from palyra.pipeline.domain.call import CallState
from palyra.secret import Secret
from palyra.server.console.pages.calls import spans_of, statement_of
from palyra.server.console.pages.egress import host_of
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.tool_attestation import verify_evidence
from palyra.store.event import Event, NewEvent
from palyra.vault.reference import SecretRef

SETTINGS = {"skills": {"builder_enabled": True}}


async def record(harness: GatewayHarness, kind: str, **payload: object) -> Event:
    event: Event = await harness.gateway.store.transact(
        lambda tx: tx.append(NewEvent(kind=kind, actor="test", principal="agent:bot", payload=dict(payload)))
    )
    return event


def test_a_statement_that_cannot_be_read_is_none() -> None:
    assert statement_of(None) is None and statement_of({"payload": "%%"}) is None and statement_of({}) is None
    assert statement_of({"payload": "eyJhIjoxfQ=="}) == {"a": 1}


async def test_a_timeline_lies_between_its_ends(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        made = [await harness.call("echo", {"text": "a"}), await harness.call("nonsense", {})]
        spans = spans_of(made, made[-1].created_ms + 10)
        assert all(0 <= part <= 1 for span in spans for part in span.waited)
        assert spans[0].good and not spans[1].good
        assert spans[1].ran is not None and spans[1].ran[0] == spans[1].ran[1], "a mark where it was refused"
    assert spans_of([], 0) == []


async def test_a_call_that_was_not_understood_leads_to_no_run(tmp_path: Path) -> None:
    """It was refused before its run began: a link would lead nowhere."""
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        refused = await harness.call("fs.read", {"path": "../x"})
        made = await harness.call("echo", {"text": "x"})
        entry = harness.gateway.store.events_since(0, 100, kind="call.refused")[0].seq
        for page in ("/calls", f"/calls/{refused.call_id}", f"/journal/{entry}"):
            text = await known.page(page)
            assert refused.run_id in text and f"/runs/{refused.run_id}" not in text
        assert f"/runs/{made.run_id}" in await known.page("/calls")


async def test_a_refused_call_leads_to_its_run_where_there_is_one_and_never_to_somebody_elses(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        run = (await harness.call("echo", {"text": "x"})).run_id
        own = await harness.call("fs.read", {"path": "../x"}, run_id=run)
        others = await harness.call("fs.read", {"path": "../x"}, run_id=run, principal="agent:other")
        early = await harness.call("fs.read", {"path": "../x"}, run_id=RunId.new(), principal="agent:other")
        await harness.call("echo", {"text": "x"}, run_id=RunId.parse(early.run_id))
        entries = {event.call: event.seq for event in harness.gateway.store.events_since(0, 100, kind="call.refused")}
        for refused, leads in ((own, True), (others, False), (early, False)):
            for page in (f"/calls/{refused.call_id}", f"/journal/{entries[str(refused.call_id)]}"):
                assert ('href="/runs/' in await known.page(page)) is leads, (page, leads)
        listed = await known.page("/calls?state=refused_or_failed")
        assert listed.count('href="/runs/') == 1 and f'href="/runs/{run}"' in listed


@pytest.mark.promise("P-limits")
async def test_lists_are_documents_with_cursors(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        for number in range(55):
            await harness.call("echo", {"text": str(number)})
        first = await known.data("/console/v1/calls")
        assert len(first["calls"]) == 50 and first["next"]
        rest = await known.data(f"/console/v1/calls?before={first['next']}")
        assert len(rest["calls"]) == 5 and rest["next"] is None
        events = await known.data("/console/v1/journal?kind=call.finished")
        assert len(events["events"]) == 50 and events["next"]
        assert (await known.data("/console/v1/approvals?state=pending"))["approvals"] == []


async def test_a_call_is_stopped_from_its_page(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        import asyncio

        running = asyncio.create_task(harness.call("sleep", {"seconds": 30}))

        async def running_calls() -> Any:
            return (await known.data("/console/v1/calls?state=running"))["calls"]

        found = await eventually(running_calls)
        got = await known.post(f"/console/v1/calls/{found[0]['call_id']}/cancel")
        assert got.data["status"] == "cancelled"
        assert (await running).state is CallState.CANCELLED


@pytest.mark.promise("P-evidence")
async def test_a_call_saved_from_its_page_verifies(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        made = await harness.call("echo", {"text": "a"})
        path = f"/console/v1/calls/{made.call_id}/document"
        assert path in await known.page(f"/calls/{made.call_id}")
        saved = await known.get(path)
        assert "attachment" in saved.headers["content-disposition"]
        verifier = Ed25519Verifier.from_pem_file(harness.gateway.state.path("signing.pub"))
        evidence = verify_evidence(saved.body, [verifier])
        assert (evidence.kind, evidence.attestation.call_id) == ("call", made.call_id)
        done = (await known.data("/console/v1/journal?kind=console.action_done"))["events"]
        assert [event["payload"]["action"] for event in done] == ["call.save"]


async def test_a_request_that_a_yes_would_not_cover_has_no_button_for_it(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        asked = await harness.call("fs.write", {"path": "a", "content": "b"})
        standing = await harness.call("fs.write", {"path": "b", "content": "b"})
        decision = f"/console/v1/approvals/{asked.approval_id}/decision"
        assert 'value="approve"' in await known.page("/approvals")
        standing_decision = f"/console/v1/approvals/{standing.approval_id}/decision"
        yes = await known.yes_to(standing_decision, scope="timeboxed")
        assert (await known.post(standing_decision, yes)).status == 200
        first = await known.yes_to(decision)
        assert "may call fs.write with any arguments" in await known.page(f"/approvals/{standing.approval_id}")
        forbid = '@id("more") forbid (principal == Agent::"other", action, resource == Tool::"echo");\n'
        (tmp_path / "policies" / "more.cedar").write_text(forbid)
        await harness.gateway.policy.reload()
        for page in ("/approvals", f"/approvals/{asked.approval_id}"):
            text = await known.page(page)
            assert "An approval would cover nothing now: it was asked under other policies" in text
            assert 'value="approve"' not in text and 'value="deny"' in text
        text = await known.page(f"/approvals/{standing.approval_id}")
        assert "It covers nothing now: it was asked under other policies" in text
        assert "with any arguments" not in text and "Take it back" in text
        # A page that was opened before still has the button.
        got = await known.post(decision, first)
        assert (got.status, got.document["code"]) == (409, "approval.outdated")
        assert (await known.post(decision, {"decision": "deny"})).data["state"] == "denied"


@pytest.mark.promise("P-console-works")
async def test_the_menu_counts_calls_and_skills_that_wait(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        assert "1 waiting" not in await known.page("/doctor")
        await harness.call("fs.write", {"path": "a", "content": "b"})
        await harness.gateway.skills.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor="test")
        await harness.gateway.skills.install(archive(), actor="test")
        page = await known.page("/doctor")
        assert page.count('aria-label="1 waiting"') == 2
        assert "1 skill version waits for a review" in await known.page("/")


async def test_the_journal_verifies_exports_and_shows_one_entry(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        await harness.call("echo", {"text": "a"})
        got = await known.post("/console/v1/journal/verify")
        assert got.data["message"].startswith("Sound:") and got.data["events"] > 3
        export = await known.get("/console/v1/journal/export")
        assert export.status == 200 and b'"call.finished"' in export.body
        assert "attachment" in export.headers["content-disposition"]
        assert "Hash of the entry before" in await known.page("/journal/2")
        assert (await known.get("/journal/99999")).status == 400


async def test_policy_is_explained_and_replayed(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        await harness.call("echo", {"text": "a"})
        page = await known.page("/policy?principal=agent:bot&tool=fs.write")
        assert "needs approval" in page and "baseline.sensitive-needs-approval" in page
        assert "decided the same today" in await known.page("/policy/replay")
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("no-echo")\nforbid (principal, action, resource == Tool::"echo");\n'
        )
        await harness.gateway.policy.reload()
        assert "no-echo" in await known.page("/policy/replay")
        (tmp_path / "policies" / "b.cedar").write_text("nonsense")
        await harness.gateway.policy.reload()
        assert "the last good ones stay in force" in await known.page("/policy")
        assert (await known.data("/console/v1/policy"))["rejected"]["code"] == "policy.bundle_invalid"


@pytest.mark.promise("P-skill-approved")
async def test_skills_change_their_status_and_candidates_are_scaffolds(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        known = await console_user(harness)
        await harness.gateway.skills.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor="test")
        installed = await harness.gateway.skills.install(archive(), actor="test")
        assert "quarantined" in await known.page("/skills")
        path = f"/console/v1/skills/{SKILL}/status"
        got = await known.post(path, {"status": "approve"})
        assert (got.status, got.document["code"]) == (400, "console.digest_missing")
        wrong = {"status": "approve", "version": "1.0.0", "digest": "0" * 64}
        assert (await known.post(path, wrong)).document["code"] == "skill.digest_mismatch"
        right = {"status": "approve", "version": "1.0.0", "digest": installed.digest}
        assert (await known.post(path, right)).data["state"] == "approved"
        for status, state in (("disable", "disabled"), ("enable", "approved"), ("quarantine", "quarantined")):
            assert (await known.post(path, {"status": status, "reason": "r"})).data["state"] == state
        assert (await known.post(path, {"status": "rollback"})).status == 409
        (listed,) = (await known.data("/console/v1/skills"))["skills"]
        assert (listed["skill_id"], listed["status"], listed["active_version"]) == (SKILL, "quarantined", None)
        page = await known.page(f"/skills/{SKILL}")
        assert "Adds a note" in page and "what add takes" in page, "every word that a model reads"

        body = {"name": "acme.greeter", "publisher": "acme", "prompt": "Greets."}
        made = (await known.post("/console/v1/skills/builder", body)).data
        assert "skill.toml" in await known.page(f"/skills/candidates/{made['candidate_id']}")
        gone = await known.post(f"/console/v1/skills/builder/{made['candidate_id']}/discard")
        assert gone.data["state"] == "discarded"


async def test_removed_versions_are_listed_only_when_all_are_asked_for(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        skills = harness.gateway.skills
        await skills.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor="test")
        await skills.install(archive(), actor="test")
        assert "left out" not in await known.page("/skills")
        await skills.remove(SKILL, "1.0.0", actor="test")
        page = await known.page("/skills")
        assert "No skill is installed." in page and "1 removed version is left out." in page
        assert await known.data("/console/v1/skills") == {"skills": [], "removed_left_out": 1}
        assert SKILL in await known.page("/skills?all=1")
        whole = await known.data("/console/v1/skills?all=1")
        assert (whole["removed_left_out"], whole["skills"][0]["status"]) == (0, "removed")
        await skills.install(archive("1.1.0"), actor="test")
        (row,) = (await known.data("/console/v1/skills"))["skills"]
        assert [one["version"] for one in row["versions"]] == ["1.1.0"]


async def test_a_skill_page_says_what_the_settings_do_not_give(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"wasm": {"memory_bytes": 131_072}}) as harness:
        known = await console_user(harness)
        await harness.gateway.skills.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor="test")
        asked = "quotas = { max_memory_bytes = 262_144 }"
        await harness.gateway.skills.install(archive(capabilities=asked), actor="test")
        page = await known.page(f"/skills/{SKILL}")
        assert "<strong>131072</strong> where it asks to have the quota max_memory_bytes = 262144" in page
        assert "<code>wasm.memory_bytes</code>" in page
        await harness.gateway.skills.install(archive("1.1.0"), actor="test")
        assert (await known.page(f"/skills/{SKILL}")).count("But it gets") == 1


async def test_a_skill_page_says_that_skills_are_switched_off(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"wasm": {"enabled": False}}) as harness:
        known = await console_user(harness)
        await harness.gateway.skills.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor="test")
        await harness.gateway.skills.install(archive(), actor="test")
        page = await known.page(f"/skills/{SKILL}")
        assert "<strong>nothing at all while skills are switched off</strong> where it asks to run" in page
        assert "<code>wasm.enabled</code>" in page


async def test_the_builder_is_off_until_it_is_switched_on(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        got = await known.post("/console/v1/skills/builder", {"name": "acme.x", "prompt": "x"})
        assert (got.status, got.document["code"]) == (403, "skill.builder_disabled")


async def test_devices_are_listed_and_codes_are_shown_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        made = await known.post("/console/v1/pairing/codes", {"method": "qr", "kind": "worker"}, idempotency_key="k")
        code = made.data["code"]
        assert made.data["qr"]["path"].startswith("M") and code.startswith("palyra://")
        again = await known.post("/console/v1/pairing/codes", {"method": "qr", "kind": "worker"}, idempotency_key="k")
        assert again.data == {"shown_once": True}
        kept = harness.gateway.store.read("SELECT CAST(answer AS TEXT) FROM console_requests")
        assert code not in str(kept) and code not in json.dumps(harness.events())
        assert "Take it back" in await known.page("/devices") and code not in await known.page("/devices")
        got = await known.post(f"/console/v1/pairing/codes/{made.data['id']}/withdraw")
        assert got.status == 200
        assert await known.data("/console/v1/nodes") == {"nodes": []}
        assert await known.data("/console/v1/workers") == {"workers": [], "leases": []}
        assert (await known.post("/console/v1/workers/nobody/change", {"change": "drain"})).status == 404
        assert (await known.post("/console/v1/nodes/nobody/change", {"change": "revoke"})).status in (400, 404)
        gone = await known.post("/console/v1/pairing/requests/nobody/decision", {"decision": "approve"})
        assert gone.status in (400, 404)


async def test_a_used_code_is_not_offered_and_a_worker_is_not_called_offline(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        made = await known.post("/console/v1/pairing/codes", {"method": "pin", "kind": "worker"})
        assert "Take it back" in await known.page("/devices")
        state = (await harness.gateway.nodes.opened()).state
        code = await state.transact(lambda unit: unit.codes.get(made.data["id"]))
        assert code is not None
        used = msgspec.structs.replace(code, state=CodeState.USED)
        worker = node_record(id=DeviceId.new(), kind=DeviceKind.WORKER, name="builder")
        await state.transact(lambda unit: (unit.codes.put(used), unit.nodes.put(worker)))
        page = await known.page("/devices")
        assert "Take it back" not in page and "offline" not in page and ">paired<" in page


async def test_the_vault_has_names_and_uses_only(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        await harness.gateway.vault.put(SecretRef.parse("global/github"), Secret("s3cret-value"), actor="test")
        await record(harness, "vault.use_denied", ref="global/github", tool="http.fetch", host="api.example.org:443")
        page = await known.page("/vault")
        assert "global/github" in page and "api.example.org:443" in page and "s3cret-value" not in page
        assert (await known.data("/console/v1/vault"))["secrets"][0]["ref"] == "global/github"


async def test_egress_counts_hosts_reached_and_refused(tmp_path: Path) -> None:
    rule = {"hosts": ["api.example.org"], "methods": ["GET"], "paths": ["/v1"], "inspect": True}
    egress = {"allowed_hosts": ["api.example.org"], "request_rules": [rule]}
    async with open_harness(tmp_path, {"egress": egress}) as harness:
        known = await console_user(harness)
        target = {"host": "api.example.org", "port": 443, "scheme": "https"}
        connected = await record(
            harness, "egress.connected", target=target, address="192.0.2.1", face="fetch", tool="t"
        )
        await record(harness, "egress.closed", target=target, up=10, down=2048, reason="done", tool="t")
        refusal = msgspec.to_builtins(HostNotAllowed("not among them", host="other.example", port=80).refusal())
        await record(harness, "egress.refused", refusal=refusal, face="fetch", violation=False, tool="t")
        never_begun = HostNotAllowed("third.example:80 is not among the allowed hosts", host="third.example", port=80)
        await record(harness, "call.refused", tool="http.fetch", argument_digest="", error=never_begun.as_dict())
        assert host_of(connected) == "api.example.org:443"
        page = await known.page("/egress")
        assert "api.example.org:443" in page and "2 KiB" in page and "other.example:80" in page
        assert "third.example:80 is not among the allowed hosts." in page and "<code>third.example:80</code>" in page
        assert "GET beneath /v1" in page
        data = await known.data("/console/v1/egress")
        assert data["requests"] == [{"hosts": "api.example.org", "requests": "GET beneath /v1"}]
        hosts = {row["host"]: row for row in data["hosts"]}
        assert hosts["api.example.org:443"]["reached"] == 1 and hosts["other.example:80"]["refused"] == 1
        assert hosts["third.example:80"]["refused"] == 1


async def test_the_doctor_examines_when_asked(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        assert (await known.data("/console/v1/doctor"))["checks"] == []
        checks = (await known.post("/console/v1/doctor/examine")).data["checks"]
        assert {"sqlite", "policy bundle", "openat2"} <= {check["name"] for check in checks}
        assert "policy bundle" in await known.page("/doctor")


async def test_without_a_browser_daemon_the_page_says_so(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"browser": {"enabled": False}}) as harness:
        known = await console_user(harness)
        page = await known.page("/browser")
        assert "The browser is switched off." in page and "No browser is open." in page
        assert (await known.get("/console/v1/browser/profiles", accept="*/*")).status == 503


async def test_an_older_copy_of_all_profiles_is_told_and_accepted_there(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        known = await console_user(harness)
        assert "Accept this older copy" not in await known.page("/browser")
        browser.rolled_back = True
        parts: Any = harness.gateway.browser.supervisor
        await parts._meet(browser)
        assert "Accept this older copy" in await known.page("/browser")
        accepted = await known.post("/console/v1/browser/profiles/change", {"change": "accept"})
        assert accepted.status == 200, accepted.document
        assert "Accept this older copy" not in await known.page("/browser")
        assert harness.events(kind="browser.profiles_accepted")


async def test_the_pictures_of_a_session_that_is_no_more_are_over_at_once(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, _):
        known = await console_user(harness)
        got = await known.get("/console/v1/browser/sessions/gone/watch", accept="text/event-stream")
        assert got.status == 200 and got.body.startswith(b"event: over") and b"browser.unknown_session" in got.body


@pytest.mark.promise("P-browser-handover")
async def test_what_a_person_types_into_a_browser_is_not_kept(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"browser": {"enabled": False}}) as harness:
        known = await console_user(harness)
        typed = {"inputs": [{"does": "type", "text": "hunter2"}]}
        got = await known.post("/console/v1/browser/sessions/x/operate", typed, idempotency_key="k")
        assert got.status == 503
        kept = [payload for kind, payload in harness.events() if kind == "console.action_requested"]
        assert kept[0]["arguments"] == {"inputs": "[not kept]"}
        assert "hunter2" not in str(harness.gateway.store.read("SELECT * FROM console_requests"))
        many = {"inputs": [{"does": "type", "text": "x"}] * 65}
        assert (await known.post("/console/v1/browser/sessions/x/operate", many)).document["code"] == "http.wrong_shape"
