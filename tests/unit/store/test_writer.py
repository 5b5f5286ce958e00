import asyncio
import threading

import pytest

from fakes.journal_harness import JournalHarness, appending
from palyra.clock import SystemClock
from palyra.errors import PalyraError
from palyra.journal.verify import newest_checkpoint
from palyra.store.event import NewEvent
from palyra.store.port import DiskFull
from palyra.store.sqlite import writer
from palyra.store.sqlite import writer as writer_module


@pytest.fixture
def harness(tmp_path):
    return JournalHarness(tmp_path)


async def held_up(store, gate):
    """A unit that keeps the writer's thread until the gate is open; returns when it is at work, and alone."""
    loop, entered = asyncio.get_running_loop(), asyncio.Event()

    def hold(_transaction):
        loop.call_soon_threadsafe(entered.set)
        return gate.wait(30)

    holding = asyncio.create_task(store.transact(hold))
    await entered.wait()
    return holding


async def test_callers_that_wait_together_share_a_commit(harness):
    store = harness.open()
    gate = threading.Event()
    first = await held_up(store, gate)
    rest = [asyncio.create_task(store.transact(lambda transaction: transaction.now_ms)) for _ in range(100)]
    await asyncio.sleep(0)
    gate.set()
    assert await first
    instants = await asyncio.gather(*rest)
    assert len(set(instants)) == 1, "one group has one instant"
    store.close()


async def test_a_group_is_bounded(harness, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BATCH_UNITS", 10)
    store = harness.open()
    gate = threading.Event()
    first = await held_up(store, gate)
    rest = [asyncio.create_task(store.transact(lambda transaction: transaction.now_ms)) for _ in range(35)]
    await asyncio.sleep(0)
    gate.set()
    await first
    assert len(set(await asyncio.gather(*rest))) >= 4
    store.close()


async def test_more_than_the_bound_may_not_wait(harness, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_WAITING_UNITS", 5)
    store = harness.open()
    gate = threading.Event()
    tasks = [await held_up(store, gate)]
    tasks += [asyncio.create_task(store.transact(appending())) for _ in range(6)]
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result.code for result in results if isinstance(result, PalyraError)] == ["journal.overloaded"]
    store.close()


@pytest.mark.promise("P-limits")
@pytest.mark.timeout(60)
def test_events_are_sealed_some_time_after_the_first_without_another_one(harness):
    store = harness.open(clock=SystemClock(), checkpoint_seconds=0.05)
    store.transact_blocking(appending(3))
    wait = threading.Event()
    # Nothing is unsealed then, so the thread waits without a timeout.
    while newest_checkpoint(store.reader) is None or store._writer._log.wait_seconds() is not None:
        wait.wait(0.01)
    assert newest_checkpoint(store.reader).last_seq == 3
    store.close()


@pytest.mark.timeout(60)
def test_what_a_crash_left_unsealed_is_sealed_by_the_next_process(harness):
    store = harness.open()
    store.transact_blocking(appending(3))
    # A second process while the first is still there: the same as after a crash, as far as it can see.
    other = harness.open(clock=SystemClock(), checkpoint_seconds=0.01)
    wait = threading.Event()
    while newest_checkpoint(other.reader) is None:
        wait.wait(0.01)
    other.close()
    store.close()
    assert harness.verify().checkpoints == 1


def test_a_due_checkpoint_comes_with_the_next_unit_under_steady_load(harness):
    store = harness.open(checkpoint_seconds=60)
    store.transact_blocking(appending())
    harness.clock.seconds += 61
    store.transact_blocking(appending())
    assert newest_checkpoint(store.reader).last_seq == 2
    store.close()


async def test_a_fault_of_the_store_fails_the_group_and_passes(harness, monkeypatch):
    store = harness.open()
    attempt = store._writer._attempt

    def full(units, *, seal):
        raise DiskFull("full")

    monkeypatch.setattr(store._writer, "_attempt", full)
    results = await asyncio.gather(*(store.transact(appending()) for _ in range(5)), return_exceptions=True)
    assert {result.code for result in results} == {"journal.disk_full"}
    assert len({id(result) for result in results}) == 5
    assert store.degraded == "the disk is full"
    monkeypatch.setattr(store._writer, "_attempt", attempt)
    assert await store.transact(appending()) == 1
    assert store.degraded is None
    store.close()


async def test_a_bug_in_the_writer_reaches_its_callers_and_not_the_thread(harness, monkeypatch):
    store = harness.open()
    monkeypatch.setattr(writer_module, "Group", lambda *parts: 1 // 0)
    with pytest.raises(PalyraError) as caught:
        await store.transact(appending())
    assert caught.value.code == "internal.bug"
    monkeypatch.undo()
    assert await store.transact(appending()) == 1
    store.close()


@pytest.mark.promise("P-recorded")
async def test_only_the_essential_is_tried_again_with_the_reserve_released(harness, monkeypatch):
    store = harness.open()
    attempt, tried = store._writer._attempt, []

    def full_once(units, *, seal):
        tried.append(len(units))
        if len(tried) == 1:
            raise DiskFull("full")
        return attempt(units, seal=seal)

    gate, entered, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    def hold(_transaction):
        loop.call_soon_threadsafe(entered.set)
        gate.wait(30)

    first = asyncio.create_task(store.transact(hold))
    await entered.wait()
    tasks = [asyncio.create_task(store.transact(appending(n=n), essential=n % 2 == 0)) for n in range(6)]
    await asyncio.sleep(0)
    monkeypatch.setattr(store._writer, "_attempt", full_once)
    gate.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(result, "code", "recorded") for result in results] == ["recorded", "journal.disk_full"] * 3
    assert tried == [6, 3]
    assert not (harness.folder / "palyra.ballast").exists()
    with pytest.raises(DiskFull):
        await store.transact(appending())
    harness.clock.seconds += 1
    assert await store.transact(appending()) == 4
    assert (harness.folder / "palyra.ballast").exists()
    store.close()


def test_a_swallowed_disk_error_is_still_a_failure(harness, monkeypatch):
    store = harness.open()

    def work(transaction):
        transaction.append(NewEvent(kind="a.b", actor="x"))
        transaction.fault = DiskFull("full")
        return "fine"

    with pytest.raises(DiskFull):
        store.transact_blocking(work)
    assert store.head()[0] == 0
    store.close()


def test_a_closed_loop_with_waiting_callers_does_not_stop_the_writer(harness):
    store = harness.open()
    gate = threading.Event()
    loop = asyncio.new_event_loop()

    async def leave():
        task = asyncio.ensure_future(store.transact(lambda transaction: gate.wait(30)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_until_complete(leave())
    loop.close()
    gate.set()
    assert store.transact_blocking(appending()) == 1
    store.close()
