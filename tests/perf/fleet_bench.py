"""The fleet's ledger: leases authorised, granted and settled on disk, heartbeats, and the memory of idle workers.

The peer of a lease is bare SQLite: the same number of rows written and events inserted, in groups of the same size.
"""

import asyncio
import gc
import os
import sqlite3
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.fleet_peers import POLICY, FleetPeers, numbered
from palyra.clock import SystemClock
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.domain.placement import PlacementIndex
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.limits import MAX_HEARTBEAT_TIMEOUT_MS
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.port import Beat
from palyra.fleet.store.schema import SCHEMA
from palyra.journal.chain import JournalLog
from palyra.journal.checkpoint import CHECKPOINT_NAME
from palyra.journal.redaction import Redactor
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.sqlite.store import SqliteStore

WORKERS = 1_000
GROUP = 32
ROUNDS = 60
BEAT_ROUNDS = 20
CALLERS = 32
LEASES_PER_CALLER = 40
BAR_PER_SECOND = 500.0
BAR_BYTES_PER_WORKER = 64 * 1024
# What a lease writes: three journal entries, and seven rows made or changed.
EVENTS_PER_LEASE = 3
ROWS_PER_LEASE = 7


def _policy() -> WorkerFleetPolicy:
    return WorkerFleetPolicy(
        max_workers=WORKERS,
        max_leases_per_worker=8,
        # None of them is heard of while it is measured, and a busy machine may take its time.
        heartbeat_timeout_ms=MAX_HEARTBEAT_TIMEOUT_MS,
        image_digests=POLICY.image_digests,
        build_digests=POLICY.build_digests,
        artifact_digests=POLICY.artifact_digests,
    )


class _Fleet:
    """A thousand attested workers in a ledger, and the index that places leases on them."""

    def __init__(self, folder: Path) -> None:
        self.policy = _policy()
        self.harness = FleetPeers(self.policy)
        self.store = SqliteStore.open(
            folder / "palyra.db",
            clock=SystemClock(),
            log=JournalLog(
                clock=SystemClock(),
                redactor=Redactor(),
                signer=Ed25519Signer.generate(),
                checkpoint_path=folder / CHECKPOINT_NAME,
            ),
            schema=SCHEMA,
        )
        self.ledger = SqliteFleet(self.store, WorkerFleetManager(self.policy))
        self.index = PlacementIndex(self.policy)
        self.sessions: dict[str, int] = {}
        # One key for all: making a thousand is not what is measured.
        key = self.harness.key(numbered(1))
        self.harness.keys = {numbered(number + 1): key for number in range(WORKERS)}

    async def fill(self) -> None:
        for number in range(WORKERS):
            worker = await self.harness.ready(self.ledger, numbered(number + 1), now_ms=_now_ms(), slots=8)
            self.index.put(worker)
            self.sessions[worker.worker_id] = worker.session

    async def grant(self, count: int) -> list[WorkerLease]:
        asks: list[Any] = []
        for _ in range(count):
            grant = self.harness.grant(_now_ms())
            worker_id = self.index.choose(frozenset(("tier.c",)), _now_ms())
            asks += (self.harness.issue(grant), self.harness.lease(worker_id, grant))
        leases = []
        for decision in (await self.ledger.decide_all(asks))[1::2]:
            assert decision.refusal is None and decision.worker is not None, decision.refusal
            self.index.put(decision.worker)
            self.index.release(decision.worker.worker_id)
            leases.append(decision.leases[0].lease)
        return leases

    async def settle(self, messages: list[Any]) -> None:
        for decision in await self.ledger.decide_all(messages):
            assert decision.refusal is None and decision.worker is not None, decision.refusal
            self.index.put(decision.worker)

    def message(self, lease: WorkerLease) -> Any:
        """Signed as the worker does; opened, that is verified, as the service does."""
        return self.harness.settle(lease, _now_ms(), self.sessions[lease.worker_id])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _peer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, payload BLOB)",
        "CREATE TABLE rows (id TEXT PRIMARY KEY, state TEXT, due INTEGER, record BLOB) WITHOUT ROWID",
        "CREATE INDEX by_due ON rows (due)",
    ):
        connection.execute(statement)
    return connection


def _peer_group(connection: sqlite3.Connection, number: int) -> None:
    record, payload = b"r" * 600, b"p" * 250
    for half in range(2):
        connection.execute("BEGIN IMMEDIATE")
        for lease in range(GROUP):
            for row in range(half, ROWS_PER_LEASE, 2):
                key = f"{number:06d}{lease:04d}{row:02d}"
                connection.execute("INSERT INTO rows VALUES (?, 'open', ?, ?)", (key, number, record))
            for _ in range(EVENTS_PER_LEASE - 1 - half):
                connection.execute("INSERT INTO events (payload) VALUES (?)", (payload,))
        connection.execute("COMMIT")


