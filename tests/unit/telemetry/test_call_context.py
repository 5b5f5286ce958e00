"""The call that the running code works for."""

import asyncio

from palyra.telemetry.call_observer import CallContext, current_call, working_for

CALL = CallContext("01A", "01R", "agent:bot", "echo")


async def test_it_holds_within_for_tasks_started_there_and_not_outside() -> None:
    async def look() -> CallContext | None:
        return current_call()

    outside = asyncio.create_task(look())
    with working_for(CALL, None):
        assert current_call() == await asyncio.create_task(look()) == await asyncio.to_thread(current_call) == CALL
    assert current_call() is None and await outside is None
