"""How the browser daemon says no: our own error in the trailing metadata, under a status that fits."""

import errno
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import grpc

from palyra.browser.wire_errors import ERROR_KEY, encode_error
from palyra.errors import Denied, InternalError, InvalidInput, LimitExceeded, PalyraError, Unavailable

log = logging.getLogger(__name__)
S = TypeVar("S")

_NOT_FOUND: Final = 404
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_STATUS: Final = (
    (InvalidInput, grpc.StatusCode.INVALID_ARGUMENT),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (PalyraError, grpc.StatusCode.FAILED_PRECONDITION),
)


class BrowserDiskFull(Unavailable):
    code = "browser.disk_full"
    hint = "free space on the disk of the browser daemon's state directory: sessions have folders there"


async def refuse(context: Any, error: PalyraError) -> NoReturn:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    if error.http_status == _NOT_FOUND:
        status = grpc.StatusCode.NOT_FOUND
    await context.abort(status, error.code, ((ERROR_KEY, encode_error(error)),))
    raise AssertionError("abort does not return")


def answering(method: Callable[[S, Any, Any], Awaitable[Any]]) -> Callable[[S, Any, Any], Awaitable[Any]]:
    """A method of the service whose errors are answers. A fault of ours is told without its inner text."""

    @functools.wraps(method)
    async def answer(self: S, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except PalyraError as error:
            await refuse(context, error)
        except (grpc.aio.BaseError, grpc.aio.AbortError):
            raise
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno in _FULL:
                await refuse(context, BrowserDiskFull("the browser daemon's disk is full"))
            log.exception("a request to the browser daemon failed")
            await refuse(context, InternalError("the request could not be answered"))

    return answer
