"""The server on its socket: every call shows the token of this very daemon before anything is looked at."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from palyra.browser import service_limits as limits
from palyra.browser.grpc_answer import refuse
from palyra.browser.grpc_service import BrowserService
from palyra.browser.socket_place import TOKEN_KEY, NotAdmitted, SocketPlace
from palyra.secret import Secret
from palyra.wire.browser.v1.browser_pb2_grpc import add_BrowserServiceServicer_to_server

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    # Two daemons at one socket would each have half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", limits.MAX_CALLS_AT_ONCE),
)


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, token: Secret) -> None:
        self._token = token

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        shown = [value for key, value in call.invocation_metadata if key == TOKEN_KEY]
        if len(shown) == 1 and isinstance(shown[0], str) and self._token.matches(shown[0]):
            return await continuation(call)
        return grpc.unary_unary_rpc_method_handler(_turned_away)


async def _turned_away(_request: Any, context: Any) -> None:
    await refuse(context, NotAdmitted("the call does not show this daemon's token"))


@asynccontextmanager
async def serving(service: BrowserService, place: SocketPlace) -> AsyncIterator[None]:
    """From here on calls are answered. At the end those that run get a moment, and no new one is taken."""
    server = grpc.aio.server(interceptors=(TokenCheck(place.new_token()),), options=_OPTIONS)
    add_BrowserServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(place.address)
    await server.start()
    place.close_socket()
    try:
        yield
    finally:
        await server.stop(limits.STOP_SECONDS)
        place.clear()
