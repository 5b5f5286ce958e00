"""A journal in a temporary directory with a real Ed25519 key, and a clock that stands still until told to move."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from palyra.journal.redaction import Redactor
from palyra.journal.verify import VerifyReport
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import DATABASE_NAME, SqliteStore
from palyra.store.sqlite.transaction import SqliteTransaction


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
        options = {"clock": self.clock, "ballast_bytes": 64 * 1024, **options}
        return SqliteStore.open(self.database, redactor=self.redactor, signer=self.signer, **options)

    def verified(self) -> VerifyReport:
        """As somebody finds it who only reads."""
        with SqliteStore.open_reader(self.database) as reader:
            return reader.verify(self.verifiers)

    def fill(self, events: int, **options: Any) -> None:
        """A closed journal with this many events, a checkpoint every ten."""
        store = self.open(**{"checkpoint_events": 10, **options})
        for number in range(1, events + 1):
            store.transact_blocking(appending(number=number))
        store.close()


def appending(
    count: int = 1, *, kind: str = "call.finished", run: str = "", call: str = "", **payload: Any
) -> Callable[[SqliteTransaction], int]:
    """Work that appends events and returns the last one's number."""
    new = NewEvent(kind=kind, actor="test", run=run, call=call, payload=payload)

    def work(transaction: SqliteTransaction) -> int:
        seq = 0
        for _ in range(count):
            seq = transaction.append(new).seq
        return seq

    return work
