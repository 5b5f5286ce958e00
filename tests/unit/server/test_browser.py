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


class BrowserApi:
    def __init__(self, harness: GatewayHarness, browser: MemoryBrowser, token: str) -> None:
        self.harness, self.browser, self.token = harness, browser, token
        self.app = create_app(harness.gateway.service)

    async def __call__(self, method: str, path: str, body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1/browser{path}", token=token or self.token, body=body)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrowserApi]:
    async with browsing(tmp_path) as (harness, browser):
        yield BrowserApi(harness, browser, await operator(harness))


async def test_everybodys_sessions_are_listed_shown_and_ended(api: BrowserApi) -> None:
    agent = await opened(api.harness)
    (shown,) = (await api("GET", "/sessions")).data["sessions"]
    assert (shown["session_id"], shown["principal"], shown["run_id"]) == (agent.session, "agent:bot", str(agent.run))
    assert shown["hosts"] == ["shop.test"] and shown["fences"][0]["layer"] == "browser guard" and shown["approved"]
    assert "fences_json" not in shown
    assert (await api("GET", f"/sessions/{agent.session}")).data == shown
    assert (await api("POST", f"/sessions/{agent.session}/close")).data["closed"] is True
    assert (await api("GET", f"/sessions/{agent.session}")).code == "browser.unknown_session"
    (ended,) = api.harness.events(kind="browser.session_closed")
    assert ended[1]["reason"].endswith("closed it") and len(api.harness.gateway.browser.registry) == 0


@pytest.mark.promise("P-browser-approval")
async def test_downloads_are_released_and_deleted_on_record_with_their_digest(api: BrowserApi) -> None:
    agent = await opened(api.harness)
    place = f"/sessions/{agent.session}/downloads"
    listed = (await api("GET", place)).data["downloads"]
    held = next(each for each in listed if each["state"] == "quarantined")
    released = (await api("POST", f"{place}/{held['id']}/release")).data
    assert released["state"] == "ready" and released["released_by"].startswith("user:")
    assert (await api("DELETE", f"{place}/{held['id']}")).status == 200
    for kind in ("browser.download_released", "browser.download_deleted"):
        (entry,) = api.harness.events(kind=kind)
        assert held["digest"] in entry[1]["text"]


async def test_a_session_is_taken_over_and_handed_back_on_record(api: BrowserApi) -> None:
    agent = await opened(api.harness)
    taken = (await api("POST", f"/sessions/{agent.session}/takeover", {"reason": "a captcha"})).data
    assert taken["state"] == "taken_over"
    assert (await api("POST", f"/sessions/{agent.session}/handback")).data["state"] == "open"
    (entry,) = api.harness.events(kind="browser.taken_over")
    assert entry[1]["text"] == "a captcha"


async def test_profiles_are_made_emptied_and_deleted_for_their_principal(api: BrowserApi) -> None:
    made = await api("POST", "/profiles", {"principal": "agent:bot", "name": "work"})
    assert made.status == 201 and made.data["principal"] == "agent:bot"
    profile = made.data["profile_id"]
    assert [each["profile_id"] for each in (await api("GET", "/profiles")).data["profiles"]] == [profile]
    agent = await opened(api.harness, profile="work")
    assert api.browser.sessions_by_id[agent.session].ask.profile_id == profile
    assert (await api("POST", f"/profiles/{profile}/reset")).status == 200
    assert (await api("DELETE", f"/profiles/{profile}")).status == 200
    assert (await api("DELETE", f"/profiles/{profile}")).code == "browser.unknown_profile"
    kinds = [kind for kind in api.harness.kinds() if kind.startswith("browser.profile")]
    assert kinds == ["browser.profile_created", "browser.profile_reset", "browser.profile_deleted"]
    stranger = await opened(api.harness, principal="agent:eve")
    again = await stranger.call("browser.open", approve=True, hosts=["shop.test"], profile="work")
    assert again.error is not None and again.error["code"] == "browser.unknown_profile"


async def test_an_older_copy_of_the_profiles_is_told_and_accepted_on_record(api: BrowserApi) -> None:
    assert (await api("GET", "/profiles")).data["rolled_back"] is False
    assert (await api("POST", "/profiles/accept")).code == "browser.profiles_not_rolled_back"
    api.browser.rolled_back = True
    parts: Any = api.harness.gateway.browser.supervisor
    await parts._meet(api.browser)
    assert (await api("GET", "/profiles")).data["rolled_back"] is True
    accepted = (await api("POST", "/profiles/accept")).data
    assert accepted == {"heard": 0, "found": 1, "generation": 11}
    assert (await api("GET", "/profiles")).data["rolled_back"] is False
    kinds = [kind for kind in api.harness.kinds() if kind.startswith("browser.profiles")]
    assert kinds == ["browser.profiles_folder_rolled_back", "browser.profiles_accepted"]


async def test_agents_and_other_users_are_told_nothing(api: BrowserApi) -> None:
    agent = await opened(api.harness)
    for principal, scopes in (("agent:bot", (TokenScope.CALL,)), ("user:eve", (TokenScope.CALL, TokenScope.OPERATE))):
        token = await make_token(api.harness, principal, *scopes)
        for method, path in (
            ("GET", "/sessions"),
            ("POST", f"/sessions/{agent.session}/close"),
            ("POST", f"/sessions/{agent.session}/takeover"),
            ("GET", "/profiles"),
            ("POST", "/profiles/accept"),
        ):
            assert (await api(method, path, token=token)).status == 403, (principal, path)
    assert len(api.harness.gateway.browser.registry) == 1


async def test_without_a_browser_daemon_it_says_so(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = BrowserApi(harness, MemoryBrowser(), await operator(harness))
        assert ((missing := await api("GET", "/sessions")).status, missing.code) == (503, "browser.unavailable")
