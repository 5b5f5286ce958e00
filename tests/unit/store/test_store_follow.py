import threading

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.store.sqlite.store import SqliteReader


@pytest.mark.timeout(60)
def test_events_of_any_process_arrive_filtered_and_in_order(tmp_path):
    harness = JournalHarness(tmp_path)
    store = harness.open()
    store.transact_blocking(appending(3))
    stop = threading.Event()
    other = harness.open()
    with SqliteReader(harness.database) as reader:
        listener = reader.follow(1, kind="call.finished", stop=stop)
        assert [next(listener).seq, next(listener).seq] == [2, 3]

        def write():
            store.transact_blocking(appending(2))
            other.transact_blocking(appending(kind="call.started"))
            other.transact_blocking(appending(600))

        writer = threading.Thread(target=write)
        writer.start()
        expected = [4, 5, *range(7, 607)]
        assert [next(listener).seq for _ in expected] == expected
        writer.join()
        stop.set()
        assert list(listener) == []
    other.close()
    store.close()
