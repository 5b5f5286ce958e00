"""A call for somebody who may leave in the middle of it: it ends with them, and its end is on record before they go."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

from palyra.tools.asking import CallRequest
from palyra.tools.record import CallRecord

# How long a call that is being cancelled may take to be where cancelling reaches it: one transaction.
LOOK_AGAIN_SECONDS = 0.05


class Pipeline(Protocol):
    async def call(self, request: CallRequest) -> CallRecord: ...

    async def cancel(self, call_id: str) -> None:
        """Stops a call that runs, or the waiting for a person."""


async def attended(pipeline: Pipeline, request: CallRequest) -> CallRecord:
    """``request`` has its id already. Cancelled, this cancels the call."""
    assert request.call_id is not None
    # A task of its own: cut off in the middle of its start, a call would stay on record as running.
    calling = asyncio.create_task(pipeline.call(request), name=f"attended call {request.call_id}")
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await _whatever_comes(_end(pipeline, calling, request.call_id))
        raise


async def _whatever_comes(work: Coroutine[Any, Any, None]) -> None:
    """Waits for it also where this task is cancelled again, once or, as in a scope of anyio's, all the time."""
    import anyio

    ending = asyncio.create_task(work)
    with anyio.CancelScope(shield=True):
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)


async def _end(pipeline: Pipeline, calling: "asyncio.Task[CallRecord]", call_id: str) -> None:
    while not calling.done():
        await pipeline.cancel(call_id)
        await asyncio.wait([calling], timeout=LOOK_AGAIN_SECONDS)
    if not calling.cancelled():
        # Looked at, so that nobody complains that it was not.
        calling.exception()
