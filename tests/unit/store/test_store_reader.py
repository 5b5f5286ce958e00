import concurrent.futures

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.journal.verify import newest_checkpoint, verify_journal, walk_journal
from palyra.store.port import EMPTY_HEAD, NoSuchEvent
from palyra.store.sqlite.store import SqliteReader


@pytest.fixture
def harness(tmp_path):
    return JournalHarness(tmp_path)


def test_events_are_found_by_number_and_by_id(harness):
    harness.fill(12)
    with SqliteReader(harness.database) as reader:
        event = reader.event(7)
        assert event.seq == 7 and reader.event(event.id) == event
        for missing in (99, "01JD000000000000000000000R"):
            with pytest.raises(NoSuchEvent):
                reader.event(missing)


def test_the_newest_come_first_when_asked(harness):
    harness.fill(12)
    with SqliteReader(harness.database) as reader:
        assert [event.seq for event in reader.events_since(0, 3, newest_first=True)] == [12, 11, 10]
        assert [event.seq for event in reader.events_since(10, 5)] == [11, 12]


def test_an_empty_journal_has_a_head(harness):
    harness.fill(0)
    with SqliteReader(harness.database) as reader:
        assert reader.head() == EMPTY_HEAD
        assert newest_checkpoint(reader) is None
        assert verify_journal(reader, harness.verifiers).events == 0


def test_it_reads_beside_a_writer_and_sees_only_commits(harness):
    store = harness.open()
    with SqliteReader(harness.database) as reader:
        before = reader.data_version()
        assert reader.data_version() == before

        def work(transaction):
            appending()(transaction)
            transaction.execute("SELECT 1")
            return reader.head()[0]

        assert store.transact_blocking(work) == 0
        assert reader.head()[0] == 1
        assert reader.data_version() != before
    store.close()


def test_a_walk_is_one_snapshot(harness):
    store = harness.open()
    store.transact_blocking(appending(20))
    verifier, _, items = walk_journal(store.reader, harness.verifiers)
    first = next(items)
    store.transact_blocking(appending(20))
    assert first[0] == 1 and len(list(items)) == 19
    assert verifier.report.events == 20
    store.close()


def test_many_threads_read_at_once(harness):
    harness.fill(30)
    with SqliteReader(harness.database) as reader, concurrent.futures.ThreadPoolExecutor(12) as pool:
        counts = pool.map(lambda _: len(reader.events_since(0, 100)), range(200))
        assert set(counts) == {30}
        assert len(reader._idle) <= 4


def test_a_run_is_read_through_its_index(harness):
    harness.fill(3)
    with SqliteReader(harness.database) as reader:
        for column in ("run", "call"):
            where = f"seq > 0 AND {column} = ? AND {column} <> ''"
            plan = reader.read(f"EXPLAIN QUERY PLAN SELECT * FROM events WHERE {where} ORDER BY seq", ("x",))
            assert f"events_by_{column}" in str(plan) and "TEMP B-TREE" not in str(plan)


def test_a_stretch_must_start_after_an_event(harness):
    harness.fill(3)
    with SqliteReader(harness.database) as reader, pytest.raises(NoSuchEvent):
        walk_journal(reader, harness.verifiers, first_seq=10)
