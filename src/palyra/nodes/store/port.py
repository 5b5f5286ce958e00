"""The port of the state of devices, which a file and SQL implement.

A unit of work is atomic together with its journal entries, even if the process is killed. Units are serial, also those
of other processes, so a unit sees all earlier commits and may read, decide and write. Heartbeats and connections are
not state and never written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from palyra.devicelink.limits import MAX_ENDED_CODES, MAX_ENDED_PAIRINGS, MAX_FINISHED_REQUESTS
from palyra.errors import Unavailable
from palyra.nodes.domain.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.store.event import NewEvent

T = TypeVar("T")


class Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Identified)
Append = Callable[[NewEvent], object]


class NodeStateUnreadable(Unavailable):
    code = "nodes.state_unreadable"
    hint = (
        "put a good copy of node-runtime.v1.json back, or move it and its .bak away to start without devices;"
        " their certificates stay known to identity"
    )


class ReadOnlyUnit(Exception):
    """A programming error: a change during a read."""


class Shelf(ABC, Generic[R]):
    """The records of one kind, sorted by id, which is by age. It notes whether its unit changed it."""

    def __init__(self, *, writable: bool) -> None:
        self.changed = False
        self._writable = writable

    @abstractmethod
    def get(self, id_: str) -> R | None: ...

    @abstractmethod
    def put(self, record: R) -> None:
        """Add a record, or replace the one with its id."""

    @abstractmethod
    def delete(self, id_: str) -> None:
        """Delete a record, if it exists."""

    @abstractmethod
    def list(self) -> Sequence[R]: ...

    def _note_change(self) -> None:
        if not self._writable:
            raise ReadOnlyUnit("a look at the state changes nothing: use transact")
        self.changed = True


class NodeUnit:
    """A unit of work at one instant, valid only while its work runs.

    ``make_shelf`` makes the shelves by name and type. ``append`` is None for a read.
    """

    def __init__(self, make_shelf: Callable[[str, type[Any]], Any], now_ms: int, append: Append | None) -> None:
        self.now_ms = now_ms
        self.codes: Shelf[DevicePairingCodeRecord] = make_shelf("codes", DevicePairingCodeRecord)
        self.pairings: Shelf[DevicePairingRequestRecord] = make_shelf("pairings", DevicePairingRequestRecord)
        self.nodes: Shelf[NodeRecord] = make_shelf("nodes", NodeRecord)
        self.requests: Shelf[CapabilityRequestRecord] = make_shelf("requests", CapabilityRequestRecord)
        self._append = append

    def append(self, event: NewEvent) -> None:
        if self._append is None:
            raise ReadOnlyUnit("a look at the state records nothing: use transact")
        self._append(event)

    def keep_within_bounds(self) -> bool:
        """Delete the oldest ended records. Return whether the unit changed anything."""
        self._keep(self.codes, lambda code: code.ended(self.now_ms), MAX_ENDED_CODES)
        self._keep(self.pairings, lambda pairing: not pairing.open(), MAX_ENDED_PAIRINGS)
        self._keep(self.requests, lambda request: not request.open(), MAX_FINISHED_REQUESTS)
        return any(shelf.changed for shelf in (self.codes, self.pairings, self.nodes, self.requests))

    def _keep(self, shelf: Shelf[R], is_ended: Callable[[R], bool], most: int) -> None:
        if shelf.changed:
            for id_ in [record.id for record in shelf.list() if is_ended(record)][:-most]:
                shelf.delete(id_)


class NodeState(Protocol):
    async def transact(self, work: Callable[[NodeUnit], T], *, essential: bool = False) -> T:
        """Run the work in another thread, and return its result once it is on disk. An exception rolls it back.

        The work may run twice if the disk was full, so it must only use its unit. ``essential`` is for the end of work
        that already ran: its record may use the journal's reserve for a full disk.
        """

    def read(self, look: Callable[[NodeUnit], T]) -> T:
        """Read the committed state, without waiting. ``put``, ``delete`` and ``append`` are refused."""
