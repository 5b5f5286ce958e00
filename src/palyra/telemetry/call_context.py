"""Which call the code that runs now works for: what its log lines are named after."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class CallContext(NamedTuple):
    call_id: str
    run_id: str
    principal: str
    tool: str


_current: ContextVar[CallContext | None] = ContextVar("palyra_call", default=None)


def current_call() -> CallContext | None:
    return _current.get()


@contextmanager
def working_for(call: CallContext) -> Iterator[None]:
    """Also for the tasks and threads that are started within, as long as they copy their context."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
