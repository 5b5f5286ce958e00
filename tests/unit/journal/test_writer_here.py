"""Work that its caller's own thread commits: only when that is soon done, and with the same promises."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest

from fakes.journal_house import JournalHouse, appending
from palyra.clock import SystemClock
from palyra.errors import PalyraError
from palyra.journal.pace import EVENTS_BETWEEN_MOVES, FIRST_PENALTY, QUICK_SECONDS
from palyra.journal.sqlite_faults import DiskFull, JournalClosed


@pytest.fixture
def house(tmp_path):
    return JournalHouse(tmp_path)


ONE = appending()


def whose_thread(then=ONE):
    """Work that tells in which thread it was done."""

    def work(transaction):
        then(transaction)
        return "here" if threading.current_thread() is threading.main_thread() else "there"

    return work


async def at_rest(store):
    """Whoever hears of a commit from the thread may be quicker than the thread itself."""
    while store._writer._turn.locked():
        await asyncio.sleep(0)


@pytest.mark.promise("P-journal-durable")
async def test_work_of_one_who_is_alone_is_done_before_it_is_waited_for(house):
    store = house.open()
    done = store.submit(whose_thread(), alone=True)
    assert done.done() and await done == "here"
    assert await store.transact(whose_thread(), alone=True) == "here"
    assert await store.transact(whose_thread()) == "there", "only who says so"
    await at_rest(store)
    assert await store.transact(whose_thread(), alone=True) == "here"
    store.close()
    assert house.verified().events == 4


async def test_it_is_on_disk_when_its_caller_goes_on(house):
    store = house.open()
    store.submit(appending(2), alone=True)
    with closing(sqlite3.connect(house.database)) as other, other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (2,)
    store.close()


async def test_while_another_unit_is_at_work_it_waits_its_turn(house):
    store, gate, entered = house.open(), threading.Event(), threading.Event()

    def hold(_transaction):
        entered.set()
        return gate.wait(30)

    first = store.submit(hold)
    assert await asyncio.to_thread(entered.wait, 30)
    second = store.submit(whose_thread(), alone=True)
    assert not second.done()
    gate.set()
    assert await first and await second == "there"
    store.close()


@pytest.mark.promise("P-journal-durable")
async def test_another_process_that_writes_does_not_keep_the_loop(house):
    store = house.open()
    other = sqlite3.connect(house.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = store.submit(whose_thread(), alone=True)
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert await waiting == "there"
    await at_rest(store)
    assert await store.transact(whose_thread(), alone=True) == "here"
    store.close()


async def test_what_another_process_wrote_is_built_on(house):
    store, other = house.open(), house.open()
    assert await store.transact(appending(), alone=True) == 1
    assert await other.transact(appending(), alone=True) == 2
    assert await store.transact(appending(), alone=True) == 3
    other.close()
    store.close()
    assert house.verified().events == 3


async def test_an_exception_undoes_the_work_and_nothing_else(house):
    store = house.open()

    def broken(transaction):
        appending()(transaction)
        transaction.execute("CREATE TABLE never (a)")
        raise KeyError("no")

    await store.transact(appending(), alone=True)
    with pytest.raises(KeyError):
        await store.transact(broken, alone=True)
    assert await store.transact(appending(), alone=True) == 2
    assert store.read("SELECT name FROM sqlite_schema WHERE name = 'never'") == []
    store.close()


@pytest.mark.promise("P-journal-durable")
async def test_after_a_slow_commit_it_is_the_threads_until_enough_were_quick(house):
    store = house.open()

    def slow(transaction):
        house.clock.seconds += 1.2 * QUICK_SECONDS

    assert await store.transact(whose_thread(slow), alone=True) == "here"
    threads = [await store.transact(whose_thread(), alone=True) for _ in range(FIRST_PENALTY)]
    assert threads == ["there"] * FIRST_PENALTY
    await at_rest(store)
    assert await store.transact(whose_thread(), alone=True) == "here"
    store.close()


async def test_a_checkpoint_is_made_by_the_thread(house):
    store = house.open(checkpoint_events=40)
    threads = [await store.transact(whose_thread(), alone=True) for _ in range(41)]
    assert set(threads[:8]) == {"here"} and set(threads[8:40]) == {"there"}
    assert store.reader.newest_checkpoint().last_seq == 40
    store.close()


async def test_a_due_checkpoint_is_made_by_the_thread(house):
    store = house.open(checkpoint_seconds=60)
    await store.transact(appending(), alone=True)
    house.clock.seconds += 61
    assert await store.transact(whose_thread(), alone=True) == "there"
    assert store.reader.newest_checkpoint().last_seq == 2
    store.close()


@pytest.mark.timeout(60)
async def test_events_are_sealed_after_a_while_also_when_the_thread_had_nothing_to_do(house):
    store = house.open(clock=SystemClock(), checkpoint_seconds=0.05)
    await store.transact(appending(3), alone=True)
    while store.reader.newest_checkpoint() is None:
        await asyncio.sleep(0.01)
    assert store.reader.newest_checkpoint().last_seq == 3
    store.close()


async def test_what_was_committed_is_moved_into_the_database_by_the_thread(house):
    store, moves = house.open(), []
    writer = store._writer
    move = writer._move
    writer._move = lambda: (moves.append(threading.current_thread()), move())
    for _ in range(EVENTS_BETWEEN_MOVES):
        await store.transact(appending(), alone=True)
    while not moves:
        await asyncio.sleep(0.001)
    assert moves == [writer._thread]
    assert await store.transact(whose_thread(), alone=True) in ("here", "there")
    store.close()


async def test_a_full_disk_is_the_threads_to_deal_with(house, monkeypatch):
    store = house.open()

    def full(units, *, seal_now):
        raise DiskFull("full")

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "_attempt", full)
        with pytest.raises(PalyraError) as caught:
            await store.transact(appending(), alone=True)
        assert caught.value.code == "journal.disk_full"
        assert store.degraded == "the disk is full"
    assert await store.transact(whose_thread(), alone=True) == "there", "which finds that it is over"
    (house.folder / "palyra.ballast").unlink()
    house.clock.seconds += 1
    assert await store.transact(whose_thread(), alone=True) == "there", "which takes the ballast again"
    assert store.degraded is None
    store.close()


async def test_readers_hear_of_it_before_its_caller_goes_on(house):
    store = house.open()
    with store.subscribe() as news:
        await store.transact(appending(2), alone=True)
        assert [(await anext(news)).seq for _ in range(2)] == [1, 2]
    store.close()


async def test_a_closed_journal_takes_nothing(house):
    store = house.open()
    store.close()
    with pytest.raises(JournalClosed):
        await store.transact(appending(), alone=True)
