"""Durable append in groups against bare SQLite inserts of the same rows, alternately in one run, and verifying."""

import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import bars
from palyra.clock import SystemClock
from palyra.journal.chain import JournalLog
from palyra.journal.checkpoint import CHECKPOINT_NAME
from palyra.journal.redaction import Redactor
from palyra.journal.verify import verify_journal
from palyra.signing.dsse import Signer
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.port import Transaction
from palyra.store.sqlite.store import SqliteReader, SqliteStore

GROUP = 64
ROUNDS = 400
WAITERS = 64
CALLS_PER_WAITER = 200
VERIFY_EVENTS = 200_000
VERIFY_SAMPLES = 5

_PAYLOAD = {
    "argument_digest": "9f" * 32,
    "decision": {"outcome": "allow", "policies": ["baseline.allow-listed", "team.read-only"]},
    "duration_ms": 12,
    "status": "succeeded",
    "tool": "fs.read",
}
_NEW = NewEvent(
    kind="call.finished",
    actor="daemon",
    principal="agent:bench",
    run="01JD000000000000000000000R",
    call="01JD000000000000000000000C",
    payload=_PAYLOAD,
)

_encode = msgspec.json.Encoder().encode


def _append_one(transaction: Transaction) -> None:
    transaction.append(_NEW)


def _append_group(transaction: Transaction) -> None:
    for _ in range(GROUP):
        transaction.append(_NEW)


def _peer(path: Path) -> sqlite3.Connection:
    """Build the peer: the same columns, indexes and sync setting, without ids, chain, redaction and thread."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, id TEXT, time_ms INTEGER, kind TEXT, actor TEXT, principal TEXT,"
        " run TEXT, call TEXT, payload BLOB, prev_hash BLOB, hash BLOB)",
        "CREATE UNIQUE INDEX by_id ON events (id)",
        "CREATE INDEX by_run ON events (run)",
        "CREATE INDEX by_call ON events (call)",
    ):
        connection.execute(statement)
    return connection


def _insert_group(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    """Write the same values. The payload becomes JSON by the fastest encoder there is."""
    connection.execute("BEGIN IMMEDIATE")
    for row in rows:
        payload = _encode(_PAYLOAD)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row[:8], payload, *row[9:]))
    connection.execute("COMMIT")


def _open(folder: Path, signer: Signer) -> SqliteStore:
    clock = SystemClock()
    log = JournalLog(clock=clock, redactor=Redactor(), signer=signer, checkpoint_path=folder / CHECKPOINT_NAME)
    return SqliteStore.open(folder / "palyra.db", clock=clock, log=log)


def _milliseconds(samples: list[float]) -> tuple[float, float]:
    ordered = sorted(samples)
    return statistics.median(ordered) * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3


def _grouped_append(folder: Path) -> dict[str, Any]:
    store = _open(folder, Ed25519Signer.generate())
    peer = _peer(folder / "peer.db")
    ours: list[float] = []
    theirs: list[float] = []
    try:
        store.transact_blocking(_append_group)
        template = store.read("SELECT * FROM events WHERE seq = 1")[0]
        for number in range(ROUNDS):
            rows = [(number * GROUP + i + 1, f"{number * GROUP + i:026d}", *template[2:]) for i in range(GROUP)]
            begun = time.perf_counter()
            store.transact_blocking(_append_group)
            between = time.perf_counter()
            _insert_group(peer, rows)
            theirs.append(time.perf_counter() - between)
            ours.append(between - begun)
    finally:
        peer.close()
        store.close()
    ours_p50, ours_p99 = _milliseconds(ours)
    peer_p50, peer_p99 = _milliseconds(theirs)
    return {
        "name": f"journal append, durable, groups of {GROUP}",
        "ours_p50": ours_p50,
        "ours_p99": ours_p99,
        "peer": "sqlite3 insert of the same events: WAL, synchronous=FULL, same indexes",
        "peer_p50": peer_p50,
        "peer_p99": peer_p99,
        "ratio": ours_p50 / peer_p50,
        "samples": ROUNDS,
        "bar": bars.JOURNAL_APPEND,
        "unit": f"ms per {GROUP} events",
    }


async def _waiting_callers(folder: Path) -> dict[str, Any]:
    store = _open(folder, Ed25519Signer.generate())
    waits: list[float] = []

    async def caller() -> None:
        for _ in range(CALLS_PER_WAITER):
            begun = time.perf_counter()
            await store.transact(_append_one)
            waits.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(WAITERS)))
    elapsed = time.perf_counter() - begun
    store.close()
    p50, p99 = _milliseconds(waits)
    return {
        "name": f"journal append, {WAITERS} asyncio callers ({len(waits) / elapsed:,.0f} a second)",
        "ours_p50": p50,
        "ours_p99": p99,
        "peer": "none: information",
        "peer_p50": None,
        "peer_p99": None,
        "ratio": None,
        "samples": len(waits),
        "bar": None,
        "unit": "ms per event",
    }


def _verifying(folder: Path) -> dict[str, Any]:
    signer = Ed25519Signer.generate()
    store = _open(folder, signer)

    def append_thousand(transaction: Transaction) -> None:
        for _ in range(1000):
            transaction.append(_NEW)

    for _ in range(VERIFY_EVENTS // 1000):
        store.transact_blocking(append_thousand)
    store.close()
    per_event: list[float] = []
    with SqliteReader(folder / "palyra.db") as reader:
        for _ in range(VERIFY_SAMPLES):
            begun = time.perf_counter()
            report = verify_journal(reader, [signer.verifier()])
            per_event.append((time.perf_counter() - begun) / report.events * 1e6)
    bar_us = 30.0
    return {
        "name": f"journal verify, {VERIFY_EVENTS:,} events",
        "ours_p50": statistics.median(per_event),
        "ours_p99": max(per_event),
        "peer": "the bar",
        "peer_p50": bar_us,
        "peer_p99": bar_us,
        "ratio": statistics.median(per_event) / bar_us,
        "samples": VERIFY_SAMPLES,
        "bar": None,
        "unit": "us per event",
    }


def run() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for measure in (_grouped_append, lambda folder: asyncio.run(_waiting_callers(folder)), _verifying):
        with tempfile.TemporaryDirectory(dir=os.environ.get("PALYRA_BENCH_DIR")) as folder:
            rows.append(measure(Path(folder)))
    return rows
