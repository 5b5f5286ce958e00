"""Commands decided together: in order, each delivered before its caller, and none harmed by another's failure."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.eventually import eventually
from palyra.errors import PalyraError, Unavailable
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.limits import MAX_DECIDED_TOGETHER
from palyra.fleet.store.batching import CommandBatcher
from palyra.fleet.store.port import Beat, BeatAnswer


class Broken(Unavailable):
    code = "test.batch_broken"


class Ledger:
    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.beats: list[Beat] = []
        self.go = asyncio.Event()
        self.go.set()
        self.broken = ""

    async def decide_all(self, taken: Sequence[commands.FleetCommand]) -> list[FleetDecision]:
        await self.go.wait()
        names = [one.worker_id for one in taken]
        if self.broken in names:
            raise Broken("this one breaks the transaction")
        self.batches.append(names)
        return [FleetDecision() for _ in taken]

    async def beat(self, beats: Sequence[Beat]) -> BeatAnswer:
        self.beats += beats
        return BeatAnswer(stale=tuple(beats))


class Harness:
    def __init__(self, gather_seconds: float = 3_600) -> None:
        self.ledger = Ledger()
        self.delivered: list[str] = []
        self.answers: list[BeatAnswer] = []
        ledger: Any = self.ledger
        self.batcher = CommandBatcher(
            ledger,
            lambda command, _decision: self.delivered.append(command.worker_id),
            self.answers.append,
            beats_gather_seconds=gather_seconds,
        )

    def submit(self, name: str, *, begins: bool = False) -> "asyncio.Future[FleetDecision]":
        if begins:
            return self.batcher.submit(
                commands.OpenSession(actor="a", worker_id=name, name=name, daemon="d", boot_id="b", slots=1, nonce="n")
            )
        return self.batcher.submit(commands.DeclareLost(actor="a", worker_id=name))


async def test_one_command_is_decided_at_once_and_told_first() -> None:
    harness = Harness()
    await harness.submit("a")
    assert harness.ledger.batches == [["a"]] and harness.delivered == ["a"]
    await harness.batcher.settle()


async def test_what_comes_while_a_transaction_runs_goes_together() -> None:
    harness = Harness()
    harness.ledger.go.clear()
    first = harness.submit("first")
    await asyncio.sleep(0)
    rest = [harness.submit(str(number)) for number in range(MAX_DECIDED_TOGETHER + 1)]
    harness.ledger.go.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in harness.ledger.batches][-1] <= MAX_DECIDED_TOGETHER
    assert len(harness.ledger.batches) <= 3 and len(harness.delivered) == MAX_DECIDED_TOGETHER + 2


async def test_new_work_is_decided_apart_so_that_a_full_disk_ends_nothing() -> None:
    harness = Harness()
    harness.ledger.go.clear()
    futures = [harness.submit("new", begins=True), harness.submit("old"), harness.submit("newer", begins=True)]
    harness.ledger.go.set()
    await asyncio.gather(*futures)
    assert harness.ledger.batches == [["old"], ["new", "newer"]]


async def test_one_that_breaks_the_transaction_fails_alone() -> None:
    harness = Harness()
    harness.ledger.broken = "bad"
    futures = [harness.submit(name) for name in ("a", "bad", "b")]
    done = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(done[1], Broken) and harness.delivered == ["a", "b"]
    with pytest.raises(PalyraError):
        await harness.submit("bad")


async def test_heartbeats_wait_for_each_other_and_commands_for_none_of_them() -> None:
    harness = Harness()
    harness.batcher.beat(Beat(worker_id="v", session=1))
    await harness.submit("a")
    harness.batcher.beat(Beat(worker_id="w", session=1))
    assert harness.ledger.beats == []
    await harness.batcher.note_beats()
    assert len(harness.ledger.beats) == 2 and len(harness.answers) == 1
    # Those that come later gather anew, and are noted by themselves.
    harness = Harness(gather_seconds=0.001)
    for number in range(3):
        harness.batcher.beat(Beat(worker_id=f"w{number}", session=1))
        await eventually(lambda number=number: len(harness.ledger.beats) > number)
    await harness.batcher.settle()
    assert len(harness.answers) == 3


async def test_heartbeats_gather_and_a_later_one_replaces_an_earlier() -> None:
    harness = Harness()
    harness.batcher.beat(Beat(worker_id="w", session=1))
    harness.batcher.beat(Beat(worker_id="w", session=1, workspaces=2))
    await harness.batcher.settle()
    assert [beat.workspaces for beat in harness.ledger.beats] == [2] and len(harness.answers) == 1


async def test_who_stopped_waiting_harms_nobody() -> None:
    harness = Harness()
    harness.ledger.go.clear()
    gone, stays = harness.submit("a"), harness.submit("b")
    gone.cancel()
    harness.ledger.go.set()
    await stays
    assert harness.delivered == ["a", "b"]
