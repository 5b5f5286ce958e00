"""The store that the daemon gives the tools keeps what the tools declared they need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction
from palyra.store.sqlite.store import SqliteStore

SCHEMA = ("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened: SqliteStore = JournalHarness(tmp_path).open(schema=SCHEMA)
    yield opened
    opened.close()


def note(tx: Transaction) -> int:
    before = tx.now_ms
    tx.append(NewEvent(kind="note.made", actor="test", payload={}))
    tx.execute("INSERT INTO notes (text) VALUES (?)", ("x",))
    assert tx.changed() == 1
    assert tx.now_ms == before, "a unit of work is one instant"
    return len(tx.execute("SELECT id FROM notes"))


async def test_entry_and_table_change_become_durable_together(store: Store) -> None:
    assert await store.transact(note) == 1
    assert store.read("SELECT text FROM notes") == [("x",)]
    assert store.read("SELECT COUNT(*) FROM events") == [(1,)]


async def test_or_not_at_all(store: Store) -> None:
    def broken(tx: Transaction) -> None:
        note(tx)
        raise RuntimeError("after everything was written")

    with pytest.raises(RuntimeError, match="after everything"):
        await store.transact(broken, essential=True)
    assert store.read("SELECT COUNT(*) FROM notes") == [(0,)]
    assert store.read("SELECT COUNT(*) FROM events") == [(0,)]
