import sqlite3

import pytest

from fakes.journal_harness import JournalHarness
from palyra.store.event import Event, NewEvent
from palyra.store.sqlite.connection import ROWS_AT_ONCE, Group, SqliteTransaction, open_writer

EVENT = NewEvent(kind="a.b", actor="x")


@pytest.fixture
def connection(tmp_path):
    connection = open_writer(tmp_path / "j.db", ["CREATE TABLE IF NOT EXISTS t (x INTEGER UNIQUE)"])
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.fixture
def group(connection, tmp_path):
    return Group(connection, JournalHarness(tmp_path).log(), 5)


def head(group):
    events = group.log.events
    return (events[-1].seq, events[-1].hash)


def stored(group):
    group.flush()
    return [seq for (seq,) in group.connection.execute("SELECT seq FROM events ORDER BY seq")]


def test_rows_are_inserted_together_and_before_anyone_could_miss_them(group):
    first = SqliteTransaction(group)
    first.append(EVENT)
    first.finish()
    assert len(group.log.events) - group.inserted == 1
    second = SqliteTransaction(group)
    second.append(EVENT)
    assert second.execute("SELECT max(seq) FROM events") == [(2,)]
    second.append(EVENT)
    second.finish()
    assert stored(group) == [1, 2, 3]


@pytest.mark.parametrize("statement_at", [None, 0, 1, 2])
def test_undoing_takes_back_one_unit_wherever_its_statements_stood(group, statement_at):
    before = SqliteTransaction(group)
    before.append(EVENT)
    before.execute("INSERT INTO t VALUES (1)")
    before.append(EVENT)
    before.finish()
    before_it = head(group)
    undone = SqliteTransaction(group)
    for step in range(3):
        if step == statement_at:
            undone.execute("INSERT INTO t VALUES (2)")
        undone.append(EVENT)
    undone.undo()
    assert head(group) == before_it and len(group.log.events) == 2
    after = SqliteTransaction(group)
    assert after.append(EVENT).prev_hash == before_it[1]
    after.finish()
    assert stored(group) == [1, 2, 3]
    assert group.connection.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_a_statements_own_mistake_is_no_fault_of_the_store(group):
    transaction = SqliteTransaction(group)
    transaction.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.IntegrityError):
        transaction.execute("INSERT INTO t VALUES (1)")
    assert transaction.fault is None


def test_a_fault_is_remembered_even_if_the_work_swallows_it(group):
    transaction = SqliteTransaction(group)
    group.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError):
        transaction.execute("INSERT INTO t VALUES (1)")
    assert transaction.fault.code == "journal.read_only"


def test_all_of_a_unit_has_one_instant(group):
    transaction = SqliteTransaction(group)
    assert {transaction.append(EVENT).time_ms for _ in range(3)} == {transaction.now_ms} == {5}


@pytest.mark.parametrize("events", [1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE + 5])
def test_any_number_of_rows_is_stored_as_it_was_appended(group, events):
    unit = SqliteTransaction(group)
    appended = [unit.append(NewEvent(kind="a.b", actor=f"x{number}", run="r" * number)) for number in range(events)]
    unit.finish()
    group.flush()
    assert group.inserted == events
    rows = group.connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
    assert [Event(*row) for row in rows] == appended
