"""What the tools' adapters need from the store, declared here by the consumer."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from palyra.journal.event import Event, NewEvent, Prepared

T = TypeVar("T")


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...


class Store(Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T: ...

    def prepare(self, payload: dict[str, Any]) -> Prepared:
        """Makes an entry's payload ready ahead of the transaction that appends it."""

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
