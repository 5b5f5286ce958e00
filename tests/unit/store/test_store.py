"""What is SQLite's own about the store; what every store must do is in tests/contract."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.errors import PalyraError
from palyra.journal.checkpoint import CHECKPOINT_NAME
from palyra.store.sqlite.store import DATABASE_NAME, RESERVE_NAME, SqliteReader

READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from palyra.store.sqlite.store import SqliteReader
from palyra.store.sqlite.connection import open_writer
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
print(SqliteReader(Path(sys.argv[1])).head()[0])
try:
    open_writer(Path(sys.argv[1]), ())
except Exception as error:
    print(error.code)
"""


@pytest.fixture
def harness(tmp_path):
    return JournalHarness(tmp_path)


def test_all_its_files_are_private(harness):
    store = harness.open(checkpoint_events=1)
    store.transact_blocking(appending())
    store.seal()
    names = {path.name for path in harness.folder.iterdir()}
    assert {DATABASE_NAME, f"{DATABASE_NAME}-wal", RESERVE_NAME, CHECKPOINT_NAME} <= names
    for path in harness.folder.iterdir():
        if path.suffix != ".pub":
            assert path.stat().st_mode & 0o077 == 0, path.name
    store.close()


def test_a_space_that_cannot_be_held_makes_it_degraded_and_refuse(harness):
    store = harness.open(reserve_bytes=2**60)
    assert store.degraded
    with pytest.raises(PalyraError) as caught:
        store.transact_blocking(appending())
    assert caught.value.code == "journal.disk_full"
    assert store.transact_blocking(appending(), essential=True) == 1
    store.close()


def test_a_journal_is_read_from_a_directory_nobody_may_write():
    """As an ordinary user, because root may write everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        harness = JournalHarness(Path(folder))
        harness.fill(5)
        for path in [*harness.folder.iterdir(), harness.folder]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, str(harness.database)], capture_output=True, text=True, check=False
        )
        harness.folder.chmod(0o700)
    assert done.stdout.split() == ["5", "journal.read_only"], done.stderr


def test_opening_for_reading_makes_nothing(tmp_path):
    with pytest.raises(PalyraError) as caught:
        SqliteReader(tmp_path / DATABASE_NAME)
    assert caught.value.code == "journal.cannot_open"
    assert list(tmp_path.iterdir()) == []


def test_the_cost_of_an_append_does_not_look_at_history(harness):
    """Counts SQLite's own steps, which do not depend on the machine."""
    store = harness.open(checkpoint_events=10**9)
    steps = []

    def counted():
        count = 0

        def tick():
            nonlocal count
            count += 1
            return 0

        connection = store._writer._connection
        connection.set_progress_handler(tick, 1)
        store.transact_blocking(appending())
        connection.set_progress_handler(None, 1)
        steps.append(count)

    counted()
    counted()
    store.transact_blocking(appending(5000))
    counted()
    assert steps[2] <= steps[1] * 1.2, steps
    store.close()
