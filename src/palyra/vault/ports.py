"""What the vault needs from the store, declared here by the consumer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from palyra.journal.event import Event, NewEvent

T = TypeVar("T")


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...


class Store(Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T: ...

    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...
