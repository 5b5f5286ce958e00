"""One caller's work for the writer, and what its caller waits on."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from palyra.journal.transaction import Transaction

Work = Callable[[Transaction], Any]
Outcome = tuple["Unit", Any, BaseException | None]


class Wait:
    """What a thread that blocks waits on: a lock that is let go when there is a result. Nobody cancels it."""

    __slots__ = ("_error", "_finished", "_result", "_turn")

    def __init__(self) -> None:
        self._finished = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def done(self) -> bool:
        return self._finished

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        self._result, self._finished = result, True
        self._turn.release()

    def set_exception(self, error: BaseException) -> None:
        self._error, self._finished = error, True
        self._turn.release()

    def result(self) -> Any:
        with self._turn:
            if self._error is not None:
                raise self._error
            return self._result


class Unit:
    """One caller's work and the future it waits on; ``loop`` is None for a caller that blocks its thread. What is
    ``sure`` is done also when nobody waits for it any more."""

    __slots__ = ("essential", "future", "loop", "seal", "sure", "work")

    def __init__(
        self,
        work: Work,
        loop: asyncio.AbstractEventLoop | None,
        *,
        essential: bool = False,
        seal: bool = False,
        sure: bool = False,
    ) -> None:
        self.work = work
        self.essential = essential
        self.seal = seal
        self.sure = sure
        self.loop = loop
        self.future: asyncio.Future[Any] | Wait = Wait() if loop is None else loop.create_future()
