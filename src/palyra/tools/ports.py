"""What the tools' adapters need from the store, declared here by the consumer."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from palyra.journal.event import Event, NewEvent, Redacted
from palyra.journal.forms import Form
from palyra.tools.record import CallRecord

T = TypeVar("T")


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def append_all(self, news: Iterable[NewEvent]) -> None: ...

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...

    @property
    def head_start(self) -> Any:
        """What the first part of this work returned, if it was done ahead and still stands."""


class Store(Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False, alone: bool = False) -> T:
        """``alone``: the loop has hardly anything else to do, and may be kept for as long as a quick disk takes."""

    def submit(self, work: Callable[[Transaction], T], *, essential: bool = False, alone: bool = False) -> Awaitable[T]:
        """Hands the work over at once, and returns what ``transact`` would wait for. It is done also when the one who
        waits is cancelled meanwhile."""

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


class HeadStart(Protocol):
    """The first part of a unit of work, done before the whole is handed over."""


class CallStore(Store, Protocol):
    def submit(
        self,
        work: Callable[[Transaction], T],
        *,
        essential: bool = False,
        alone: bool = False,
        head_start: Any = None,
    ) -> Awaitable[T]:
        """With a ``head_start``, the work goes on where that ended, if it still stands, and else does everything."""

    def head_start(self, first: Callable[[Transaction], Any]) -> HeadStart | None:
        """Does the first part of a unit of work now, for who is alone. None if it cannot be."""

    def let_go(self, head_start: Any) -> None:
        """Takes back what was done ahead and not handed over. Does nothing where it was."""

    def ahead(self, event: NewEvent) -> NewEvent:
        """The event with the work done that need not wait for its transaction."""

    def form(self, payload: dict[str, Any]) -> Form | None:
        """A payload with holes, to be filled in again and again; None where it cannot be."""

    def filled(self, form: Form, values: Mapping[str, bytes]) -> Redacted | None:
        """The form as an event's payload. None where it cannot be, and has to be written in full."""

    def fit(self, value: dict[str, Any]) -> bool:
        """Whether its canonical bytes may be filled into a form as they are."""


class CallEnd(Protocol):
    def call_ended(self, record: CallRecord) -> None: ...


class CallObserver(Protocol):
    """Watches calls from outside: counters, logs, spans."""

    def watching(self, asked: CallRecord) -> AbstractContextManager[CallEnd]: ...
