"""What the registry needs from the store, declared here by the consumer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from palyra.journal.event import Event, NewEvent

T = TypeVar("T")


class Transaction(Protocol):
    """One unit of work: its journal entries and its table changes become durable together, or not at all."""

    @property
    def now_ms(self) -> int: ...

    def append(self, event: NewEvent) -> Event: ...

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...

    def changed(self) -> int: ...


class StoredValues(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill keeps between its calls, counted."""

    values: int
    bytes: int


class SkillData(Protocol):
    """What skills keep between their calls, each in a place of its own. Blocking."""

    def stored(self, skill_id: str) -> StoredValues: ...

    def erase(self, skill_id: str) -> None:
        """Leaves nothing of it. Harmless when there is nothing."""


class Store(Protocol):
    async def transact(self, work: Callable[[Transaction], T], *, essential: bool = False) -> T: ...

    def read(self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]: ...
