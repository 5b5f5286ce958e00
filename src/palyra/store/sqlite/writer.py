"""The one writer: it takes all waiting units of work, commits them together, then notifies all callers at once.

It has a thread. The first unit to arrive there does not wait for others. While its commit is on its way to the disk
the next ones gather, so groups grow with the load and vanish without it.
"""

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from palyra.clock import Clock
from palyra.store.commit import Commit, Notifier, Outcome, Queue, Subscription, Unit, fail_all, take_batch
from palyra.store.port import DiskFull, EventLog, JournalClosed, JournalOverloaded, Reader
from palyra.store.sqlite.connection import begin, fault_of
from palyra.store.sqlite.transaction import Group, SqliteTransaction, perform_unit, read_head

# Beyond this the disk does not keep up, and a caller is better refused than queued.
MAX_WAITING_UNITS = 8192
# How often space is asked of a full disk.
_RETRY_SECONDS = 1.0
_BYTES_PER_BLOCK = 512


class DiskReserve:
    """A preallocated file beside the database, so that work which already ran can be recorded on a full disk.

    Every process that writes the database shares it: the file is the truth.
    """

    def __init__(self, path: Path, size: int, clock: Clock) -> None:
        self._path = str(path)
        self._size = size
        self._clock = clock
        self._next_attempt = 0.0

    def is_held(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        return status.st_size >= self._size and status.st_blocks * _BYTES_PER_BLOCK >= self._size

    def secure(self) -> bool:
        """Return whether the space is held, after an attempt to take it."""
        if self.is_held():
            return True
        now = self._clock.monotonic()
        if now < self._next_attempt:
            return False
        self._next_attempt = now + _RETRY_SECONDS
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            self.release()
            return False
        finally:
            os.close(descriptor)
        return True

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class Writer:
    def __init__(
        self, connection: sqlite3.Connection, *, clock: Clock, log: EventLog, reserve: DiskReserve, reader: Reader
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._log = log
        self._reserve = reserve
        # Whether the last group met a full disk: for readiness, read by other threads.
        self.disk_full = False
        self._queue: Queue = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Units in the queue, changed under the lock.
        self._waiting = 0
        self._closed = False
        self._notifier = Notifier(read_head(connection)[0])
        log.resume(reader)
        self._thread = threading.Thread(target=self._run, name="palyra-journal-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work cannot wait for another one")
        with self._lock:
            if self._closed:
                raise JournalClosed("the journal is closed")
            if self._waiting >= MAX_WAITING_UNITS:
                raise JournalOverloaded(f"{MAX_WAITING_UNITS} units of work already wait for the journal")
            self._waiting += 1
            self._queue.put(unit)

    def close(self) -> None:
        """Commit what waits, seal what is unsealed, and end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def add(self, subscription: Subscription) -> None:
        self._notifier.add(subscription)

    def remove(self, subscription: Subscription) -> None:
        self._notifier.remove(subscription)

    def _run(self) -> None:
        running = True
        while running:
            units, running, seal = take_batch(self._queue, self._log.wait_seconds())
            with self._lock:
                self._waiting -= len(units)
            live = [unit for unit in units if unit.keep or not unit.future.cancelled()]
            if live or seal:
                self._serve(live, seal=seal)
        self._connection.close()

    def _serve(self, units: list[Unit], *, seal: bool) -> None:
        """Commit the units and notify their callers. Every unit gets an outcome, whatever happens."""
        refused: list[Outcome] = []
        if not all(unit.essential for unit in units) and not self._reserve.secure():
            fault = DiskFull("the disk is too full to record new work")
            refused = fail_all([unit for unit in units if not unit.essential], fault)
            units = [unit for unit in units if unit.essential]
        try:
            commit = self._attempt(units, seal=seal)
            self.disk_full = bool(refused)
        except DiskFull as fault:
            self.disk_full = True
            commit = self._attempt_essential(units, fault)
        except Exception as error:
            commit = Commit(outcomes=fail_all(units, error))
        commit.outcomes += refused
        self._notifier.notify(commit)
        self._log.end(committed=bool(commit.last_seq))

    def _attempt_essential(self, units: list[Unit], fault: DiskFull) -> Commit:
        """Record the end of work that already ran with the space held back for it."""
        essential = [unit for unit in units if unit.essential]
        if not essential or not self._reserve.is_held():
            return Commit(outcomes=fail_all(units, fault))
        self._reserve.release()
        try:
            commit = self._attempt(essential, seal=False)
        except Exception as error:
            commit = Commit(outcomes=fail_all(essential, error))
        commit.outcomes += fail_all([unit for unit in units if not unit.essential], fault)
        return commit

    def _attempt(self, units: Sequence[Unit], *, seal: bool) -> Commit:
        connection = self._connection
        try:
            if connection.in_transaction:
                # An earlier rollback failed. What prevents this one prevents the next BEGIN, which raises it.
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            begin(connection)
            try:
                commit = self._perform(units, seal=seal)
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
        return commit

    def _perform(self, units: Sequence[Unit], *, seal: bool) -> Commit:
        group = Group(self._connection, self._log, self._clock.now_ms())
        outcomes = [perform_unit(unit, SqliteTransaction(group)) for unit in units]
        sealing = SqliteTransaction(group)
        self._log.seal(sealing, now=seal or any(unit.seal for unit in units))
        sealing.finish()
        group.flush()
        events = self._log.events
        last_seq = events[-1].seq if events else group.first_seq
        return Commit(outcomes=outcomes, events=events, first_seq=group.first_seq, last_seq=last_seq)
