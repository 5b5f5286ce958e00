"""``asyncio.timeout`` for what every call goes through: the same promise in half of the time."""

import asyncio
from types import TracebackType
from typing import Self


class time_limit:  # noqa: N801 - read as a verb, like other context managers
    """Around what a task waits for: after ``seconds`` it is cancelled there, and ``TimeoutError`` comes out here. Who
    cancels the task from elsewhere is not mistaken for the limit."""

    __slots__ = ("_cancelling", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit is for a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = task.get_loop().call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
