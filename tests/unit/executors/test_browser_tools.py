"""The browser tools through the whole pipeline, with a browser daemon made of dictionaries."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from fakes.browsing import SETTINGS, Agent, browsing, opened
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.memory_browser import CSV
from palyra.browser.domain.action import Screenshot, SetFileInput, Type
from palyra.browser.domain.budget import BudgetSpent
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.store.approval_tables import read_approval
from palyra.secret import Secret
from palyra.vault.reference import SecretRef


def touched(harness: GatewayHarness, asked: CallRecord) -> dict[str, Any]:
    """What the person who approves is shown."""
    assert asked.approval_id is not None
    return dict(read_approval(harness.gateway.store, asked.approval_id).touches)


@pytest.mark.promise("P-browser-approval")
async def test_a_person_approves_the_hosts_once_and_no_click_after_that(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = Agent(harness, await harness.open_run())
        asked = await agent.call("browser.open", url="https://shop.test/login", hosts=["*.shop.test"])
        assert asked.state is CallState.NEEDS_APPROVAL
        assert touched(harness, asked)["hosts"] == ["*.shop.test", "shop.test"]
        opening = await agent.call("browser.open", approve=True, url="https://shop.test/login", hosts=["*.shop.test"])
        assert opening.result["page"]["url"] == "https://shop.test/login"
        assert opening.result["content_is_untrusted"] is True and "data" in opening.result["notice"]
        agent.session = opening.result["session"]
        for tool, arguments in (
            ("browser.navigate", {"url": "https://a.shop.test/"}),
            ("browser.snapshot", {}),
            ("browser.find", {"text": "Buy"}),
            ("browser.act", {"actions": [{"action": "click", "target": "e1"}], "snapshot": True}),
            ("browser.wait", {"text": "Buy"}),
            ("browser.screenshot", {}),
            ("browser.tabs", {}),
            ("browser.logs", {"log": "console"}),
            ("browser.downloads", {}),
        ):
            assert (await agent.call(tool, **arguments)).state is CallState.SUCCEEDED, tool
        session = next(iter(browser.sessions_by_id.values()))
        assert session.ask.hosts == ("*.shop.test", "shop.test") and not session.ask.allow_evaluate


async def test_the_receipt_says_which_fences_stand_and_what_was_refused(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        session = browser.sessions_by_id[agent.session]
        await browser.tell(session, "browser.egress_refused", text="evil.test:443", code="egress.host_not_allowed")
        record = await agent.call("browser.snapshot")
        assert record.receipt[0] == {
            "layer": "browser guard",
            "asked": "the guard alone",
            "got": "the guard alone",
        }
        assert record.receipt[-1]["asked"] == "only shop.test"
        (refused,) = harness.events(kind="browser.egress_refused")
        assert refused[1]["text"] == "evil.test:443" and refused[1]["browser_session"] == agent.session


@pytest.mark.promise("P-own-only")
async def test_a_session_of_another_principal_or_run_looks_missing(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, _):
        agent = await opened(harness)
        errors = []
        for stranger in (
            Agent(harness, await harness.open_run("agent:eve"), "agent:eve"),
            Agent(harness, await harness.open_run()),
        ):
            stranger.session = agent.session
            for tool in ("browser.snapshot", "browser.close"):
                record = await stranger.call(tool)
                assert record.state is CallState.REFUSED and record.error is not None
                errors.append((record.error["code"], record.error["message"]))
            stranger.session = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
            missing = await stranger.call("browser.snapshot")
            assert missing.error is not None
            errors.append((missing.error["code"], missing.error["message"].replace(stranger.session, agent.session)))
        assert set(errors) == {("browser.unknown_session", f"there is no session {agent.session}")}
        assert (await agent.call("browser.snapshot")).state is CallState.SUCCEEDED


@pytest.mark.promise("P-browser-hosts")
async def test_a_host_that_is_not_allowed_is_refused_with_words_that_say_what_is(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        beyond = await agent.call("browser.navigate", url="https://other.test/")
        assert beyond.error is not None and beyond.error["code"] == "browser.host_not_allowed"
        assert "which are shop.test" in beyond.error["message"] and "browser.open" in beyond.error["hint"]
        inside = await agent.call("browser.act", actions=[{"action": "open_tab", "url": "https://evil.test/"}])
        assert inside.error is not None and inside.error["code"] == "browser.host_not_allowed"
        scheme = await agent.call("browser.navigate", url="file:///etc/passwd")
        assert scheme.error is not None and scheme.error["code"].startswith("egress.")
        settings = await Agent(harness, await harness.open_run()).call("browser.open", hosts=["evil.test"])
        assert settings.error is not None and settings.error["code"] == "browser.host_beyond_settings"
        assert "shop.test, *.shop.test, other.test" in settings.error["message"]
        everywhere = await Agent(harness, await harness.open_run()).call("browser.open", any_public_host=True)
        assert everywhere.error is not None and everywhere.error["code"] == "browser.host_beyond_settings"
        assert browser.asked == []


@pytest.mark.promise("P-budget-charged")
async def test_an_opening_that_is_stopped_at_its_first_page_is_charged_and_leaves_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(tmp_path) as (harness, browser), asyncio.TaskGroup() as group:
        agent, loading = Agent(harness, await harness.open_run()), asyncio.Event()

        async def for_ever(*_given: Any, **_more: Any) -> Any:
            loading.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(browser, "act", for_ever)
        request = agent.call("browser.open", approve=True, url="https://shop.test/", hosts=["shop.test"])
        calling = group.create_task(request)
        await loading.wait()
        (started,) = harness.gateway.store.events_since(0, 1_000, kind="call.started")
        await harness.gateway.broker.cancel(started.call)
        assert (await calling).state is CallState.CANCELLED
        assert harness.run(agent.run).budget[BudgetKind.BROWSER_ACTIONS].used == 2
        assert not browser.sessions_by_id
        ((_, closed),) = harness.events(kind="browser.session_closed")
        assert "stopped" in closed["reason"]


async def test_any_public_host_is_there_where_the_operator_lets_it(tmp_path: Path) -> None:
    async with browsing(tmp_path, browser={"any_public_host": True}) as (harness, browser):
        agent = await opened(harness, any_public_host=True)
        assert browser.sessions_by_id[agent.session].ask.any_public_host
        assert (await agent.call("browser.navigate", url="https://anywhere.example/")).state is CallState.SUCCEEDED
        odd = await agent.call("browser.navigate", url="https://anywhere.example:8443/")
        assert odd.error is not None and "any public host" in odd.error["message"]
        named = await opened(harness, hosts=["named.example"])
        assert browser.sessions_by_id[named.session].ask.hosts == ("named.example",)


@pytest.mark.promise("P-policy-reload")
async def test_policy_can_take_a_host_away_and_cuts_sessions_that_have_it(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, _):
        agent = await opened(harness, hosts=["shop.test", "other.test"])
        spared = await opened(harness)
        (tmp_path / "policies").mkdir(exist_ok=True)
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("no-other") forbid(principal, action == Action::"browser.navigate", resource)'
            ' when { resource.name == "other.test" };'
        )
        await harness.gateway.policy.reload()
        await eventually(lambda: harness.events(kind="browser.session_closed") != [])
        ended = [payload for _, payload in harness.events(kind="browser.session_closed")]
        assert [each["reason"] for each in ended] == ["policy no longer allows other.test:80, other.test:443"]
        assert (await agent.call("browser.snapshot")).state is CallState.REFUSED
        assert (await spared.call("browser.snapshot")).state is CallState.SUCCEEDED
        again = await Agent(harness, await harness.open_run()).call("browser.open", hosts=["other.test"])
        assert again.state is CallState.DENIED and again.decision is not None
        assert "no-other" in again.decision["policies"]


@pytest.mark.promise("P-secret-typed")
async def test_a_shared_secret_is_typed_after_approval_for_its_origin_and_shown_nowhere(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        await harness.gateway.vault.put(
            SecretRef.parse("global/shop"), Secret("hunter2-and-more"), actor="user:operator"
        )
        agent = await opened(harness, hosts=["shop.test", "other.test"])
        typing = [{"action": "type", "target": "e1", "secret": "global/shop", "submit": True}]
        asked = await agent.call("browser.act", actions=typing)
        assert asked.state is CallState.NEEDS_APPROVAL
        assert touched(harness, asked)["secrets"] == ["global/shop"]
        typed = await agent.call("browser.act", approve=True, actions=typing)
        assert typed.state is CallState.SUCCEEDED, typed.error
        (action,) = browser.asked
        assert isinstance(action, Type) and action.secret == Secret("hunter2-and-more")
        assert action.origins == ("https://shop.test",)
        # The page said it in its title.
        assert "hunter2" not in repr(typed.result) and "[redacted]" in typed.result["outcomes"][0]["title"].lower()
        (used,) = harness.events(kind="vault.secret_used")
        assert used[1]["host"] == "shop.test:443"
        assert "hunter2" not in repr(harness.events())


async def test_a_secret_of_the_agents_own_is_typed_without_asking_and_anothers_never(tmp_path: Path) -> None:
    bound = [{"secret_ref": f"principal:agent:{name}/pw", "origins": ["https://shop.test"]} for name in ("bot", "eve")]
    async with browsing(tmp_path, browser={"bindings": bound}) as (harness, browser):
        for name in ("bot", "eve"):
            ref = SecretRef.parse(f"principal:agent:{name}/pw")
            await harness.gateway.vault.put(ref, Secret(f"value-of-{name}"), actor="user:operator")
        agent = await opened(harness)

        def typing(name: str) -> list[dict[str, Any]]:
            return [{"action": "type", "target": "e1", "secret": f"principal:agent:{name}/pw"}]

        assert (await agent.call("browser.act", actions=typing("bot"))).state is CallState.SUCCEEDED
        anothers = await agent.call("browser.act", actions=typing("eve"))
        assert anothers.state is CallState.REFUSED and anothers.error is not None
        assert anothers.error["code"] == "vault.scope_denied" and len(browser.asked) == 1


@pytest.mark.promise("P-secret-typed")
async def test_a_secret_goes_only_where_it_is_bound(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        for ref in ("global/shop", "global/loose", "principal:agent:eve/pw"):
            await harness.gateway.vault.put(SecretRef.parse(ref), Secret("value-of-it"), actor="user:operator")
        agent = await opened(harness, hosts=["other.test"])
        codes = {}
        for ref in ("global/shop", "global/loose"):
            record = await agent.call("browser.act", actions=[{"action": "type", "target": "e1", "secret": ref}])
            assert record.error is not None
            codes[ref] = (record.error["code"], record.error["message"])
        assert codes["global/shop"] == (
            "browser.secret_not_bound",
            "global/shop is bound to https://shop.test, which this session does not reach",
        )
        assert codes["global/loose"][1] == "global/loose is bound to no origin, so it is typed nowhere"
        assert browser.asked == [] and harness.events(kind="vault.secret_used") == []


@pytest.mark.promise("P-browser-approval")
async def test_files_of_the_workspace_are_uploaded_only_after_approval_and_never_through_links(tmp_path: Path) -> None:
    async with browsing(tmp_path, tools={"preapproved": ["fs.*"]}) as (harness, browser):
        (harness.workspace / "a.txt").write_text("hello")
        (harness.workspace / "out").symlink_to("/etc/passwd")
        agent = await opened(harness)
        upload = [{"action": "upload", "target": "e1", "paths": ["a.txt"]}]
        assert (await agent.call("browser.act", actions=upload)).state is CallState.NEEDS_APPROVAL
        done = await agent.call("browser.act", approve=True, actions=upload)
        assert done.state is CallState.SUCCEEDED, done.error
        (action,) = browser.asked
        assert isinstance(action, SetFileInput)
        assert [(each.name, each.content) for each in action.files] == [("a.txt", b"hello")]
        link = await agent.call(
            "browser.act", approve=True, actions=[{"action": "upload", "target": "e1", "paths": ["out"]}]
        )
        assert link.error is not None and link.error["code"] == "workspace.escape"
        assert len(browser.asked) == 1


@pytest.mark.promise("P-browser-approval")
async def test_scripts_run_only_where_a_policy_permits_them(tmp_path: Path) -> None:
    script = [{"action": "evaluate", "expression": "1 + 1"}]
    async with browsing(tmp_path) as (harness, _):
        agent = await opened(harness)
        denied = await agent.call("browser.act", actions=script)
        assert denied.state is CallState.DENIED and denied.error is not None
        assert 'Action::"browser.evaluate"' in denied.error["hint"]
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("scripts") permit(principal == Agent::"bot", action == Action::"browser.evaluate", resource);'
    )
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        assert browser.sessions_by_id[agent.session].ask.allow_evaluate
        assert (await agent.call("browser.act", actions=script)).state is CallState.SUCCEEDED


@pytest.mark.promise("P-browser-approval")
async def test_a_download_is_saved_like_a_file_that_is_written(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        listed = await agent.done("browser.downloads")
        states = [(each["name"], each["state"], each["reasons"]) for each in listed["downloads"]]
        assert states == [("orders.csv", "ready", []), ("disguised.csv", "quarantined", ["executable"])]
        good = browser.records[0]
        save = {"save": good.id, "path": "got/orders.csv"}
        assert (await agent.call("browser.downloads", **save)).state is CallState.NEEDS_APPROVAL
        saved = await agent.done("browser.downloads", approve=True, **save)
        assert (harness.workspace / "got/orders.csv").read_bytes() == CSV
        assert saved["saved"]["sha256"] == good.digest
        (event,) = harness.events(kind="browser.download_saved")
        assert event[1]["digest"] == good.digest and event[1]["path"] == "got/orders.csv"
        protected = await agent.call("browser.downloads", approve=True, save=good.id, path=".git/hooks/pre-commit")
        assert protected.error is not None and protected.error["code"] == "workspace.protected_name"


@pytest.mark.promise("P-budget-charged")
async def test_actions_are_charged_to_the_run_and_a_failed_batch_for_what_it_tried(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        click = {"action": "click", "target": "e1"}

        def used() -> int:
            return harness.run(str(agent.run)).budget[BudgetKind.BROWSER_ACTIONS].used

        before = used()
        assert before == 1
        await agent.done("browser.act", actions=[click] * 3)
        assert used() == before + 3
        browser.failing = BudgetSpent("enough")
        failed = await agent.call("browser.act", actions=[click] * 3)
        assert failed.state is CallState.FAILED and failed.error is not None
        assert failed.error["code"] == "browser.budget_spent"
        assert failed.result["done"] == 0 and failed.result["problem"]["code"] == "browser.budget_spent"
        assert used() == before + 4
        poor = Agent(harness, await harness.open_run(browser_actions=1))
        poor.session = (await poor.done("browser.open", approve=True, hosts=["shop.test"]))["session"]
        out = await poor.call("browser.snapshot")
        assert out.error is not None and out.error["code"] == "budget.exhausted"


async def test_a_picture_that_does_not_fit_is_taken_again_as_a_small_one(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        small = await agent.done("browser.screenshot")
        assert small["media_type"] == "image/png" and base64.b64decode(small["image_base64"]) == browser.picture
        browser.picture = b"x" * 2_000_000
        fitted = await agent.done("browser.screenshot", full_page=True)
        assert fitted["media_type"] == "image/jpeg" and fitted["bytes"] == 1000
        assert [each.format for each in browser.asked if isinstance(each, Screenshot)] == ["png", "png", "jpeg"]
        assert (await agent.done("browser.screenshot", format="pdf"))["pdf_base64"]


async def test_sessions_end_with_their_daemon_and_are_on_record(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, browser):
        agent = await opened(harness)
        (opening,) = harness.events(kind="browser.session_opened")
        assert opening[1]["hosts"] == ["shop.test"] and opening[1]["approved"] is True
        await agent.done("browser.close")
        (closing,) = harness.events(kind="browser.session_closed")
        assert closing[1]["reason"] == "its owner closed it" and browser.sessions_by_id == {}
        await opened(harness)
    assert browser.sessions_by_id == {}


async def test_without_a_browser_daemon_the_error_says_how_to_start_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        record = await Agent(harness, await harness.open_run()).call("browser.open", approve=True, hosts=["shop.test"])
        assert record.error is not None and record.error["code"] == "browser.unavailable"
        assert "palyra up" in record.error["hint"]
    async with open_harness(tmp_path, {**SETTINGS, "browser": {"enabled": False}}) as harness:
        record = await Agent(harness, await harness.open_run()).call("browser.open", approve=True, hosts=["shop.test"])
        assert record.error is not None and record.error["code"] == "browser.disabled"


async def test_a_person_is_asked_to_take_over_and_hands_back(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (harness, _):
        agent = await opened(harness)
        service = harness.gateway.browser.operator_service
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(agent.call("browser.handoff", reason="the second factor"))
            await eventually(lambda: harness.events(kind="browser.handoff_requested"))
            taken = await service.take_over(agent.session, "user:alice", "helping")
            assert taken["state"] == "taken_over" and taken["operator"] == "user:alice"
            await service.hand_back(agent.session, "user:alice")
        record = await waiting
        assert record.result["state"] == "handed_back" and record.result["by"] == "user:alice"
        assert [kind for kind in harness.kinds() if kind in ("browser.taken_over", "browser.handed_back")] == [
            "browser.taken_over",
            "browser.handed_back",
        ]
