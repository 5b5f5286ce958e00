"""The envelope of every API answer: strict JSON in, one document out, errors with code, status and exit code."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from palyra.clock import rfc3339
from palyra.errors import ExitCode, InternalError, InvalidInput, LimitExceeded, PalyraError, exit_code_of
from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.pipeline.domain.call import Stopping
from palyra.pipeline.intake import MAX_QUICK_BYTES
from palyra.strict_json import parse_strict

log = logging.getLogger("palyra.api")

T = TypeVar("T")
EXIT_CODE_HEADER = "Palyra-Exit-Code"


class BodyTooLarge(LimitExceeded):
    code = "http.body_too_large"
    hint = f"send at most {MAX_HTTP_BODY_BYTES} bytes"
    http_status = 413


class WrongShape(InvalidInput):
    code = "http.wrong_shape"
    hint = "the reference lists the fields of each request"


class NoSuchRoute(InvalidInput):
    code = "http.no_such_route"
    hint = "the API lives under /v1"
    http_status = 404


class MethodRefused(InvalidInput):
    code = "http.method_refused"
    hint = "the answer's Allow header lists the methods of this path"
    http_status = 405


class HostRefused(InvalidInput):
    code = "http.host_refused"
    hint = "reach the daemon by the address it listens on: a page on another site must not speak to it by its own name"
    http_status = 421


def answer(data: Any, status: int = 200) -> Response:
    return _respond({"ok": True, "data": data}, status, ExitCode.DONE)


def to_view(shape: type[T], record: object, **given: Any) -> T:
    """Fill a view from the record's attributes of the same names, and ``x_at`` from ``x_ms``; ``given`` comes first."""
    values = {name: given[name] if name in given else _value_of(record, name) for name in shape.__annotations__}
    return cast("T", values)


def _value_of(record: object, name: str) -> Any:
    if not name.endswith("_at"):
        return getattr(record, name)
    instant_ms = getattr(record, f"{name.removesuffix('at')}ms")
    return None if instant_ms is None else rfc3339(instant_ms)


def answer_error(error: PalyraError, *, status: int | None = None) -> Response:
    """Answer with the error. A route gives ``status`` if the caller can help an error that blames the server."""
    return _respond({"ok": False, "error": error.as_dict()}, status or error.http_status, exit_code_of(error))


def answer_failure(error: dict[str, Any], status: int, exit_code: ExitCode, data: Any) -> Response:
    return _respond({"ok": False, "error": error, "data": data}, status, exit_code)


def answer_events(events: AsyncIterator[bytes]) -> Response:
    headers = {"Cache-Control": "no-store", EXIT_CODE_HEADER: "0"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _respond(document: dict[str, Any], status: int, exit_code: ExitCode) -> Response:
    return Response(
        msgspec.json.encode(document),
        status_code=status,
        media_type="application/json",
        headers={EXIT_CODE_HEADER: str(int(exit_code)), "Cache-Control": "no-store"},
    )


async def read_bytes(request: Request, most: int) -> bytes:
    size = 0
    chunks: list[bytes] = []
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise BodyTooLarge(f"the body is larger than {most} bytes", hint=f"send at most {most} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_object(request: Request) -> dict[str, Any]:
    """Read the body as a JSON object, within the limit, as strictly as arguments."""
    raw = await read_bytes(request, MAX_HTTP_BODY_BYTES)
    if len(raw) > MAX_QUICK_BYTES:
        value = await asyncio.to_thread(parse_strict, raw)
    else:
        value = parse_strict(raw) if raw else {}
    if not isinstance(value, dict):
        raise WrongShape("the body is not a JSON object")
    return value


async def read_into(request: Request, shape: type[T]) -> T:
    return shape_of(await read_object(request), shape)


def read_query(request: Request, shape: type[T]) -> T:
    """Read the parameters of the query: each at most once, and only those of the route."""
    given = request.query_params.multi_items()
    value = dict(given)
    if len(value) != len(given):
        raise WrongShape("a parameter stands twice in the query")
    known = {field.encode_name for field in msgspec.structs.fields(shape)}  # type: ignore[arg-type]
    if unknown := sorted(value.keys() - known):
        there_are = f"; there are {', '.join(sorted(known))}" if known else ""
        raise WrongShape(f"{unknown[0][:32]!r} is not a parameter of this route{there_are}")
    return shape_of(value, shape)


def shape_of(value: dict[str, Any], shape: type[T]) -> T:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise WrongShape(f"the request does not have the right shape: {error}") from error


# The text by which uvicorn cancels requests that still run when the daemon stops.
_OUT_OF_TIME: Final = "graceful shutdown"

Handler = Callable[[Request], Awaitable[Response]]


def guard(handler: Handler) -> Handler:
    """Turn every error into its document. Any other exception is a bug: log it, and answer without its text."""

    async def respond(request: Request) -> Response:
        try:
            return await handler(request)
        except PalyraError as error:
            return answer_error(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except asyncio.CancelledError as cancelled:
            if not any(_OUT_OF_TIME in str(why) for why in cancelled.args):
                raise
            return answer_error(Stopping("the daemon stopped before this request was answered"))
        except Exception:
            log.exception("%s %s broke", request.method, request.url.path)
            return answer_error(InternalError("the request broke inside Palyra"))

    return respond
