"""One stream against a context that is driven by hand: who ends it, what is said then, and who is too slow."""

import asyncio
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.node_server_harness import PATIENCE
from palyra.devicelink.limits import MAX_WAITING_COMMANDS
from palyra.devicelink.server import connections
from palyra.errors import Denied
from palyra.nodes.server.dispatcher import Cancel
from palyra.nodes.server.stream import NODE_TOO_SLOW, DeviceStream, StreamEnd


class Refusal(Denied):
    code = "test.refusal"


class Context:
    """``stuck`` is a device that reads nothing."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.coming: asyncio.Queue[Any] = asyncio.Queue()
        self.written: list[Any] = []
        self.stuck = stuck

    async def read(self) -> Any:
        message = await self.coming.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def write(self, message: Any) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.written.append(message)


async def on_message(message: Any) -> str | None:
    if isinstance(message, str) and message.startswith("end "):
        return message
    if message == "refuse":
        raise Refusal("no")
    return None


async def run(context: Context, stream: DeviceStream) -> StreamEnd:
    async with asyncio.timeout(PATIENCE):
        return await stream.run(on_message)


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (grpc.aio.EOF, StreamEnd(connections.CLOSED)),
        ("end by itself", StreamEnd("end by itself")),
        (grpc.aio.UsageError("gone"), StreamEnd(connections.CLOSED)),
    ],
)
async def test_the_device_ends_it(message: Any, ending: StreamEnd) -> None:
    context = Context()
    stream = DeviceStream(context)
    await context.coming.put("something")
    await context.coming.put(message)
    assert await run(context, stream) == ending and context.written == []


async def test_a_refused_message_cuts_it_with_its_code() -> None:
    context = Context()
    await context.coming.put("refuse")
    ending = await run(context, DeviceStream(context))
    assert (ending.code, ending.cut) == ("test.refusal", True) and isinstance(ending.refusal, Refusal)


async def test_a_bug_is_not_taken_for_an_ending() -> None:
    context = Context()
    await context.coming.put(KeyError("bug"))
    with pytest.raises(KeyError):
        await run(context, DeviceStream(context))


async def test_ended_from_here_it_says_goodbye_and_cut_it_says_nothing() -> None:
    context = Context()
    stream = DeviceStream(context)
    stream.send(Cancel("r", "why"))
    running = asyncio.create_task(run(context, stream))
    await eventually(lambda: context.written, every=0)
    stream.end("a.b", "bye")
    stream.cut("too.late")
    stream.send(Cancel("never", "sent"))
    assert (await running) == StreamEnd("a.b", "bye")
    assert [one.WhichOneof("command") for one in context.written] == ["cancel", "goodbye"]
    silent = Context()
    cut = DeviceStream(silent)
    cut.cut("c.d")
    assert (await run(silent, cut)).cut and silent.written == []


async def test_a_device_that_reads_nothing_is_cut_when_too_much_waits_for_it() -> None:
    context = Context(stuck=True)
    stream = DeviceStream(context)
    running = asyncio.create_task(run(context, stream))
    for number in range(MAX_WAITING_COMMANDS + 2):
        stream.send(Cancel(str(number), ""))
        await asyncio.sleep(0)
    ending = await running
    assert (ending.code, ending.cut) == (NODE_TOO_SLOW, True)


async def test_nobody_waits_for_a_goodbye_that_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.nodes.server.stream.GOODBYE_SECONDS", 0.05)
    context = Context(stuck=True)
    stream = DeviceStream(context)
    stream.end("a.b", "bye")
    assert (await run(context, stream)).code == "a.b"


async def test_cancelled_it_leaves_no_task() -> None:
    context = Context()
    running = asyncio.create_task(DeviceStream(context).run(on_message))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("device stream")]
