"""Takes a call in: opens its record, and reads what it asks for."""

import asyncio

from palyra.ids import CallId, RunId
from palyra.tools.arguments import AcceptedCall, accept_arguments, may_take_long
from palyra.tools.asking import CallRequest
from palyra.tools.call import CallState
from palyra.tools.catalog import Catalog
from palyra.tools.record import CallRecord


def open_record(request: CallRequest, now_ms: int) -> CallRecord:
    """The record of a call of which nothing is known but what its caller said."""
    return CallRecord(
        call_id=str(request.call_id or CallId.new()),
        run_id=str(request.run_id or RunId.new()),
        tool=request.tool[:128],
        principal=str(request.principal),
        actor=request.actor,
        channel=request.channel,
        session=request.session,
        state=CallState.REFUSED,
        created_ms=now_ms,
    )


async def accept_call(catalog: Catalog, request: CallRequest) -> AcceptedCall:
    """Reads large arguments in a thread: half a million small values take half a second."""
    entry = catalog.entry(request.tool)
    if may_take_long(request.arguments):
        arguments = await asyncio.to_thread(accept_arguments, entry.spec, entry.input_check, request.arguments)
    else:
        arguments = accept_arguments(entry.spec, entry.input_check, request.arguments)
    return AcceptedCall(entry=entry, arguments=arguments, touches=entry.spec.touches(arguments.value))
