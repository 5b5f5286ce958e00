"""The bootstrap listener's application: three calls of pairing, and nothing else of the daemon.

Requests and answers are JSON; an error has the same shape as everywhere. What anybody may send is bounded before it is
read: the body's size, its time, and what it may contain.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from palyra.errors import InternalError, InvalidInput, LimitExceeded, PalyraError
from palyra.nodes import pairing_wire as wire
from palyra.nodes.limits import MAX_PAIRING_BODY_BYTES, PAIRING_REQUEST_SECONDS
from palyra.nodes.pairing_door import PairingDoor

_LOG = logging.getLogger("palyra.nodes")
_CLIENT_CLOSED = 499


class PairingBodyTooLarge(LimitExceeded):
    code = "pairing.body_too_large"
    hint = "no message of pairing is that large"
    http_status = 413


class PairingTooSlow(LimitExceeded):
    code = "pairing.too_slow"
    hint = "a request has to arrive in time"
    http_status = 408


class NoSuchPairingCall(InvalidInput):
    code = "pairing.no_such_call"
    hint = "this listener is for pairing only"
    http_status = 404


def create_bootstrap_app(door: PairingDoor) -> ASGIApp:
    async def begin(request: Request) -> msgspec.Struct:
        return await door.begin(wire.decode(await _body(request), wire.Begin), _address(request))

    async def finish(request: Request) -> msgspec.Struct:
        return await door.finish(wire.decode(await _body(request), wire.Finish), _address(request))

    async def wait(request: Request) -> msgspec.Struct:
        return await door.wait(wire.decode(await _body(request), wire.Wait), _address(request))

    async def other(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _refusal(NoSuchPairingCall("there is nothing here"))

    calls = ((wire.BEGIN, begin), (wire.FINISH, finish), (wire.WAIT, wait))
    app = Starlette(
        routes=[Route(path, _guarded(call), methods=["POST"]) for path, call in calls],
        exception_handlers={404: other, 405: other},
    )
    app.router.redirect_slashes = False
    return app


def _guarded(call: Callable[[Request], Awaitable[msgspec.Struct]]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            return _json(wire.encode(await call(request)), 200)
        except PalyraError as error:
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_CLOSED)
        except Exception:
            _LOG.exception("a pairing call failed")
            return _refusal(InternalError("pairing failed inside the daemon"))

    return handle


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(PAIRING_REQUEST_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_PAIRING_BODY_BYTES:
                    raise PairingBodyTooLarge("the request is too large", limit=MAX_PAIRING_BODY_BYTES)
    except TimeoutError:
        raise PairingTooSlow("the request did not arrive in time") from None
    return bytes(body)


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _refusal(error: PalyraError) -> Response:
    shown: dict[str, Any] = {"ok": False, "error": error.as_dict()}
    # Whoever was refused for its size or slowness is still sending.
    headers = {"connection": "close"} if isinstance(error, PairingBodyTooLarge | PairingTooSlow) else {}
    return _json(msgspec.json.encode(shown), error.http_status, headers)


def _json(body: bytes, status: int, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    return Response(body, status, headers={"cache-control": "no-store", **headers}, media_type="application/json")
