"""Requests are held until they were judged: a scripted browser, and what it is answered."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.page_harness import EVIL, SHOP, ListedJudge, NotAllowed
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.page_address import Refusals
from palyra.browser.engine.cdp_connection import TooManyCommands
from palyra.browser.tabs.request_interception import MAX_JUDGED_AT_ONCE, Interception


class ScriptedBrowser:
    """Takes what is posted and sends events."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.full = False
        self._handlers: list[Callable[[CdpEvent], None]] = []

    async def send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.posted.append((method, params))
        return {}

    def post(self, method: str, params: dict[str, Any], session_id: str | None = None) -> None:
        if self.full:
            raise TooManyCommands("it does not read")
        self.posted.append((method, params))

    def subscribe(self, session_id: str | None, handler: Callable[[CdpEvent], None]) -> Callable[[], None]:
        assert session_id is None
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def pause(self, id_: str, url: str, kind: str = "Image", **more: Any) -> None:
        params = {"requestId": id_, "request": {"url": url}, "resourceType": kind, "frameId": "F", **more}
        for handler in tuple(self._handlers):
            handler(CdpEvent("Fetch.requestPaused", params))

    def answers(self) -> dict[str, str]:
        return {params["requestId"]: method for method, params in self.posted}


class Held:
    def __init__(self, judge: Any = None) -> None:
        self.browser = ScriptedBrowser()
        self.refusals = Refusals(str)
        self.interception = Interception(self.browser, judge or ListedJudge(SHOP), self.refusals)  # type: ignore[arg-type]


async def test_it_is_switched_on_for_everything_at_the_browser_itself() -> None:
    held = Held()
    await held.interception.start()
    assert held.browser.posted == [("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})]


async def test_what_is_allowed_goes_on_and_what_is_not_fails_and_is_recorded() -> None:
    held = Held()
    held.browser.pause("1", f"http://{SHOP}/a.png")
    held.browser.pause("2", f"http://{EVIL}/a.png")
    held.browser.pause("3", "file:///etc/passwd")
    held.browser.pause("4", "blob:http://shop.test/1")
    assert held.browser.answers() == {
        "1": "Fetch.continueRequest",
        "2": "Fetch.failRequest",
        "3": "Fetch.failRequest",
        "4": "Fetch.continueRequest",
    }
    assert held.browser.posted[1][1]["errorReason"] == "BlockedByClient"
    assert [each.code for each in held.refusals.since(0)] == ["test.not_allowed", "browser.scheme_refused"]


async def test_documents_wait_for_their_judge_and_are_known_afterwards() -> None:
    held = Held()
    held.browser.pause("1", f"http://{SHOP}/", "Document", networkId="L1")
    held.browser.pause("2", f"http://{EVIL}/", "Document", networkId="L2")
    assert held.browser.posted == []
    await eventually(lambda: len(held.browser.posted) >= 2, every=0)
    assert held.browser.answers() == {"1": "Fetch.continueRequest", "2": "Fetch.failRequest"}
    assert held.interception.was_judged("L1")
    assert not held.interception.was_judged("L2")
    assert isinstance(held.refusals.of_document("F", 0), NotAllowed)
    with pytest.raises(NotAllowed):
        await held.interception.judge_document(f"http://{EVIL}/", frame="G")
    assert held.refusals.of_document("G", 0) is not None


async def test_a_judge_that_fails_or_never_answers_lets_nothing_pass() -> None:
    class Broken:
        async def judge_document(self, url: str) -> None:
            if "slow" in url:
                await asyncio.Event().wait()
            raise RuntimeError("no idea")

        def judge_request(self, url: str) -> None:
            raise RuntimeError("no idea")

    held = Held(Broken())
    held.browser.pause("1", f"http://{SHOP}/a.png")
    held.browser.pause("2", f"http://{SHOP}/", "Document")
    held.browser.pause("3", f"http://{SHOP}/slow", "Document")
    await eventually(lambda: len(held.browser.posted) >= 2, every=0)
    await held.interception.close()
    assert held.browser.answers() == {"1": "Fetch.failRequest", "2": "Fetch.failRequest"}
    assert {each.code for each in held.refusals.since(0)} == {"internal.bug"}


@pytest.mark.promise("P-floods")
async def test_a_thousand_frames_are_judged_a_few_at_a_time() -> None:
    class Counting:
        now = most = 0

        async def judge_document(self, url: str) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1

    judge = Counting()
    held = Held(judge)
    for number in range(1_000):
        held.browser.pause(str(number), f"http://{SHOP}/{number}", "Document")
    await eventually(lambda: len(held.browser.posted) >= 1_000, every=0)
    assert judge.most == MAX_JUDGED_AT_ONCE


async def test_a_browser_that_does_not_listen_keeps_its_requests() -> None:
    held = Held()
    held.browser.full = True
    held.browser.pause("1", f"http://{SHOP}/a.png")
    assert held.browser.posted == [] and held.interception.held == 1


async def test_what_is_only_told_of_is_looked_at() -> None:
    held = Held()
    assert held.interception.look_at(f"ws://{SHOP}/", "F") == ""
    assert held.interception.look_at(f"ws://{EVIL}/", "F") == "test.not_allowed"
    assert held.refusals.total == 1
