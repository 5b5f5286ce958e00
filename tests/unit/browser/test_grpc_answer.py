"""How the daemon says no: a status that fits, our error beside it, and nothing of a fault's inner text."""

import errno
from typing import Any

import grpc
import pytest

from palyra.browser.domain.budget import BadBudget, TooFast
from palyra.browser.domain.session_api import NoSuchSession
from palyra.browser.service.access import BrowserAway, OperatorOnly
from palyra.browser.service.grpc_server import answer_errors, refuse
from palyra.browser.service.wire import ERROR_KEY, decode_error
from palyra.errors import PalyraError


class Context:
    def __init__(self) -> None:
        self.status: Any = None
        self.metadata: Any = ()

    async def abort(self, status: Any, details: str, metadata: Any) -> None:
        self.status, self.metadata = status, dict(metadata)
        raise grpc.aio.AbortError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoSuchSession("x"), "NOT_FOUND"),
        (BadBudget("x"), "INVALID_ARGUMENT"),
        (OperatorOnly("x"), "PERMISSION_DENIED"),
        (TooFast("x"), "RESOURCE_EXHAUSTED"),
        (BrowserAway("x"), "UNAVAILABLE"),
    ],
)
async def test_an_error_has_a_status_and_comes_whole(error: PalyraError, status: str) -> None:
    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        await refuse(context, error)
    assert context.status.name == status
    assert decode_error(context.metadata[ERROR_KEY]).as_dict() == error.as_dict()


async def test_a_full_disk_is_no_fault_of_ours() -> None:
    class Service:
        @answer_errors
        async def Method(self, request: Any, context: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device", "/home/somebody/state/browser/sessions/x")

    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        await Service().Method(None, context)
    answer = decode_error(context.metadata[ERROR_KEY])
    assert (
        context.status.name == "UNAVAILABLE" and answer.code == "browser.disk_full" and "somebody" not in answer.message
    )


async def test_a_fault_of_ours_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    class Service:
        @answer_errors
        async def Method(self, request: Any, context: Any) -> Any:
            if request is None:
                raise ValueError("the password is hunter2")
            return request

    context = Context()
    assert await Service().Method("yes", context) == "yes"
    with pytest.raises(grpc.aio.AbortError):
        await Service().Method(None, context)
    assert context.status.name == "FAILED_PRECONDITION"
    assert b"internal.bug" in context.metadata[ERROR_KEY] and b"hunter2" not in context.metadata[ERROR_KEY]
    assert "hunter2" in caplog.text
