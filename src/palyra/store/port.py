"""What the tools' adapters need from the store, declared here by the consumer."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from palyra.store.event import Event, NewEvent

T = TypeVar("T")


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def append_all(self, news: Iterable[NewEvent]) -> None: ...

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...


class Store(Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T: ...

    def submit(self, work: Callable[[Transaction], T], *, essential: bool = False) -> Awaitable[T]:
        """Hands the work over at once, and returns what ``transact`` would wait for. It is done also when the one who
        waits is cancelled meanwhile."""

    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...


# What identity needs from others, declared here by the consumer.


class Reader(Protocol):
    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...
