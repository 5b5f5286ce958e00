"""Where the state of devices is kept: the port, which a file and SQL implement alike.

A unit of work is all or nothing, together with its journal entries, also when the process is killed at any point. Units
are serial, also those of other processes on the same state: a unit sees everything that was committed before it, so it
may read, decide and write. Heartbeats and connections are not state: they are never written.
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


class NodeStateUnreadable(Unavailable):
    code = "nodes.state_unreadable"
    hint = (
        "put a good copy of node-runtime.v1.json back, or move it and its .bak away to start without devices;"
        " their certificates stay known to identity"
    )


class Shelf(Protocol[R]):
    """The records of one kind. ``list`` gives them in the order of their ids, which is the order of their making."""

    def get(self, id_: str) -> R | None: ...

    def put(self, record: R) -> None:
        """Adds it, or replaces the one with its id."""

    def delete(self, id_: str) -> None:
        """Nothing happens if there is none."""

    def list(self) -> Sequence[R]: ...


class NodeUnit(Protocol):
    """Valid only while the work it was given to runs. ``now_ms`` is one instant for the whole unit."""

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
        """Runs the work, in another thread, and returns its result once it is on disk. An exception undoes it.

        The work may run a second time if the disk was full, and does nothing but use its unit. ``essential`` is for the
        end of work that already ran: its record may use the journal's space held back for a full disk.
        """

    def read(self, look: Callable[[NodeUnit], T]) -> T:
        """What is committed, at once and without waiting. ``put``, ``delete`` and ``append`` are refused."""
