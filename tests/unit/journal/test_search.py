"""Searching the journal: newest first, by every field, in bounded stretches."""

from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness
from palyra.journal.search import RARE, SCHEMA, EventQuery, search_events
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    harness = JournalHarness(tmp_path)
    store = harness.open(schema=SCHEMA)
    for number in range(20):
        store.transact_blocking(
            lambda tx, number=number: tx.append(  # type: ignore[misc]
                NewEvent(
                    kind="call.finished" if number % 2 else "approval.requested",
                    actor="user:a" if number < 10 else "user:b",
                    principal=f"agent:{number % 3}",
                    run="r1" if number < 5 else "r2",
                    payload={"n": number, "text": "Needle" if number == 4 else ""},
                )
            )
        )
    return store


def seqs(store: SqliteStore, limit: int = 50, look_at: int = 100, **query: object) -> tuple[list[int], int | None]:
    found = search_events(store, EventQuery(**query), limit=limit, look_at=look_at)  # type: ignore[arg-type]
    return [event.seq for event in found.events], found.next


def test_everything_newest_first_and_page_by_page(store: SqliteStore) -> None:
    assert seqs(store, limit=3) == ([20, 19, 18], 18)
    assert seqs(store, limit=3, before=18) == ([17, 16, 15], 15)
    assert seqs(store, before=3) == ([2, 1], None)
    store.close()


def test_each_field_and_fields_together(store: SqliteStore) -> None:
    assert seqs(store, kind="approval.requested", limit=2) == ([19, 17], 17)
    assert seqs(store, kind="approval.", limit=2) == ([19, 17], 17)
    assert seqs(store, kind="call.", limit=2) == ([20, 18], 18)
    assert seqs(store, kind="call.finished", actor="user:a") == ([10, 8, 6, 4, 2], None)
    assert seqs(store, run="r1", principal="agent:0") == ([4, 1], None)
    assert seqs(store, text="needle") == ([5], None)
    assert seqs(store, kind="odd'; DROP TABLE events; --") == ([], None)
    store.close()


@pytest.mark.promise("P-limits")
def test_a_search_without_an_index_looks_at_a_stretch_and_tells_where_to_go_on(store: SqliteStore) -> None:
    assert seqs(store, text="needle", look_at=10) == ([], 11)
    assert seqs(store, text="needle", look_at=10, before=11) == ([5], None)
    store.close()


def test_rare_kinds_are_found_by_their_index(store: SqliteStore) -> None:
    plan = store.read(
        f"EXPLAIN QUERY PLAN SELECT seq FROM events WHERE seq < 9 AND kind = 'approval.requested' AND {RARE}"
        " ORDER BY seq DESC LIMIT 5"
    )
    assert "events_of_rare_kinds" in str(plan)
    store.close()
