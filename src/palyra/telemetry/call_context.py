"""Which call the code that runs now works for: what its log lines are named after."""

from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class CallContext(NamedTuple):
    call_id: str
    run_id: str
    principal: str
    tool: str


_current: ContextVar[CallContext | None] = ContextVar("palyra_call", default=None)


def current_call() -> CallContext | None:
    return _current.get()


class working_for(Generic[T]):  # noqa: N801 - read as a verb, like other context managers
    """Also for the tasks and threads that are started within, as long as they copy their context. Yields ``what``."""

    def __init__(self, call: CallContext, what: T) -> None:
        self._call = call
        self._what = what

    def __enter__(self) -> T:
        self._token = _current.set(self._call)
        return self._what

    def __exit__(self, *exc_info: object) -> None:
        _current.reset(self._token)
