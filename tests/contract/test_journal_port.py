"""What every journal store must do, whatever it keeps its events in. A new backend joins BACKENDS and passes."""

import asyncio
import itertools
import threading

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.errors import PalyraError
from palyra.journal.chain import GENESIS_HASH, event_hash
from palyra.journal.verify import newest_checkpoint, verify_journal
from palyra.store.event import NewEvent
from palyra.store.sqlite.writer import EventsLost

COUNTERS = "CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"


BACKENDS = {
    "sqlite": lambda harness: harness.open(schema=[COUNTERS], checkpoint_events=50),
}


@pytest.fixture
def harness(tmp_path):
    return JournalHarness(tmp_path)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


@pytest.fixture
def store(harness, backend):
    store = backend(harness)
    yield store
    store.close()


def count_up(transaction):
    transaction.execute("INSERT INTO counters VALUES ('n', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")
    return transaction.execute("SELECT value FROM counters WHERE name = 'n'")[0][0]


async def test_an_event_comes_back_as_it_was_appended(store):
    new = NewEvent(
        kind="call.finished", actor="daemon", principal="agent:a", run="R", call="C", payload={"b": [1, "ü"], "a": None}
    )
    event = await store.transact(lambda transaction: transaction.append(new))
    assert store.events_since(0, 10) == [event]
    assert (event.seq, event.kind, event.actor, event.principal, event.run, event.call) == (
        1, "call.finished", "daemon", "agent:a", "R", "C",
    )  # fmt: skip
    assert event.payload == '{"a":null,"b":[1,"ü"]}'.encode()
    assert event.prev_hash == GENESIS_HASH
    assert event.hash == event_hash(*event.row()[:10])


async def test_events_are_numbered_without_gaps_and_chained(store):
    await asyncio.gather(*(store.transact(appending(n=number)) for number in range(200)))
    events = store.events_since(0, 1000)
    assert [event.seq for event in events] == list(range(1, 201))
    for before, after in itertools.pairwise(events):
        assert after.prev_hash == before.hash
    assert len({event.id for event in events}) == 200
    assert store.head() == (200, events[-1].hash)


@pytest.mark.promise("P-journal-durable")
async def test_a_result_means_that_a_new_process_would_see_it(store):
    for number in range(1, 20):
        assert await store.transact(appending()) == number
        assert store.read("SELECT max(seq) FROM events") == [(number,)]


@pytest.mark.promise("P-journal-durable")
async def test_table_changes_and_events_commit_together_or_not_at_all(store):
    def fails(transaction):
        transaction.append(NewEvent(kind="a.b", actor="x"))
        count_up(transaction)
        transaction.append(NewEvent(kind="a.c", actor="x"))
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await store.transact(fails)
    assert store.head()[0] == 0
    assert store.read("SELECT count(*) FROM counters") == [(0,)]
    assert await store.transact(lambda transaction: (appending()(transaction), count_up(transaction))) == (1, 1)


@pytest.mark.promise("P-journal-durable")
async def test_one_callers_exception_does_not_touch_the_others(store, harness):
    def work(number):
        def inner(transaction):
            seq = transaction.append(NewEvent(kind="a.b", actor="x", payload={"n": number})).seq
            value = count_up(transaction) if number % 2 else None
            if number % 3 == 0:
                raise LookupError(number)
            return seq, value

        return inner

    results = await asyncio.gather(*(store.transact(work(n)) for n in range(120)), return_exceptions=True)
    assert [isinstance(result, LookupError) for result in results] == [n % 3 == 0 for n in range(120)]
    done = [result for result in results if not isinstance(result, LookupError)]
    assert sorted(seq for seq, _ in done) == list(range(1, 81))
    assert sorted(value for _, value in done if value) == list(range(1, 41))
    numbers = [event.payload_value()["n"] for event in store.events_since(0, 1000)]
    assert sorted(numbers) == [n for n in range(120) if n % 3]
    assert verify_journal(store.reader, harness.verifiers).events == 80


async def test_a_unit_sees_its_own_events_and_those_before_it(store):
    await store.transact(appending())

    def work(transaction):
        transaction.append(NewEvent(kind="a.b", actor="x"))
        return transaction.execute("SELECT count(*) FROM events")[0][0]

    results = await asyncio.gather(*(store.transact(work) for _ in range(5)))
    assert results == [2, 3, 4, 5, 6]


async def test_execute_gives_rows_of_returning_and_the_number_of_changes(store):
    def work(transaction):
        nothing = transaction.execute("INSERT INTO counters VALUES (?, ?), ('b', 2)", ("a", 1))
        inserted = transaction.changed()
        returned = transaction.execute(
            "UPDATE counters SET value = value + 1 WHERE value > :v RETURNING name", {"v": 0}
        )
        changed = transaction.changed()
        transaction.execute("UPDATE counters SET value = 0 WHERE name = 'missing'")
        return nothing, inserted, sorted(returned), changed, transaction.changed()

    assert await store.transact(work) == ([], 2, [("a",), ("b",)], 2, 0)


async def test_a_transaction_is_one_instant_and_ends_with_its_work(store):
    kept = []

    def work(transaction):
        kept.append(transaction)
        return transaction.now_ms, transaction.append(NewEvent(kind="a.b", actor="x")).time_ms

    now_ms, time_ms = await store.transact(work)
    assert now_ms == time_ms
    with pytest.raises(RuntimeError):
        kept[0].append(NewEvent(kind="a.b", actor="x"))
    with pytest.raises(RuntimeError):
        kept[0].execute("SELECT 1")