async def _leases(folder: Path) -> list[dict[str, Any]]:
    fleet, peer = _Fleet(folder), _peer(folder / "peer.db")
    try:
        await fleet.fill()
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(ROUNDS):
            begun = time.perf_counter()
            leases = await fleet.grant(GROUP)
            granted = time.perf_counter()
            messages = [fleet.message(lease) for lease in leases]
            signed = time.perf_counter()
            await fleet.settle(messages)
            ended = time.perf_counter()
            # Signing is the worker's own work, and verifying the service's: measured in the row below.
            ours.append((granted - begun + ended - signed) / GROUP * 1e3)
            begun = time.perf_counter()
            _peer_group(peer, number)
            theirs.append((time.perf_counter() - begun) / GROUP * 1e3)
        together = await _callers(fleet)
        beats = await _heartbeats(fleet)
    finally:
        peer.close()
        fleet.store.close()
    p50, peer_p50 = statistics.median(ours), statistics.median(theirs)
    return [
        {
            "name": f"lease granted and settled, groups of {GROUP}, {WORKERS} workers ({1e3 / p50:,.0f} a second)",
            "ours_p50": p50,
            "ours_p99": sorted(ours)[int(len(ours) * 0.99)],
            "peer": "sqlite3, the same number of rows and entries, no chain, no checks",
            "peer_p50": peer_p50,
            "peer_p99": sorted(theirs)[int(len(theirs) * 0.99)],
            "ratio": p50 / peer_p50,
            "samples": ROUNDS,
            "bar": None,
            "unit": "ms per lease",
        },
        together,
        beats,
    ]


async def _callers(fleet: _Fleet) -> dict[str, Any]:
    """Each caller on its own: choose, authorise and grant, sign, verify, settle."""
    waits: list[float] = []

    async def caller() -> None:
        for _ in range(LEASES_PER_CALLER):
            begun = time.perf_counter()
            (lease,) = await fleet.grant(1)
            await fleet.settle([fleet.message(lease)])
            waits.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    per_second = len(waits) / (time.perf_counter() - begun)
    return {
        "name": f"leases signed and verified, {CALLERS} callers ({statistics.median(waits) * 1e3:.1f} ms each)",
        "ours_p50": per_second,
        "ours_p99": per_second,
        "peer": "the bar",
        "peer_p50": BAR_PER_SECOND,
        "peer_p99": BAR_PER_SECOND,
        "ratio": per_second / BAR_PER_SECOND,
        "samples": len(waits),
        "bar": bars.FLEET_LEDGER,
        "unit": "leases a second",
    }


async def _heartbeats(fleet: _Fleet) -> dict[str, Any]:
    beats = [Beat(worker_id=worker_id, session=session) for worker_id, session in fleet.sessions.items()]
    spent: list[float] = []
    for _ in range(BEAT_ROUNDS):
        begun = time.perf_counter()
        answer = await fleet.ledger.beat(beats)
        spent.append((time.perf_counter() - begun) * 1e3)
        assert not answer.stale
    return {
        "name": f"heartbeats of {WORKERS} workers noted",
        "ours_p50": statistics.median(spent),
        "ours_p99": max(spent),
        "peer": "one heartbeat interval",
        "peer_p50": float(fleet.policy.heartbeat_interval_ms),
        "peer_p99": float(fleet.policy.heartbeat_interval_ms),
        "ratio": statistics.median(spent) / fleet.policy.heartbeat_interval_ms,
        "samples": BEAT_ROUNDS,
        "bar": None,
        "unit": "ms",
    }


async def _memory(folder: Path) -> dict[str, Any]:
    """What the daemon keeps in memory for a worker: its place in the index. Connections come on top."""
    fleet = _Fleet(folder)
    try:
        await fleet.fill()
        index = PlacementIndex(fleet.policy)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for record in fleet.ledger.workers():
            index.put(record)
        del record
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(index)
        tracemalloc.stop()
    finally:
        fleet.store.close()
    return {
        "name": "memory of an idle worker in the ledger's index",
        "ours_p50": each,
        "ours_p99": each,
        "peer": "the bar",
        "peer_p50": float(BAR_BYTES_PER_WORKER),
        "peer_p99": float(BAR_BYTES_PER_WORKER),
        "ratio": each / BAR_BYTES_PER_WORKER,
        "samples": len(index),
        "bar": None,
        "unit": "bytes",
    }


def run() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("PALYRA_BENCH_DIR")) as folder:
        rows += asyncio.run(_leases(Path(folder)))
    with tempfile.TemporaryDirectory(dir=os.environ.get("PALYRA_BENCH_DIR")) as folder:
        rows.append(asyncio.run(_memory(Path(folder))))
    return rows


if __name__ == "__main__":
    for row in run():
        print(row)
