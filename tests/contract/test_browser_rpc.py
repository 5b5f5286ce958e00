"""``BrowserService`` over real gRPC, with real Chromium: what palyrad's client asks is what happens in the browser."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from fakes.browserd_harness import ANNA, BEN, OPERATOR, BrowserdHarness, browserd
from fakes.processes import descendants, own_descriptors
from fakes.web_application import OTHER, PASSWORD, USER, orders_csv
from palyra.browser.domain import session_api
from palyra.browser.domain.action import Click, ElementTarget, Evaluate, Navigate, ObserveAsk, OpenTab, Screenshot, Type
from palyra.browser.domain.budget import BudgetSpent, SessionOver, TooFast, TooLarge
from palyra.browser.domain.download import Folder, Quarantined, Reason
from palyra.browser.domain.page_errors import EvaluateDenied, TakenOver
from palyra.browser.domain.session_api import (
    BadRequest,
    LiveFrame,
    NoSuchSession,
    OperatorDoes,
    OperatorInput,
    SessionEvent,
    SessionState,
    WatchAsk,
)
from palyra.browser.service.access import OperatorOnly, OwnerOnly
from palyra.secret import Secret
from palyra.wire.browser.v1 import browser_pb2 as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")
PRESS = Click(target=ElementTarget(css="button"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserdHarness]:
    async with browserd(tmp_path_factory.mktemp("browserd")) as harness:
        yield harness


@contextlib.asynccontextmanager
async def opened(harness: BrowserdHarness, **more: object) -> AsyncIterator[str]:
    session = (await harness.open(**more)).session_id
    try:
        yield session
    finally:
        with contextlib.suppress(NoSuchSession, SessionOver):
            await harness.client.close_session(ANNA, session)


async def test_a_session_is_shown_as_it_is(harness: BrowserdHarness) -> None:
    async with opened(harness, label="the shop", budget={"max_tabs_per_session": 3}) as session:
        view = await harness.client.get_session(ANNA, session)
        assert (view.principal, view.state, view.label) == ("agent:anna", SessionState.OPEN, "the shop")
        assert view.budget["max_tabs_per_session"] == 3
        assert view.budget["max_log_entries"] == 256
        fences = {line["fence"]: line["held"] for line in json.loads(view.fences_json)["lines"]}
        assert fences and all(fences.values())
        assert view.fences_waived == ()
        assert view.created_ms < view.idle_ends_ms < view.ends_ms
        assert [tab.url for tab in view.tabs] == ["about:blank"]
        assert not view.persistent
        assert [each.session_id for each in await harness.client.sessions(ANNA)] == [session]
        assert await harness.client.sessions(BEN) == ()
        assert session in [each.session_id for each in await harness.client.sessions(OPERATOR)]
    with pytest.raises(SessionOver, match="it was closed"):
        await harness.client.get_session(ANNA, session)


@pytest.mark.promise("P-secret-typed")
async def test_an_agent_logs_in_with_a_secret_that_nothing_shows_again(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness) as session:
        await client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
        seen = await client.observe(ANNA, session, ObserveAsk(interactive_only=True))
        assert "textbox" in seen.text and seen.refs
        report = await client.act(
            ANNA,
            session,
            [
                Type(target=ElementTarget(css="[name=user]"), text=USER),
                Type(
                    target=ElementTarget(css="[name=password]"),
                    secret=Secret(PASSWORD),
                    origins=(harness.site.origin(),),
                ),
                PRESS,
            ],
        )
        assert report.problem is None
        assert report.outcomes[-1].url == harness.url("/welcome")
        assert harness.site.typed[-1] == {"user": USER, "password": PASSWORD}
        # A page that repeats what it was told: the secret does not come back by it.
        await client.navigate(ANNA, session, Navigate(url=harness.url(f"/echo?said={PASSWORD.replace(' ', '%20')}")))
        repeated = await client.act(ANNA, session, [Evaluate(expression=f"document.title = {PASSWORD!r}")])
        log = await client.network_log(ANNA, session)
        events = await client.events(ANNA, session)
        recorded = repr((seen, report, repeated, log, events, await client.get_session(ANNA, session)))
        assert PASSWORD not in recorded and PASSWORD.replace(" ", "%20") not in recorded
        cookies = await client.cookies(ANNA, session)
        assert [(each.name, each.http_only) for each in cookies] == [("sid", True)]
        kinds = [event.kind for event in events]
        assert kinds[0] == session_api.OPENED and session_api.ACTED in kinds and session_api.OBSERVED in kinds
        assert {event.call_id for event in events} == {"C1"}


async def test_a_batch_stops_at_the_first_failure_and_shows_the_page_then(harness: BrowserdHarness) -> None:
    async with opened(harness) as session:
        report = await harness.client.act(
            ANNA,
            session,
            [
                Navigate(url=harness.url("/covered")),
                Click(target=ElementTarget(css="#nobody"), timeout_ms=50),
                Navigate(url=harness.url("/echo")),
            ],
            picture_on_failure=True,
        )
        assert len(report.outcomes) == 1
        assert report.problem is not None and report.problem.code.startswith("browser.")
        assert report.picture is not None and report.picture.content.startswith(b"\x89PNG")
        assert "/echo" not in harness.site.paths()[-1]
        events = await harness.client.events(ANNA, session)
        assert [event.code for event in events if event.kind == session_api.ACTED][1] == report.problem.code


async def test_pictures_tabs_and_logs(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness, viewport_width=500, viewport_height=400) as session:
        await client.navigate(ANNA, session, Navigate(url=harness.url("/frames")))
        picture = await client.screenshot(ANNA, session, Screenshot())
        assert picture.media_type == "image/png" and picture.content[16:24] == (500).to_bytes(4) + (400).to_bytes(4)
        await client.act(
            ANNA, session, [OpenTab(url=harness.url("/big?rows=2")), Evaluate(expression="console.log(7)")]
        )
        tabs = await client.tabs(ANNA, session)
        assert len(tabs) == 2
        assert [entry.text for entry in await client.console_log(ANNA, session)] == ["7"]
        network = await client.network_log(ANNA, session)
        assert any(OTHER in entry.url for entry in network)
        assert await client.network_log(ANNA, session, last=1) == network[-1:]


async def test_what_a_session_may_not_reach_it_is_told_and_it_is_on_record(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness) as session:
        evil = f"http://evil.test:{harness.site.port}/"
        report = await client.act(ANNA, session, [Navigate(url=evil)])
        assert report.problem is not None and report.problem.code == "egress.host_not_allowed"
        with pytest.raises(type(report.problem)):
            await client.navigate(ANNA, session, Navigate(url=evil))
        # A page that goes there by itself meets the same end.
        await client.navigate(ANNA, session, Navigate(url=harness.url("/")))
        outcome = (await client.act(ANNA, session, [Evaluate(expression=f"fetch({evil!r}).catch(() => 1)")])).outcomes[
            0
        ]
        assert [line for line in outcome.refused if "evil.test" in line]
        assert "evil.test" not in {host for _, host, _ in harness.site.requests}


async def refused_by_the_guard(harness: BrowserdHarness, session: str) -> SessionEvent:
    """A WebSocket is not held by Chromium for anybody: only the guard stops it."""
    await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/")))
    script = f"new WebSocket('ws://evil.test:{harness.site.port}/')"
    await harness.client.act(ANNA, session, [Evaluate(expression=script)])
    async for _ in _until(60):
        for event in await harness.client.events(ANNA, session):
            if event.kind == session_api.REFUSED:
                return event
    raise AssertionError("the guard refused nothing")


async def test_what_the_guard_refuses_becomes_an_event(harness: BrowserdHarness) -> None:
    async with opened(harness) as session:
        event = await refused_by_the_guard(harness, session)
        assert event.code == "egress.host_not_allowed" and "evil.test" in event.text


async def test_downloads_are_served_quarantined_and_released_by_a_person(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness) as session:
        await client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
        await client.act(
            ANNA,
            session,
            [
                Type(target=ElementTarget(css="[name=user]"), text=USER),
                Type(target=ElementTarget(css="[name=password]"), text=PASSWORD),
                PRESS,
            ],
        )
        for number, path in enumerate(("/orders.csv", "/disguised.csv"), 1):
            await client.act(ANNA, session, [Evaluate(expression=f"location.href = {path!r}")])
            # One after the other: a page that goes elsewhere lets go of what it has asked for.
            async for _ in _until(60):
                records = await client.downloads(ANNA, session)
                if len(records) == number:
                    break
        good, bad = sorted(records, key=lambda record: record.folder)
        assert (good.name, good.folder, bad.folder) == ("orders.csv", Folder.ALLOWLIST, Folder.QUARANTINE)
        assert Reason.EXECUTABLE in bad.reasons
        assert b"".join([c async for c in client.read_download(ANNA, session, good.id)]) == orders_csv().encode()
        with pytest.raises(Quarantined):
            [c async for c in client.read_download(ANNA, session, bad.id)]
        with pytest.raises(OperatorOnly):
            await client.release_download(ANNA, session, bad.id)
        released = await client.release_download(OPERATOR, session, bad.id)
        assert (released.folder, released.released_by) == (Folder.ALLOWLIST, "user:operator")
        assert b"".join([c async for c in client.read_download(ANNA, session, bad.id)]).startswith(b"MZ")
        await client.delete_download(ANNA, session, good.id)
        assert [each.id for each in await client.downloads(ANNA, session)] == [bad.id]
        recorded = {event.kind: event for event in await client.events(ANNA, session)}
        assert recorded[session_api.DOWNLOAD_RELEASED].actor == "user:operator"
        assert bad.digest in recorded[session_api.DOWNLOAD_RELEASED].text
        assert good.digest in recorded[session_api.DOWNLOAD_DELETED].text


async def test_a_person_watches_takes_over_and_hands_back(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness, budget={"max_action_timeout_ms": 200}) as session:
        await client.navigate(ANNA, session, Navigate(url=harness.url("/echo")))
        watching = client.watch(OPERATOR, session, WatchAsk())
        seen: list[object] = []
        async for each in watching:
            seen.append(each)
            if isinstance(each, LiveFrame):
                break
        assert isinstance(seen[0], SessionEvent) and seen[0].number == 1
        frame = seen[-1]
        assert isinstance(frame, LiveFrame) and frame.picture.startswith(b"\xff\xd8") and frame.width
        with pytest.raises(OperatorOnly):
            await client.take_over(ANNA, session, "mine")
        view = await client.take_over(OPERATOR, session, "a captcha")
        assert (view.state, view.operator) == (SessionState.TAKEN_OVER, "user:operator")
        refused = await client.act(ANNA, session, [PRESS])
        assert isinstance(refused.problem, TakenOver)
        await client.operate(OPERATOR, session, [OperatorInput(does=OperatorDoes.TYPE, text="by hand")])
        assert (await client.hand_back(OPERATOR, session)).state is SessionState.OPEN
        assert (await client.act(ANNA, session, [Screenshot()])).problem is None
        recorded = [(event.kind, event.text, event.actor) for event in await client.events(OPERATOR, session)]
        assert (session_api.TAKEN_OVER, "a captcha", "user:operator") in recorded
        assert (session_api.OPERATED, "1: type", "user:operator") in recorded
        assert (session_api.HANDED_BACK, "", "user:operator") in recorded
        assert (session_api.LOOKED_AT, "watched", "user:operator") in recorded
        assert "by hand" not in repr(recorded)


async def test_a_watcher_is_told_the_end(harness: BrowserdHarness) -> None:
    session = (await harness.open()).session_id
    watching = harness.client.watch(ANNA, session, WatchAsk(frames=False))
    first = await anext(watching)
    assert isinstance(first, SessionEvent) and first.kind == session_api.OPENED
    await harness.client.close_session(ANNA, session)
    assert [each.kind async for each in watching if isinstance(each, SessionEvent)] == [session_api.CLOSED]


@pytest.mark.promise("P-budget-own")
async def test_budgets_are_clamped_counted_and_told(harness: BrowserdHarness) -> None:
    client = harness.client
    async with opened(harness, budget={"max_actions_per_session": 2, "max_screenshot_bytes": 10}) as session:
        await client.navigate(ANNA, session, Navigate(url=harness.url("/")))
        with pytest.raises(TooLarge):
            await client.screenshot(ANNA, session, Screenshot())
        with pytest.raises(BudgetSpent) as spent:
            await client.observe(ANNA, session, ObserveAsk())
        assert spent.value.details["field"] == "max_actions_per_session"
        view = await client.get_session(ANNA, session)
        assert view.spent["max_actions_per_session"] == 2 and view.spent["max_network_bytes"] > 100
    async with opened(harness, budget={"max_actions_per_window": 1}) as session:
        report = await client.act(ANNA, session, [Screenshot(), Screenshot()])
        assert isinstance(report.problem, TooFast) and report.problem.details["retry_after_ms"] > 0
    async with opened(harness, budget={"max_network_bytes": 600}) as session:
        await client.act(ANNA, session, [Navigate(url=harness.url("/big?rows=200"))])
        spent_all = await client.act(ANNA, session, [Navigate(url=harness.url("/"))])
        assert spent_all.problem is not None and spent_all.problem.code in (
            *("browser.budget_spent", "browser.navigation_failed"),
        )
        assert (await client.get_session(ANNA, session)).spent["max_network_bytes"] <= 600


async def test_evaluate_needs_the_right_that_the_session_was_opened_with(harness: BrowserdHarness) -> None:
    async with opened(harness, allow_evaluate=False) as session:
        report = await harness.client.act(ANNA, session, [Evaluate(expression="1")])
        assert isinstance(report.problem, EvaluateDenied)


@pytest.mark.promise("P-limits")
async def test_bad_requests_have_a_code(harness: BrowserdHarness) -> None:
    client = harness.client
    with pytest.raises(BadRequest):
        await harness.open(label="two\nlines")
    async with opened(harness) as session:
        for actions in ([], [Screenshot()] * 33):
            with pytest.raises(BadRequest):
                await client.act(ANNA, session, actions)
        with pytest.raises(OwnerOnly):
            await client.navigate(OPERATOR, session, Navigate(url=harness.url("/")))
        with pytest.raises(BadRequest, match="for whom"):
            await client._ask("GetSession", wire.SessionRequest(session_id=session))


@pytest.mark.promise("P-tokens")
async def test_without_the_token_nothing_is_answered(harness: BrowserdHarness) -> None:
    for metadata in ((), (("palyra-browser-token", "guess"),), (("palyra-browser-token", ""),)):
        for method in wire.DESCRIPTOR.services_by_name["BrowserService"].methods:
            path = f"/palyra.browser.v1.BrowserService/{method.name}"
            call = harness.client._channel.unary_unary(path)(b"", metadata=metadata)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert refused.value.details() == "browser.not_admitted"


async def test_health_and_metrics_tell_counts_only(harness: BrowserdHarness) -> None:
    async with opened(harness) as session:
        await refused_by_the_guard(harness, session)
        health = await harness.client.health()
        assert health.status == "ok" and health.sessions >= 1 and health.product.startswith("HeadlessChrome/")
        shown = harness.parts.metrics.render().decode()
        assert 'palyra_browser_actions_total{kind="navigate",outcome="done"}' in shown
        assert 'palyra_browser_refusals_total{code="egress.host_not_allowed"}' in shown
        assert session not in shown and "shop.test" not in shown and "anna" not in shown


async def _until(seconds: float) -> AsyncIterator[None]:
    """Turns of the loop until what is waited for is there; the bound is for a machine that is very busy."""
    async with asyncio.timeout(seconds):
        while True:
            yield
            await asyncio.sleep(0.02)


@pytest.mark.promise("P-browser-ends")
async def test_sessions_opened_and_closed_leave_no_process_descriptor_or_folder(harness: BrowserdHarness) -> None:
    """The short form of tests/soak/test_many_browser_sessions.py."""

    async def several() -> None:
        views = await asyncio.gather(*(harness.open() for _ in range(3)))
        for view in views:
            await harness.client.navigate(ANNA, view.session_id, Navigate(url=harness.url("/")))
        await asyncio.gather(*(harness.client.close_session(ANNA, view.session_id) for view in views))

    async def ready() -> None:
        async with harness.until(60):
            while harness.parts.pool.ready < 1:
                await harness.turn()

    def counted() -> tuple[int, int]:
        return len(descendants(os.getpid())), own_descriptors()

    async def at_rest() -> tuple[int, int]:
        """One that is just being started has a process more for a moment."""
        seen, same = counted(), 0
        async with harness.until(60):
            while same < 50:
                await harness.turn()
                now = counted()
                seen, same = now, same + 1 if now == seen else 0
        return seen

    await several()
    await ready()
    before = await at_rest()
    for _ in range(2):
        await several()
        await ready()
    async with harness.until(60):
        while counted() != before:
            await harness.turn()
    assert list((harness.parts._state.root / "browser" / "sessions").iterdir()) == []