@pytest.mark.parametrize(
    "sql", ["COMMIT", " rollback", "Begin immediate", "SAVEPOINT x", "PRAGMA user_version = 1", "END;"]
)
async def test_a_unit_cannot_end_the_transaction_it_shares(store, sql):
    with pytest.raises(ValueError, match="shared"):
        await store.transact(lambda transaction: transaction.execute(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET actor = 'x'",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT * FROM events",
        "UPDATE checkpoints SET last_seq = 1",
        "DELETE FROM checkpoints",
    ],
)
async def test_recorded_things_do_not_change(store, harness, sql):
    await store.transact(appending(60))
    with pytest.raises(Exception, match="append-only"):
        await store.transact(lambda transaction: transaction.execute(sql))
    assert verify_journal(store.reader, harness.verifiers).events == 60


async def test_events_are_filtered_by_run_call_and_kind(store):
    for run in ("R1", "R2"):
        for call in ("C1", "C2"):
            for kind in ("call.started", "call.finished"):
                await store.transact(appending(kind=kind, run=run, call=call))
    seqs = lambda **filters: [event.seq for event in store.events_since(0, 100, **filters)]  # noqa: E731
    assert seqs() == list(range(1, 9))
    assert seqs(run="R2") == [5, 6, 7, 8]
    assert seqs(call="C1") == [1, 2, 5, 6]
    assert seqs(run="R1", call="C2", kind="call.finished") == [4]
    assert [event.seq for event in store.events_since(6, 1)] == [7]
    assert seqs(run="nobody") == []


async def test_subscribers_get_every_event_in_order(store):
    with store.subscribe() as first, store.subscribe() as second:
        await asyncio.gather(*(store.transact(appending(3)) for _ in range(20)))
        for subscription in (first, second):
            assert [(await anext(subscription)).seq for _ in range(60)] == list(range(1, 61))


async def test_a_subscriber_that_falls_behind_is_told_and_goes_on(store):
    with store.subscribe(capacity=5) as subscription:
        await store.transact(appending(6))
        with pytest.raises(EventsLost) as caught:
            await anext(subscription)
        assert caught.value.code == "journal.subscriber_lagged"
        await store.transact(appending())
        assert (await anext(subscription)).seq == 7


async def test_a_failed_unit_publishes_nothing(store):
    def fails(transaction):
        transaction.append(NewEvent(kind="a.b", actor="x"))
        raise LookupError

    with store.subscribe() as subscription:
        with pytest.raises(LookupError):
            await store.transact(fails)
        await store.transact(appending(n=1))
        assert (await anext(subscription)).payload == b'{"n":1}'


async def test_two_stores_on_one_journal_keep_one_chain_and_tell_their_subscribers(store, harness, backend):
    other = backend(harness)
    try:
        with store.subscribe() as subscription:
            for _ in range(10):
                await store.transact(appending())
                await other.transact(appending())
            assert store.head()[0] == 20
            with pytest.raises(EventsLost):
                while True:
                    await asyncio.wait_for(anext(subscription), 10)
    finally:
        other.close()
    assert verify_journal(store.reader, harness.verifiers).events == 20


async def test_blocking_callers_and_asyncio_callers_share_the_writer(store):
    done = []
    thread = threading.Thread(target=lambda: done.extend(store.transact_blocking(appending()) for _ in range(50)))
    thread.start()
    others = await asyncio.gather(*(store.transact(appending()) for _ in range(50)))
    await asyncio.to_thread(thread.join)
    assert sorted([*done, *others]) == list(range(1, 101))


@pytest.mark.promise("P-limits")
async def test_checkpoints_come_with_the_events_that_cross_the_boundary(store):
    for seq in range(1, 50):
        await store.transact(appending())
        assert newest_checkpoint(store.reader) is None, seq
    await store.transact(appending())
    assert newest_checkpoint(store.reader).last_seq == 50
    await store.transact(appending(130))
    assert newest_checkpoint(store.reader).last_seq == 180


async def test_sealing_on_request_and_at_the_end(store, harness):
    await asyncio.to_thread(store.seal)
    assert newest_checkpoint(store) is None
    await store.transact(appending(3))
    await asyncio.to_thread(store.seal)
    sealed = newest_checkpoint(store)
    assert sealed is not None and (sealed.number, sealed.last_seq) == (1, 3)
    await asyncio.to_thread(store.seal)
    assert newest_checkpoint(store) == sealed
    await store.transact(appending(2))
    store.close()
    assert harness.newest_checkpoint().last_seq == 5
    assert harness.verify().unsealed == 0


async def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    for attempt in (lambda: store.transact_blocking(appending()), lambda: store.read("SELECT 1")):
        with pytest.raises(PalyraError) as caught:
            attempt()
        assert caught.value.code == "journal.closed"


async def test_a_cancelled_caller_disturbs_nobody(store, harness):
    tasks = [asyncio.create_task(store.transact(appending(n=n))) for n in range(40)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, int) for result in results[1::2])
    assert verify_journal(store.reader, harness.verifiers).events == store.head()[0] >= 20


async def test_work_that_waits_for_other_work_is_refused(store):
    with pytest.raises(RuntimeError, match="cannot wait"):
        await store.transact(lambda transaction: store.transact_blocking(appending()))


async def test_an_exception_that_a_future_cannot_carry_still_comes_back(store):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.transact(lambda transaction: next(iter(())))
