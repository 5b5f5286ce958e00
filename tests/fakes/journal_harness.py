"""A journal in a temporary directory with a real Ed25519 key, and a clock that stands still until told to move."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from palyra.journal.chain import JournalLog
from palyra.journal.checkpoint import CHECKPOINT_NAME, Checkpoint
from palyra.journal.redaction import Redactor
from palyra.journal.verify import VerifyReport, newest_checkpoint, verify_journal
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.port import Transaction
from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader, SqliteStore


class StillClock:
    """Wall time moves one millisecond a reading, monotonic time only when told."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self.now = now_ms
        self.seconds = 1_000.0

    def now_ms(self) -> int:
        self.now += 1
        return self.now

    def monotonic(self) -> float:
        return self.seconds


class JournalHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signer = Ed25519Signer.load_or_create(folder / "signing.key")
        self.verifiers = [self.signer.verifier()]
        self.clock = StillClock()
        self.redactor = Redactor()

    @property
    def database(self) -> Path:
        return self.folder / DATABASE_NAME

    def open(self, **options: Any) -> SqliteStore:
        options = {"clock": self.clock, "reserve_bytes": 64 * 1024, **options}
        sealing = {name: options.pop(name) for name in list(options) if name.startswith("checkpoint_")}
        return SqliteStore.open(self.database, log=self.log(clock=options["clock"], **sealing), **options)

    def log(self, **options: Any) -> JournalLog:
        return JournalLog(
            redactor=self.redactor,
            signer=self.signer,
            checkpoint_path=self.folder / CHECKPOINT_NAME,
            **{"clock": self.clock, **options},
        )

    def verify(self) -> VerifyReport:
        """Verify with a reader of its own."""
        with SqliteReader(self.database) as reader:
            return verify_journal(reader, self.verifiers)

    def newest_checkpoint(self) -> Checkpoint | None:
        with SqliteReader(self.database) as reader:
            return newest_checkpoint(reader)

    def fill(self, events: int, **options: Any) -> None:
        """A closed journal with this many events, a checkpoint every ten."""
        store = self.open(**{"checkpoint_events": 10, **options})
        for number in range(1, events + 1):
            store.transact_blocking(appending(number=number))
        store.close()


def appending(
    count: int = 1, *, kind: str = "call.finished", run: str = "", call: str = "", **payload: Any
) -> Callable[[Transaction], int]:
    """Work that appends events and returns the last one's number."""
    new = NewEvent(kind=kind, actor="test", run=run, call=call, payload=payload)

    def work(transaction: Transaction) -> int:
        seq = 0
        for _ in range(count):
            seq = transaction.append(new).seq
        return seq

    return work
