"""``/v1/browser`` as an operator meets it, and as nobody else does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.browsing import browsing, opened
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.memory_browser import MemoryBrowser
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.server.http.app import create_app


class Desk:
    def __init__(self, harness: GatewayHarness, browser: MemoryBrowser, token: str) -> None:
        self.harness, self.browser, self.token = harness, browser, token
        self.app = create_app(harness.gateway.service)

    async def __call__(self, method: str, path: str, body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1/browser{path}", token=token or self.token, body=body)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with browsing(tmp_path) as (harness, browser):
        yield Desk(harness, browser, await operator(harness))


async def test_everybodys_sessions_are_listed_shown_and_ended(desk: Desk) -> None:
    agent = await opened(desk.harness)
    (shown,) = (await desk("GET", "/sessions")).data["sessions"]
    assert (shown["session_id"], shown["principal"], shown["run_id"]) == (agent.session, "agent:bot", str(agent.run))
    assert shown["hosts"] == ["shop.test"] and shown["fences"][0]["layer"] == "browser guard" and shown["approved"]
    assert "fences_json" not in shown
    assert (await desk("GET", f"/sessions/{agent.session}")).data == shown
    assert (await desk("POST", f"/sessions/{agent.session}/close")).data["closed"] is True
    assert (await desk("GET", f"/sessions/{agent.session}")).code == "browser.unknown_session"
    (ended,) = desk.harness.events(kind="browser.session_closed")
    assert ended[1]["reason"].endswith("closed it") and len(desk.harness.gateway.browser.book) == 0


@pytest.mark.promise("P-browser-approval")
async def test_downloads_are_released_and_deleted_on_record_with_their_digest(desk: Desk) -> None:
    agent = await opened(desk.harness)
    place = f"/sessions/{agent.session}/downloads"
    listed = (await desk("GET", place)).data["downloads"]
    held = next(each for each in listed if each["state"] == "quarantined")
    released = (await desk("POST", f"{place}/{held['id']}/release")).data
    assert released["state"] == "ready" and released["released_by"].startswith("user:")
    assert (await desk("DELETE", f"{place}/{held['id']}")).status == 200
    for kind in ("browser.download_released", "browser.download_deleted"):
        (entry,) = desk.harness.events(kind=kind)
        assert held["digest"] in entry[1]["text"]


async def test_a_session_is_taken_over_and_handed_back_on_record(desk: Desk) -> None:
    agent = await opened(desk.harness)
    taken = (await desk("POST", f"/sessions/{agent.session}/takeover", {"reason": "a captcha"})).data
    assert taken["state"] == "taken_over"
    assert (await desk("POST", f"/sessions/{agent.session}/handback")).data["state"] == "open"
    (entry,) = desk.harness.events(kind="browser.taken_over")
    assert entry[1]["text"] == "a captcha"


async def test_profiles_are_made_emptied_and_deleted_for_their_principal(desk: Desk) -> None:
    made = await desk("POST", "/profiles", {"principal": "agent:bot", "name": "work"})
    assert made.status == 201 and made.data["principal"] == "agent:bot"
    profile = made.data["profile_id"]
    assert [each["profile_id"] for each in (await desk("GET", "/profiles")).data["profiles"]] == [profile]
    agent = await opened(desk.harness, profile="work")
    assert desk.browser.sessions_by_id[agent.session].ask.profile_id == profile
    assert (await desk("POST", f"/profiles/{profile}/reset")).status == 200
    assert (await desk("DELETE", f"/profiles/{profile}")).status == 200
    assert (await desk("DELETE", f"/profiles/{profile}")).code == "browser.unknown_profile"
    kinds = [kind for kind in desk.harness.kinds() if kind.startswith("browser.profile")]
    assert kinds == ["browser.profile_created", "browser.profile_reset", "browser.profile_deleted"]
    stranger = await opened(desk.harness, principal="agent:eve")
    again = await stranger.call("browser.open", approve=True, hosts=["shop.test"], profile="work")
    assert again.error is not None and again.error["code"] == "browser.unknown_profile"


async def test_an_older_copy_of_the_profiles_is_told_and_accepted_on_record(desk: Desk) -> None:
    assert (await desk("GET", "/profiles")).data["rolled_back"] is False
    assert (await desk("POST", "/profiles/accept")).code == "browser.profiles_not_rolled_back"
    desk.browser.rolled_back = True
    parts: Any = desk.harness.gateway.browser.parts
    await parts._meet(desk.browser)
    assert (await desk("GET", "/profiles")).data["rolled_back"] is True
    accepted = (await desk("POST", "/profiles/accept")).data
    assert accepted == {"heard": 0, "found": 1, "generation": 11}
    assert (await desk("GET", "/profiles")).data["rolled_back"] is False
    kinds = [kind for kind in desk.harness.kinds() if kind.startswith("browser.profiles")]
    assert kinds == ["browser.profiles_folder_rolled_back", "browser.profiles_accepted"]


async def test_agents_and_other_users_are_told_nothing(desk: Desk) -> None:
    agent = await opened(desk.harness)
    for principal, scopes in (("agent:bot", (TokenScope.CALL,)), ("user:eve", (TokenScope.CALL, TokenScope.OPERATE))):
        token = await make_token(desk.harness, principal, *scopes)
        for method, path in (
            ("GET", "/sessions"),
            ("POST", f"/sessions/{agent.session}/close"),
            ("POST", f"/sessions/{agent.session}/takeover"),
            ("GET", "/profiles"),
            ("POST", "/profiles/accept"),
        ):
            assert (await desk(method, path, token=token)).status == 403, (principal, path)
    assert len(desk.harness.gateway.browser.book) == 1


async def test_without_a_browser_daemon_it_says_so(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        desk = Desk(harness, MemoryBrowser(), await operator(harness))
        assert ((missing := await desk("GET", "/sessions")).status, missing.code) == (503, "browser.unavailable")
