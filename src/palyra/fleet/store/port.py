"""The port of the fleet's ledger. ``tests/contract/test_fleet_port.py`` checks every implementation.

In one transaction a ledger loads what a command names, lets the manager decide, and applies the decision with its
journal entries. Every change names the state that it replaces, so several processes may share a ledger. Instants come
from the ledger's own clock.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from palyra.fleet.domain.commands import FleetCommand, FleetDecision
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.manager import Candidates
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat. ``workspaces`` is the number of scratch workspaces on the worker's disk."""

    worker_id: str
    session: int
    workspaces: int = 0


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``stale`` sessions are over and must be cut. ``suspect`` workers have more workspaces than leases."""

    stale: tuple[Beat, ...] = ()
    suspect: tuple[Beat, ...] = ()


class FleetLedger(Protocol):
    async def decide(self, command: FleetCommand) -> FleetDecision:
        """Return the decision once it is on disk. Raise its refusal, which is on disk by then too."""

    async def decide_all(self, commands: Sequence[FleetCommand]) -> list[FleetDecision]:
        """Decide in order and in one transaction. Each command sees the earlier changes. Refusals are not raised."""

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        """Record heartbeats, without a journal entry."""

    def candidates(self, now_ms: int) -> Candidates:
        """Return at most a round of records that may be due, the most overdue first."""

    async def prune(self) -> int:
        """Delete at most a round of records that ended long ago. Return their number."""

    def worker(self, worker_id: str) -> WorkerRecord: ...

    def workers(self, state: WorkerLifecycleState | None = None, *, after: str = "") -> list[WorkerRecord]:
        """Return a page by id. ``after`` is the last id of the page before."""

    def lease(self, lease_id: str) -> WorkerLease: ...

    def leases(self, worker_id: str = "", *, only_open: bool = True, before: str = "") -> list[WorkerLease]:
        """Return a page, newest first. ``before`` is the last id of the page before."""

    def holders(self) -> list[WorkerRecord]:
        """Return the workers that hold leases or may have traces of some."""

    def open_leases(self) -> int: ...

    def counts(self) -> Mapping[WorkerLifecycleState, int]: ...
