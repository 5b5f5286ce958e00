"""A process of its own that counts in a node's record until it is done or killed, and says how far it got."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from fakes.node_state_harness import NodeStateHarness
from palyra.store.event import NewEvent


async def count(folder: Path, backend: str, id_: str, times: int) -> None:
    harness = NodeStateHarness(folder, backend)
    state = await harness.state()

    def work(unit):
        record = unit.nodes.get(id_)
        after = msgspec.structs.replace(record, registered_ms=record.registered_ms + 1)
        unit.nodes.put(after)
        unit.append(NewEvent(kind="nodes.tested", actor="test", payload={"pid": os.getpid()}))
        return after.registered_ms

    for _ in range(times):
        print(await state.transact(work), flush=True)
    harness.close()


async def die_at(folder: Path, step: str, id_: str) -> None:
    """Ends without a word just before one step of a write to the file: the steps' names are those of the os module."""
    harness = NodeStateHarness(folder, "file")
    state = await harness.state()
    wanted, number = step.split("#")
    original, calls = getattr(os, wanted), 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == int(number):
            os._exit(9)
        return original(*args, **kwargs)

    def work(unit):
        record = unit.nodes.get(id_)
        unit.nodes.put(msgspec.structs.replace(record, registered_ms=record.registered_ms + 1))
        unit.append(NewEvent(kind="nodes.tested", actor="test", payload={}))

    setattr(os, wanted, dying)
    await state.transact(work)
    os._exit(0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder, backend, "count", id_, times]:
            asyncio.run(count(Path(folder), backend, id_, int(times)))
        case [folder, _, "die_at", step, id_]:
            asyncio.run(die_at(Path(folder), step, id_))
