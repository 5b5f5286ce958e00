"""Programs that use a journal in a process of their own: one that writes until told or killed, one on a full disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

from fakes.journal_harness import JournalHarness, appending
from palyra.clock import SystemClock
from palyra.errors import PalyraError
from palyra.journal.verify import verify_journal
from palyra.limits import JOURNAL_DISK_RESERVE_BYTES, MIB
from palyra.store.sqlite.store import RESERVE_NAME, SqliteReader, SqliteStore


def write(folder: Path, events: int) -> None:
    """Appends in units of three and prints the last number of each unit once it is durable."""
    store = JournalHarness(folder).open(clock=SystemClock(), checkpoint_events=50)
    for _ in range(events // 3):
        print(store.transact_blocking(appending(3, pid=os.getpid(), text="x" * 200)), flush=True)
    store.close()


class ShiftedClock(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def fill_disk(folder: Path) -> None:
    """Everything that happens to a journal while its disk is full, as one JSON document of what was seen."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={16 * MIB}", "tmpfs", str(folder)], check=True)
    harness, clock = JournalHarness(folder), ShiftedClock()
    store = harness.open(clock=clock, reserve_bytes=JOURNAL_DISK_RESERVE_BYTES)
    seen: dict[str, object] = {"degraded_at_first": store.degraded}
    recorded = store.transact_blocking(appending(100))
    filler = folder / "filler"
    _write_until_full(filler)
    code, recorded = _append_until_refused(store, recorded)
    seen["code"], seen["nothing_lost"] = code, store.head()[0] == recorded
    seen["ballast_kept"] = (folder / RESERVE_NAME).exists()
    seen["degraded_while_full"] = store.degraded
    seen["verified_full"] = verify_journal(store.reader, harness.verifiers).events == recorded
    recorded = store.transact_blocking(appending(text="the end of a call"), essential=True)
    seen["essential_recorded"] = store.head()[0] == recorded
    seen["degraded_after"] = store.degraded
    _write_until_full(folder / "more")
    seen["refused_while_degraded"] = _append_until_refused(store, recorded)[0]
    seen["nothing_more_was_written"] = store.head()[0] == recorded
    filler.unlink()
    seen["refused_within_the_second"] = _append_until_refused(store, recorded)[0]
    clock.ahead += 2
    recorded = store.transact_blocking(appending(10))
    seen["works_again"] = store.head()[0] == recorded and store.degraded is None
    store.close()
    with SqliteReader(harness.database) as reader:
        seen["verified_after"] = verify_journal(reader, harness.verifiers).events == recorded
    print(json.dumps(seen))


def _append_until_refused(store: SqliteStore, recorded: int) -> tuple[str, int]:
    for _ in range(20_000):
        try:
            recorded = store.transact_blocking(appending(20, text="x" * 400))
        except PalyraError as error:
            return error.code, recorded
    return "never refused", recorded


def _write_until_full(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 64 * 1024, 4096):
            while True:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    break


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder, events]:
            write(Path(folder), int(events))
        case ["fill_disk", folder]:
            fill_disk(Path(folder))
