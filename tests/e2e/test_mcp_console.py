"""An agent behind a real MCP client asks; a person decides on the console, in a real Chromium; the agent asks again."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from fakes.console_harness import PATIENCE_MS, ConsoleHarness, console_harness
from fakes.mcp_clients import TRANSPORTS, connected, meta, words

expect.set_options(timeout=PATIENCE_MS)
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleHarness]:
    with console_harness(tmp_path_factory.mktemp("asked")) as opened:
        yield opened


class Agent:
    """Calls, goes away with the question, and calls again once it is told to. It lives in a thread of its own: the
    browser has this one."""

    def __init__(self, harness: ConsoleHarness, transport: str, arguments: dict[str, str]) -> None:
        self.results: list[Any] = []
        self.asked = threading.Event()
        self.answered = threading.Event()
        with harness.daemon.client() as owner:
            token = owner.create_token("agent:guest").token.reveal()

        async def converse() -> None:
            async with connected(transport, harness.place, harness.daemon, token) as client:
                self.results.append(await client.call_tool("fs_write", arguments))
                self.asked.set()
                assert await asyncio.to_thread(self.answered.wait, PATIENCE_SECONDS)
                self.results.append(await client.call_tool("fs_write", arguments))

        self._thread = threading.Thread(target=lambda: asyncio.run(converse()))
        self._thread.start()

    def second_result(self) -> Any:
        self.answered.set()
        self._thread.join(PATIENCE_SECONDS)
        return self.results[1]

    def close(self) -> None:
        self.answered.set()
        self._thread.join(PATIENCE_SECONDS)


@pytest.mark.promise("P-approval-answer")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("decision", ["Approve", "Deny"])
def test_what_a_person_decides_on_the_console_is_what_the_client_gets(
    harness: ConsoleHarness, transport: str, decision: str
) -> None:
    name = f"{transport}-{decision}.txt"
    page = harness.page("/")
    page.evaluate("window.untouched = true")
    agent = Agent(harness, transport, {"path": name, "content": "from the agent"})
    try:
        assert agent.asked.wait(PATIENCE_SECONDS)
        (first,) = agent.results
        assert first.is_error and f"{harness.daemon.url}/approvals" in words(first)
        # The overview shows it by itself, and leads to it.
        page.locator(f'#now a[href="/approvals/{meta(first, "approval_id")}"]', has_text="fs.write").click()
        expect(page.get_by_label("Arguments of the call")).to_contain_text(name)
        if decision == "Deny":
            page.get_by_label("Reason").fill("not this file")
        page.get_by_role("button", name=decision).click()
        expect(page.locator("#request .verdict")).to_contain_text("approved" if decision == "Approve" else "denied")
        if decision == "Deny":
            expect(page.locator("#request")).to_contain_text("not this file")
        second = agent.second_result()
    finally:
        agent.close()
    written = harness.place.state / "workspace" / name
    if decision == "Approve":
        assert not second.is_error, words(second)
        assert written.read_text() == "from the agent"
        expect(page.locator("#request .verdict")).to_contain_text("used")
    else:
        # The same call again asks nobody: the agent is told of the no, and why.
        assert second.is_error and meta(second, "status") == "denied" and not written.exists()
        assert meta(second, "error")["code"] == "approval.denied_before" and "not this file" in words(second)
    harness.close_pages()
    assert harness.complaints == []
