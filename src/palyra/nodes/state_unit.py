"""A unit of work over a document in memory: reads see the unit's own writes, and the document itself never changes."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from palyra.journal.event import NewEvent
from palyra.nodes.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.nodes.retention import surplus_codes, surplus_pairings, surplus_requests
from palyra.nodes.state_document import NodeDocument


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Identified)
Seen = TypeVar("Seen", covariant=True)
Append = Callable[[NewEvent], object]


class ReadOnlyUnit(Exception):
    """A programming error: something was to be changed in a look."""


class MemoryShelf(Generic[R]):
    """Copies the records it was given before the first change."""

    def __init__(self, records: dict[str, R], *, writable: bool) -> None:
        self.records = records
        self.changed = False
        self._writable = writable

    def get(self, id_: str) -> R | None:
        return self.records.get(id_)

    def put(self, record: R) -> None:
        self._own()[record.id] = record

    def delete(self, id_: str) -> None:
        if id_ in self.records:
            del self._own()[id_]

    def list(self) -> Sequence[R]:
        return [self.records[id_] for id_ in sorted(self.records)]

    def _own(self) -> dict[str, R]:
        if not self._writable:
            raise ReadOnlyUnit("a look at the state changes nothing: use transact")
        if not self.changed:
            self.records, self.changed = dict(self.records), True
        return self.records


class DocumentUnit:
    """``append`` is None for a look."""

    def __init__(self, document: NodeDocument, now_ms: int, append: Append | None) -> None:
        writable = append is not None
        self.now_ms = now_ms
        self.codes: MemoryShelf[DevicePairingCodeRecord] = MemoryShelf(document.codes, writable=writable)
        self.pairings: MemoryShelf[DevicePairingRequestRecord] = MemoryShelf(document.pairings, writable=writable)
        self.nodes: MemoryShelf[NodeRecord] = MemoryShelf(document.nodes, writable=writable)
        self.requests: MemoryShelf[CapabilityRequestRecord] = MemoryShelf(document.requests, writable=writable)
        self._document = document
        self._append = append

    def append(self, event: NewEvent) -> None:
        if self._append is None:
            raise ReadOnlyUnit("a look at the state records nothing: use transact")
        self._append(event)

    def outcome(self) -> NodeDocument | None:
        """The next document, within bounds; None if nothing changed."""
        shelves: tuple[MemoryShelf[Any], ...] = (self.codes, self.pairings, self.nodes, self.requests)
        if not any(shelf.changed for shelf in shelves):
            return None
        keep_within_bounds(self)
        return msgspec.structs.replace(
            self._document,
            revision=self._document.revision + 1,
            codes=self.codes.records,
            pairings=self.pairings.records,
            nodes=self.nodes.records,
            requests=self.requests.records,
        )


class TrackedShelf(Protocol[Seen]):
    """A shelf that knows whether this unit changed it."""

    @property
    def changed(self) -> bool: ...

    def list(self) -> Sequence[Seen]: ...

    def delete(self, id_: str) -> None: ...


class TrackedUnit(Protocol):
    @property
    def now_ms(self) -> int: ...

    @property
    def codes(self) -> TrackedShelf[DevicePairingCodeRecord]: ...

    @property
    def pairings(self) -> TrackedShelf[DevicePairingRequestRecord]: ...

    @property
    def requests(self) -> TrackedShelf[CapabilityRequestRecord]: ...


def keep_within_bounds(unit: TrackedUnit) -> None:
    """Run at the end of each unit that changed something, by every store: old ended records go."""
    if unit.codes.changed:
        for id_ in surplus_codes(unit.codes.list(), unit.now_ms):
            unit.codes.delete(id_)
    if unit.pairings.changed:
        for id_ in surplus_pairings(unit.pairings.list()):
            unit.pairings.delete(id_)
    if unit.requests.changed:
        for id_ in surplus_requests(unit.requests.list()):
            unit.requests.delete(id_)
