"""The one writer: it takes all waiting units of work, commits them together, then tells everyone at once.

It has a thread. The first unit to arrive there does not wait for company. While its commit is on its way to the disk
the next ones gather, so groups grow with the load and vanish without it.
"""

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from palyra.clock import Clock
from palyra.ids import EventIds
from palyra.journal.redaction import Redactor
from palyra.journal.sealing import keep_beside, seal, sealed_through
from palyra.signing.dsse import Signer
from palyra.store.notify import Subscription, Teller
from palyra.store.sqlite.disk_reserve import Ballast
from palyra.store.sqlite.faults import DiskFull, JournalClosed, JournalOverloaded, fault_of
from palyra.store.sqlite.schema import begin
from palyra.store.sqlite.transaction import Group, SqliteTransaction, read_head
from palyra.store.sqlite.unit_of_work import Committed, Outcome, Unit, Waiting, all_failed, gathered, perform_unit

# Beyond this the disk is not keeping up, and a caller is better told than queued.
MAX_WAITING_UNITS = 8192


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint_path: Path
    checkpoint_events: int
    checkpoint_seconds: float


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        redactor: Redactor,
        signer: Signer,
        ballast: Ballast,
        settings: WriterSettings,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._redactor = redactor
        self._signer = signer
        self._ids = EventIds()
        self._ballast = ballast
        # Whether the last group met a full disk: for readiness, read by other threads.
        self.disk_full = False
        self._settings = settings
        self._queue: Waiting = queue.SimpleQueue()
        self._gate = threading.Lock()
        # Units in the queue, changed behind the gate.
        self._waiting = 0
        self._closed = False
        head = read_head(connection)[0]
        self._teller = Teller(head)
        # Up to here everything is sealed: at least, for another process may have sealed more.
        self._sealed = sealed_through(connection)
        self._seal_at: float | None = None
        self._note_unsealed(head - self._sealed)
        self._thread = threading.Thread(target=self._run, name="palyra-journal-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work cannot wait for another one")
        with self._gate:
            if self._closed:
                raise JournalClosed("the journal is closed")
            if self._waiting >= MAX_WAITING_UNITS:
                raise JournalOverloaded(f"{MAX_WAITING_UNITS} units of work already wait for the journal")
            self._waiting += 1
            self._queue.put(unit)

    def _roll_back(self) -> None:
        # What stands in the way of that stands in the way of the next transaction, and is told there.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Commits what waits, seals what is unsealed, and ends the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def add(self, subscription: Subscription) -> None:
        self._teller.add(subscription)

    def remove(self, subscription: Subscription) -> None:
        self._teller.remove(subscription)

    def _run(self) -> None:
        running = True
        while running:
            timeout = None if self._seal_at is None else max(0.0, self._seal_at - self._clock.monotonic())
            units, running, seal_now = gathered(self._queue, timeout)
            if units or seal_now:
                self._serve(units, seal_now=seal_now)
        self._connection.close()

    def _serve(self, units: list[Unit], *, seal_now: bool) -> None:
        with self._gate:
            self._waiting -= len(units)
        live = [unit for unit in units if unit.sure or not unit.future.cancelled()]
        if live or seal_now:
            self._commit(live, seal_now=seal_now)

    def _commit(self, units: list[Unit], *, seal_now: bool) -> None:
        """Every unit gets an outcome, whatever happens."""
        refused: list[Outcome] = []
        if not all(unit.essential for unit in units) and not self._ballast.secure():
            refused = [
                (unit, None, DiskFull("the disk is too full to record new work"))
                for unit in units
                if not unit.essential
            ]
            units = [unit for unit in units if unit.essential]
        try:
            group = self._attempt(units, seal_now=seal_now)
            self.disk_full = bool(refused)
        except DiskFull as fault:
            self.disk_full = True
            group = self._attempt_essential(units, fault)
        except Exception as error:
            group = all_failed(units, error)
        group.outcomes += refused
        self._after(group)
        self._teller.tell(group.outcomes, group.events, first_head=group.first_head, last_head=group.last_head)
        if group.checkpoint is not None:
            keep_beside(self._settings.checkpoint_path, group.checkpoint)

    def _attempt_essential(self, units: list[Unit], fault: DiskFull) -> Committed:
        """The end of work that already ran is recorded with the space held back for it."""
        essential = [unit for unit in units if unit.essential]
        if not essential or not self._ballast.held():
            return all_failed(units, fault)
        self._ballast.release()
        try:
            group = self._attempt(essential, seal_now=False)
        except Exception as error:
            group = all_failed(essential, error)
        group.outcomes += all_failed([unit for unit in units if not unit.essential], fault).outcomes
        return group

    def _attempt(self, units: Sequence[Unit], *, seal_now: bool) -> Committed:
        connection = self._connection
        try:
            if connection.in_transaction:
                self._roll_back()
            begin(connection)
            try:
                group = self._perform(units, seal_now=seal_now)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            fault = fault_of(error)
            if fault is None:
                raise
            raise fault from error
        return group

    def _perform(self, units: Sequence[Unit], *, seal_now: bool) -> Committed:
        connection = self._connection
        group = Group(connection, self._redactor, self._ids, self._clock.now_ms())
        first_head = group.seq
        outcomes = [perform_unit(unit, SqliteTransaction(group)) for unit in units]
        group.flush()
        sealed, checkpoint = self._sealed, None
        due = self._seal_at is not None and self._clock.monotonic() >= self._seal_at
        due = due or seal_now or any(unit.seal for unit in units)
        if due or group.seq - sealed >= self._settings.checkpoint_events:
            sealed = sealed_through(connection)
            if group.seq > sealed and (due or group.seq - sealed >= self._settings.checkpoint_events):
                checkpoint = seal(connection, time_ms=group.now_ms, signer=self._signer)
                sealed = checkpoint.last_seq
        return Committed(
            outcomes=outcomes,
            events=group.events,
            first_head=first_head,
            last_head=group.seq,
            sealed=sealed,
            checkpoint=checkpoint,
        )

    def _after(self, group: Committed) -> None:
        if group.last_head:
            self._sealed = group.sealed
            self._note_unsealed(group.last_head - group.sealed)
        elif self._seal_at is not None:
            # A failed group leaves what was unsealed as it was; ask again after the usual time, not at once.
            self._seal_at = self._clock.monotonic() + self._settings.checkpoint_seconds

    def _note_unsealed(self, unsealed: int) -> None:
        if unsealed <= 0:
            self._seal_at = None
        elif self._seal_at is None:
            self._seal_at = self._clock.monotonic() + self._settings.checkpoint_seconds
