"""The port of the state of devices, which a file and SQL implement.

A unit of work is atomic together with its journal entries, even if the process is killed. Units are serial, also those
of other processes, so a unit sees all earlier commits and may read, decide and write. Heartbeats and connections are
not state and never written.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from palyra.errors import Unavailable
from palyra.nodes.domain.records import (
    CapabilityRequestRecord,
    DevicePairingCodeRecord,
    DevicePairingRequestRecord,
    NodeRecord,
)
from palyra.store.event import NewEvent

T = TypeVar("T")
R = TypeVar("R")


class Identified(Protocol):
    @property
    def id(self) -> str: ...


class NodeStateUnreadable(Unavailable):
    code = "nodes.state_unreadable"
    hint = (
        "put a good copy of node-runtime.v1.json back, or move it and its .bak away to start without devices;"
        " their certificates stay known to identity"
    )


class Shelf(Protocol[R]):
    """The records of one kind. ``list`` sorts them by id, which is by age."""

    def get(self, id_: str) -> R | None: ...

    def put(self, record: R) -> None:
        """Add a record, or replace the one with its id."""

    def delete(self, id_: str) -> None:
        """Delete a record, if it exists."""

    def list(self) -> Sequence[R]: ...


class NodeUnit(Protocol):
    """A unit is valid only while its work runs. ``now_ms`` is one instant for the whole unit."""

    @property
    def now_ms(self) -> int: ...

    @property
    def codes(self) -> Shelf[DevicePairingCodeRecord]: ...

    @property
    def pairings(self) -> Shelf[DevicePairingRequestRecord]: ...

    @property
    def nodes(self) -> Shelf[NodeRecord]: ...

    @property
    def requests(self) -> Shelf[CapabilityRequestRecord]: ...

    def append(self, event: NewEvent) -> None: ...


class NodeState(Protocol):
    async def transact(self, work: Callable[[NodeUnit], T], *, essential: bool = False) -> T:
        """Run the work in another thread, and return its result once it is on disk. An exception rolls it back.

        The work may run twice if the disk was full, so it must only use its unit. ``essential`` is for the end of work
        that already ran: its record may use the journal's reserve for a full disk.
        """

    def read(self, look: Callable[[NodeUnit], T]) -> T:
        """Read the committed state, without waiting. ``put``, ``delete`` and ``append`` are refused."""
