"""What a ledger of the fleet does, whatever it is kept in. ``tests/contract/test_fleet_port.py`` holds every one to it.

A ledger loads what a command names, lets the manager decide, and applies the decision with its journal entries: all in
one transaction, with the state it expects to replace named in every change. Several processes may share one ledger.
Its instants come from its own clock.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from palyra.fleet.domain.commands import FleetCommand, FleetDecision
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.manager import Candidates
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord

T = TypeVar("T")


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat. ``workspaces`` is how many scratch workspaces the worker has on disk."""

    worker_id: str
    session: int
    workspaces: int = 0


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``stale`` sessions are over: their connections are to be cut. ``suspect`` have more workspaces than leases."""

    stale: tuple[Beat, ...] = ()
    suspect: tuple[Beat, ...] = ()


class FleetLedger(Protocol):
    async def decide(self, command: FleetCommand) -> FleetDecision:
        """The decision, on disk; raises its refusal, if it is one, after that too is on disk."""

    async def decide_all(self, commands: Sequence[FleetCommand]) -> list[FleetDecision]:
        """All in one transaction, in order, each seeing what those before it did. Refusals are in the decisions."""

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        """Notes that these workers spoke. Leaves no journal entry."""

    def candidates(self, now_ms: int) -> Candidates:
        """What may be due, the most overdue first; at most a round's worth."""

    async def prune(self) -> int:
        """Forgets what ended long ago, at most a round's worth; how much that was."""

    def worker(self, worker_id: str) -> WorkerRecord:
        """Raises UnknownWorker."""

    def workers(self, state: WorkerLifecycleState | None = None, *, after: str = "") -> list[WorkerRecord]:
        """A page, by id; ``after`` is the last one of the page before."""

    def lease(self, lease_id: str) -> WorkerLease:
        """Raises UnknownLease."""

    def leases(self, worker_id: str = "", *, only_open: bool = True, before: str = "") -> list[WorkerLease]:
        """A page, newest first; ``before`` is the last one of the page before."""

    def holders(self) -> list[WorkerRecord]:
        """The workers that hold leases, or may have traces of some."""

    def open_leases(self) -> int:
        """How many there are."""

    def counts(self) -> Mapping[WorkerLifecycleState, int]: ...
