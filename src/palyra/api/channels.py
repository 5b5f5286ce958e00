"""``/v1/channels``: what skills send, as it comes."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from palyra.api.described import ChannelText, described
from palyra.api.http import EXIT_CODE_HEADER, WrongShape
from palyra.api.service import ApiService, Listening
from palyra.errors import LimitExceeded

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
KEEP_ALIVE_SECONDS: Final = 15.0


class TooManyListeners(LimitExceeded):
    code = "channel.too_many_listeners"
    hint = "end some of the programs that follow channels"


@described("What skills send to a channel from now on.", answers="events", path={"name": ChannelText})
async def follow_channel(service: ApiService, request: Request) -> Response:
    """Messages from now on as server-sent events; those from before are in the journal."""
    service.require_channel_listener(service.caller(request))
    name = request.path_params["name"]
    if not _NAME.fullmatch(name):
        raise WrongShape(f"{name[:128]!r} is no name of a channel")
    listening = service.channels.listen(name)
    if listening is None:
        raise TooManyListeners("as many programs follow channels as may")
    return StreamingResponse(
        _messages(service, listening),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", EXIT_CODE_HEADER: "0"},
    )


async def _messages(service: ApiService, listening: Listening) -> AsyncIterator[bytes]:
    with listening, service.streaming(listening):
        # Whoever reads this line misses nothing that is sent from then on.
        yield b": listening\n\n"
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    message = await anext(listening)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            except StopAsyncIteration:
                return
            yield b"event: channel.message\nid: %d\ndata: %s\n\n" % (message.seq, msgspec.json.encode(message))
