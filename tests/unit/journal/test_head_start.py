"""The first part of a unit of work, done ahead: kept with the rest or not at all, and in nobody's way."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.journal_house import JournalHouse, appending
from palyra.errors import PalyraError
from palyra.journal.event import NewEvent
from palyra.journal.sqlite_faults import DiskFull
from palyra.secret import Secret

TABLE = "CREATE TABLE IF NOT EXISTS notes (text TEXT)"


@pytest.fixture
def house(tmp_path):
    return JournalHouse(tmp_path)


def entry(text):
    return NewEvent(kind="note.taken", actor="user:op", payload={"text": text})


def first_part(text):
    def first(transaction):
        transaction.execute("INSERT INTO notes VALUES (?)", (f"{text} begins",))
        transaction.append(entry(f"{text} begins"))
        return text

    return first


def whole(text, seen=None):
    """All of it, or the rest of it: what came of it in the end is the same."""

    def work(transaction):
        if seen is not None:
            seen.append(transaction.head_start)
        if transaction.head_start is None:
            first_part(text)(transaction)
        transaction.execute("INSERT INTO notes VALUES (?)", (f"{text} ends",))
        transaction.append(entry(f"{text} ends"))
        return text

    return work


def recorded(store):
    """What the journal says, which is what the table says."""
    texts = [event.payload_value()["text"] for event in store.events_since(0, 1_000, kind="note.taken")]
    assert [text for (text,) in store.read("SELECT text FROM notes ORDER BY rowid")] == texts
    return texts


def both(*names):
    return [f"{name} {part}" for name in names for part in ("begins", "ends")]


class Failing:
    """A connection on which one statement fails once."""

    def __init__(self, connection, statement):
        self._connection = connection
        self._statement = statement
        self.failed = False

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *params):
        if sql == self._statement and not self.failed:
            self.failed = True
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *params)


async def at_rest(store):
    while store._writer._turn.locked():
        await asyncio.sleep(0)


def verified(house, store):
    store.close()
    with store.open_reader(house.database) as reader:
        return reader.verify(house.verifiers).events


async def test_the_rest_goes_on_where_the_first_part_ended(house):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("a"))
    assert early is not None
    assert recorded(store) == [], "nothing is kept before the rest is done"
    done = store.submit(whole("a", seen), alone=True, head_start=early)
    assert done.done() and await done == "a" and seen == ["a"]
    assert recorded(store) == both("a")
    store.let_go(early)
    assert recorded(store) == both("a"), "too late to take it back"
    assert verified(house, store) == 2


async def test_each_part_tells_its_own_time(house):
    store = house.open(schema=(TABLE,))
    early = store.head_start(first_part("a"))
    house.clock.now += 6
    await store.submit(whole("a"), alone=True, head_start=early)
    times = [event.time_ms for event in store.events_since(0, 10)]
    assert times[1] - times[0] == 7
    store.close()


async def test_who_is_told_hears_of_both_parts_in_order(house):
    store = house.open(schema=(TABLE,))
    with store.subscribe() as news:
        early = store.head_start(first_part("a"))
        await store.submit(whole("a"), alone=True, head_start=early)
        assert [(await anext(news)).seq for _ in range(2)] == [1, 2]
    store.close()


@pytest.mark.parametrize("alone", [True, False])
async def test_other_work_takes_it_back_and_then_everything_is_done(house, alone):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("a"))
    await store.submit(whole("b"), alone=alone)
    assert recorded(store) == both("b")
    await at_rest(store)
    await store.submit(whole("a", seen), alone=True, head_start=early)
    assert seen == [None] and recorded(store) == both("b", "a")
    assert verified(house, store) == 4


async def test_it_is_done_in_the_thread_where_that_has_to_be(house):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("a"))
    await store.submit(whole("a", seen), alone=False, head_start=early)
    assert seen == [None] and recorded(store) == both("a")
    assert verified(house, store) == 2


async def test_what_is_let_go_of_was_never_there(house):
    store = house.open(schema=(TABLE,))
    early = store.head_start(first_part("a"))
    store.let_go(early)
    other = sqlite3.connect(house.database, isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    other.close()
    assert recorded(store) == []
    await store.submit(whole("b"), alone=True)
    assert recorded(store) == both("b")
    assert verified(house, store) == 2


async def test_there_is_one_at_a_time_and_who_comes_second_takes_it_back(house):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("a"))
    assert store.head_start(first_part("b")) is None and not store._writer._connection.in_transaction
    await store.submit(whole("a", seen), alone=True, head_start=early)
    assert seen == [None] and recorded(store) == both("a")
    store.close()


async def test_a_first_part_that_fails_leaves_nothing(house):
    store = house.open(schema=(TABLE,))

    def broken(transaction):
        first_part("a")(transaction)
        raise KeyError("no")

    def swallowed(transaction):
        first_part("a")(transaction)
        try:
            transaction.execute("INSERT INTO nowhere VALUES (1)")
        except sqlite3.Error:
            return "as if nothing were wrong"

    assert store.head_start(broken) is None
    early = store.head_start(swallowed)
    if early is not None:
        store.let_go(early)
    assert await store.submit(whole("b"), alone=True) == "b"
    assert recorded(store) == both("b")
    assert verified(house, store) == 2


@pytest.mark.parametrize("execute", [True, False])
async def test_a_rest_that_fails_takes_the_first_part_with_it(house, execute):
    store = house.open(schema=(TABLE,))

    def first(transaction):
        if execute:
            first_part("a")(transaction)
        else:
            transaction.append(entry("a begins"))
        return "a"

    def broken(transaction):
        transaction.append(entry("a ends"))
        raise KeyError("no")

    early = store.head_start(first)
    with pytest.raises(KeyError):
        await store.submit(broken, alone=True, head_start=early)
    assert recorded(store) == []
    await store.submit(whole("b"), alone=True)
    assert recorded(store) == both("b")
    assert verified(house, store) == 2


async def test_a_secret_that_was_learned_meanwhile_is_in_neither_part(house):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("swordfish-and-more"))
    house.redactor.register(Secret("swordfish-and-more"))
    await store.submit(whole("swordfish-and-more", seen), alone=True, head_start=early)
    assert seen == [None]
    assert not any(b"swordfish" in event.payload for event in store.events_since(0, 10))
    assert verified(house, store) == 2


async def test_none_is_made_while_another_process_writes_or_space_is_short(house):
    store = house.open(schema=(TABLE,))
    other = sqlite3.connect(house.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert store.head_start(first_part("a")) is None
    other.execute("ROLLBACK")
    other.close()
    (house.folder / "palyra.ballast").unlink()
    house.clock.seconds += 0.1
    assert store.head_start(first_part("a")) is None
    store.close()
    assert store.head_start(first_part("a")) is None, "nor when it is closed"


async def test_for_a_while_after_another_process_wrote_there_is_none(house):
    store, other = house.open(schema=(TABLE,)), house.open()
    early = store.head_start(first_part("a"))
    await store.submit(whole("a"), alone=True, head_start=early)
    await other.submit(whole("b"))
    # Only now it is seen; this one is let through.
    early = store.head_start(first_part("c"))
    await store.submit(whole("c"), alone=True, head_start=early)
    assert store.head_start(first_part("d")) is None
    house.clock.seconds += 0.9
    assert store.head_start(first_part("d")) is None
    house.clock.seconds += 0.2
    early = store.head_start(first_part("d"))
    assert early is not None
    await store.submit(whole("d"), alone=True, head_start=early)
    assert recorded(store) == both("a", "b", "c", "d")
    other.close()
    assert verified(house, store) == 8


async def test_one_that_could_not_be_taken_back_is_before_the_next_transaction(house, monkeypatch):
    store = house.open(schema=(TABLE,))
    early = store.head_start(first_part("a"))
    failing = Failing(store._writer._connection, "ROLLBACK")
    monkeypatch.setattr(store._writer, "_connection", failing)
    store.let_go(early)
    assert failing.failed and failing.in_transaction
    await store.submit(whole("b"))
    assert recorded(store) == both("b")
    assert verified(house, store) == 2


async def test_another_process_that_wants_to_write_waits_for_no_longer_than_it_stands(house):
    store, other = house.open(schema=(TABLE,)), house.open()
    early = store.head_start(first_part("a"))
    waiting = other.submit(whole("b"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await store.submit(whole("a"), alone=True, head_start=early)
    assert await waiting == "b"
    assert recorded(store) == both("a", "b")
    other.close()
    assert verified(house, store) == 4


async def test_a_disk_that_is_full_in_the_end_has_nothing_of_it(house, monkeypatch):
    store = house.open(schema=(TABLE,))
    early = store.head_start(first_part("a"))
    attempt = store._writer._attempt

    def full(units, **how):
        raise DiskFull("full")

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "_attempt", full)
        with pytest.raises(PalyraError) as caught:
            await store.submit(whole("a"), alone=True, head_start=early)
        assert caught.value.code == "journal.disk_full"
    assert store._writer._attempt == attempt and recorded(store) == []
    await store.submit(whole("b"), alone=True)
    assert recorded(store) == both("b")
    assert verified(house, store) == 2


async def test_a_commit_that_fails_is_tried_again_as_a_whole(house, monkeypatch):
    store, seen = house.open(schema=(TABLE,)), []
    early = store.head_start(first_part("a"))
    monkeypatch.setattr(store._writer, "_connection", Failing(store._writer._connection, "COMMIT"))
    assert await store.submit(whole("a", seen), alone=True, head_start=early) == "a"
    assert seen == ["a", None] and recorded(store) == both("a")
    assert verified(house, store) == 2


async def test_closing_takes_it_back(house):
    store = house.open(schema=(TABLE,))
    assert store.head_start(first_part("a")) is not None
    assert verified(house, store) == 0


async def test_sealing_takes_it_back(house):
    store = house.open(schema=(TABLE,))
    await store.submit(whole("a"), alone=True)
    early = store.head_start(first_part("b"))
    sealed = await asyncio.to_thread(store.seal)
    assert sealed.last_seq == 2 and recorded(store) == both("a")
    await at_rest(store)
    await store.submit(whole("b"), alone=True, head_start=early)
    assert recorded(store) == both("a", "b")
    assert verified(house, store) == 4


async def test_it_may_not_wait_for_other_work(house):
    store, told = house.open(schema=(TABLE,)), []

    def first(transaction):
        try:
            store.transact_blocking(appending())
        except RuntimeError as error:
            told.append(str(error))
            raise

    assert store.head_start(first) is None
    assert told == ["a unit of work cannot wait for another one"]
    store.close()


STEPS = st.lists(
    st.sampled_from(("start", "finish", "finish there", "other", "other there", "other process", "let go", "secret")),
    max_size=14,
)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_whatever_happens_in_between_each_unit_is_recorded_once_and_whole(steps, tmp_path_factory):
    house = JournalHouse(tmp_path_factory.mktemp("journal"))

    async def take(store, other):
        early, names, wanted = None, iter(range(1_000)), []

        async def finish(*, alone, head_start=None, by=store):
            name = f"unit {next(names)}" if head_start is None else head_start[0]
            wanted.append(name)
            given = None if head_start is None else head_start[1]
            await by.submit(whole(name), alone=alone, **({} if given is None else {"head_start": given}))

        for step in steps:
            await at_rest(store)
            if step == "start" and early is None:
                name = f"unit {next(names)}"
                early = (name, store.head_start(first_part(name)))
            elif step in ("finish", "finish there") and early is not None:
                await finish(alone=step == "finish", head_start=early)
                early = None
            elif step in ("other", "other there"):
                await finish(alone=step == "other")
            elif step == "other process":
                if early is not None and early[1] is not None:
                    store.let_go(early[1])
                await finish(alone=False, by=other)
            elif step == "let go" and early is not None:
                if early[1] is not None:
                    store.let_go(early[1])
                early = None
            elif step == "secret":
                house.redactor.register(Secret(f"not in any of it {next(names)}"))
        return wanted

    store, other = house.open(schema=(TABLE,)), house.open()
    assert threading.current_thread() is threading.main_thread()
    wanted = asyncio.run(take(store, other))
    other.close()
    events = verified(house, store)
    assert events == 2 * len(wanted)
    with closing(sqlite3.connect(house.database)) as connection, connection:
        assert [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY rowid")] == both(*wanted)
