"""The connection over real pipes, with a scripted Chromium at the other end."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from palyra.browser.domain import limits
from palyra.browser.domain.cdp_messages import CdpBroken, CdpEvent, CommandRefused
from palyra.browser.engine.cdp_connection import BrowserEnded, CdpPipe, CommandTimeout, TargetGone, TooManyCommands


class FarEnd:
    """Reads commands and writes whatever a test wants."""

    def __init__(self) -> None:
        self.commands, to = os.pipe2(os.O_CLOEXEC)
        come, self.answers = os.pipe2(os.O_CLOEXEC)
        self.pipe = CdpPipe(come, to)
        self._read = b""
        self._closed = False

    async def command(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            self._read += await asyncio.to_thread(os.read, self.commands, 1 << 20)
        frame, _, self._read = self._read.partition(b"\0")
        command: dict[str, Any] = json.loads(frame)
        return command

    def say(self, **message: Any) -> None:
        os.write(self.answers, json.dumps(message).encode() + b"\0")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.commands)
            os.close(self.answers)


@pytest.fixture
async def far() -> AsyncIterator[FarEnd]:
    end = FarEnd()
    yield end
    end.pipe.close()
    end.close()


async def sent(far: FarEnd, *words: Any, **options: Any) -> "tuple[asyncio.Task[dict[str, Any]], dict[str, Any]]":
    task = asyncio.create_task(far.pipe.send(*words, **options))
    return task, await far.command()


async def test_a_posted_command_waits_for_nothing_and_disturbs_nobody(far: FarEnd) -> None:
    far.pipe.post("A.go", {"n": 1}, "S")
    posted = await far.command()
    assert (posted["method"], posted["params"], posted["sessionId"]) == ("A.go", {"n": 1}, "S")
    task, asked = await sent(far, "B.y")
    assert asked["id"] != posted["id"]
    far.say(id=posted["id"], error={"code": 1, "message": "no"}, sessionId="S")
    far.say(id=asked["id"], result={"is": "mine"})
    assert await task == {"is": "mine"}
    far.pipe.close()
    with pytest.raises(BrowserEnded):
        far.pipe.post("A.go", {})


async def test_each_command_gets_its_own_reply(far: FarEnd) -> None:
    first, one = await sent(far, "A.x", {"n": 1})
    second, two = await sent(far, "B.y", None, "S")
    assert two["sessionId"] == "S"
    far.say(id=two["id"], result={"is": "second"}, sessionId="S")
    far.say(id=one["id"], result={"is": "first"})
    assert await first == {"is": "first"}
    assert await second == {"is": "second"}


async def test_a_refused_command_raises_what_chromium_said(far: FarEnd) -> None:
    task, command = await sent(far, "DOM.focus")
    far.say(id=command["id"], error={"code": -32000, "message": "Element is not focusable"})
    with pytest.raises(CommandRefused, match=r"DOM\.focus: Element is not focusable"):
        await task


async def test_events_go_to_their_session_in_order(far: FarEnd) -> None:
    received: list[tuple[str, int]] = []
    done = asyncio.Event()

    def listener(name: str) -> Any:
        def on_event(event: CdpEvent) -> None:
            received.append((name, event.params["n"]))
            if event.params["n"] == 3:
                done.set()

        return on_event

    far.pipe.subscribe("S", listener("session"))
    far.pipe.subscribe(None, listener("browser"))
    stop = far.pipe.subscribe("S", listener("stopped"))
    stop()
    stop()
    far.say(method="P.a", params={"n": 1}, sessionId="S")
    far.say(method="P.a", params={"n": 2}, sessionId="T")
    far.say(method="P.a", params={"n": 3})
    await done.wait()
    assert received == [("session", 1), ("browser", 3)]


async def test_a_handler_that_fails_ends_nothing(far: FarEnd, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: CdpEvent) -> None:
        raise ValueError("of the handler")

    received = asyncio.Event()
    far.pipe.subscribe(None, fail)
    far.pipe.subscribe(None, lambda event: received.set())
    far.say(method="P.a")
    await received.wait()
    assert far.pipe.failure is None
    assert "a handler of P.a failed" in caplog.text


async def test_a_late_reply_is_nobodys(far: FarEnd) -> None:
    task, command = await sent(far, "A.x", timeout=0.01)
    with pytest.raises(CommandTimeout):
        await task
    far.say(id=command["id"], result={"late": 1})
    task, command = await sent(far, "A.y")
    far.say(id=command["id"], result={"in": "time"})
    assert await task == {"in": "time"}


async def test_commands_of_a_tab_that_went_away_do_not_wait(far: FarEnd) -> None:
    gone, _ = await sent(far, "A.x", None, "S")
    other, command = await sent(far, "A.y", None, "T")
    far.say(method="Target.detachedFromTarget", params={"sessionId": "S"})
    with pytest.raises(TargetGone):
        await gone
    far.say(id=command["id"], result={}, sessionId="T")
    assert await other == {}


async def test_the_end_of_chromium_is_told_to_everybody(far: FarEnd) -> None:
    task, _ = await sent(far, "A.x")
    far.close()
    with pytest.raises(BrowserEnded):
        await task
    assert far.pipe.closed.is_set()
    with pytest.raises(BrowserEnded):
        await far.pipe.send("A.y")


async def test_what_is_not_understood_ends_the_connection(far: FarEnd) -> None:
    task, _ = await sent(far, "A.x")
    os.write(far.answers, b"{]\0")
    with pytest.raises(CdpBroken):
        await task


async def test_a_large_command_goes_through_a_pipe_that_is_read_slowly(far: FarEnd) -> None:
    text = "x" * (3 * limits.PIPE_BYTES)
    big = asyncio.create_task(far.pipe.send("A.big", {"t": text}))
    small = asyncio.create_task(far.pipe.send("A.small"))
    first, second = await far.command(), await far.command()
    assert (first["method"], len(first["params"]["t"]), second["method"]) == ("A.big", len(text), "A.small")
    for each in (first, second):
        far.say(id=each["id"], result={})
    await asyncio.gather(big, small)


async def test_a_chromium_that_does_not_read_is_not_sent_more(far: FarEnd) -> None:
    text = "x" * (limits.MAX_COMMAND_BYTES - 1000)
    tasks = [asyncio.create_task(far.pipe.send("A.big", {"t": text})) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCommands):
        await far.pipe.send("A.big", {"t": text})
    far.pipe.close()
    for task in tasks:
        with pytest.raises(BrowserEnded):
            await task


async def test_only_so_many_commands_wait(far: FarEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WAITING_COMMANDS", 1)
    task, command = await sent(far, "A.x")
    with pytest.raises(TooManyCommands):
        await far.pipe.send("A.y")
    far.say(id=command["id"], result={})
    await task


async def test_a_cancelled_caller_leaves_nothing_behind(far: FarEnd) -> None:
    task, command = await sent(far, "A.x")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    far.say(id=command["id"], result={})
    far.pipe.close(BrowserEnded("the end"))
    assert far.pipe.failure is not None and far.pipe.failure.message == "the end"


async def test_closing_twice_closes_nobody_elses_descriptor(far: FarEnd) -> None:
    far.pipe.close()
    reused = os.pipe2(os.O_CLOEXEC)
    far.pipe.close()
    for each in reused:
        os.fstat(each)
        os.close(each)


async def test_a_handler_may_close_the_connection(far: FarEnd) -> None:
    far.pipe.subscribe(None, lambda event: far.pipe.close(BrowserEnded("by a handler")))
    far.say(method="P.a")
    far.say(method="P.b")
    await far.pipe.closed.wait()
    assert far.pipe.failure is not None and far.pipe.failure.message == "by a handler"
