"""Commands of many callers, decided together: while one transaction is on its way to the disk, the next one gathers.

Nobody waits for a timer: a single command is decided at once, and a thousand cost a few transactions. Heartbeats are
the exception. Nobody waits for them at all, so they gather for a moment, and a thousand workers that say nothing else
cost a few transactions a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from palyra.errors import PalyraError
from palyra.fleet.domain.commands import FleetCommand, FleetDecision
from palyra.fleet.limits import MAX_DECIDED_TOGETHER
from palyra.fleet.store.port import Beat, BeatAnswer, FleetLedger

log = logging.getLogger("palyra.workers")

Decided = Callable[[FleetCommand, FleetDecision], None]
_Waiting = tuple[FleetCommand, "asyncio.Future[FleetDecision]"]


class CommandBatcher:
    """``on_decided`` hears of each decision, in order, before whoever asked for it does."""

    def __init__(
        self,
        ledger: FleetLedger,
        on_decided: Decided,
        on_beats: Callable[[BeatAnswer], None],
        *,
        beats_gather_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._gather_seconds = beats_gather_seconds
        self._gathering: asyncio.TimerHandle | None = None
        self._beats_due = False
        self._on_decided = on_decided
        self._on_beats = on_beats
        self._waiting: list[_Waiting] = []
        self._beats: dict[str, Beat] = {}
        self._task: asyncio.Task[None] | None = None

    async def decide(self, command: FleetCommand) -> FleetDecision:
        """The decision, on disk; a refusal is in it and not raised."""
        return await self.submit(command)

    def submit(self, command: FleetCommand) -> "asyncio.Future[FleetDecision]":
        """Commands that one caller submits one after the other are decided in that order."""
        future: asyncio.Future[FleetDecision] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        self._wake()
        return future

    def beat(self, beat: Beat) -> None:
        self._beats[beat.worker_id] = beat
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(self._gather_seconds, self._beats_gathered)

    def reset_workspace_count(self, worker_id: str) -> None:
        """The worker was heard of; how many workspaces it had then is not held against what it holds later."""
        beat = self._beats.get(worker_id)
        if beat is not None and beat.workspaces:
            self._beats[worker_id] = msgspec.structs.replace(beat, workspaces=0)

    def _beats_gathered(self) -> None:
        self._gathering = None
        self._beats_due = True
        self._wake()

    async def note_beats(self) -> None:
        """Those that came in so far: before anybody is given up for silence."""
        beats, self._beats, self._beats_due = tuple(self._beats.values()), {}, False
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if beats:
            await self._note(beats)

    async def settle(self) -> None:
        """Returns when nothing waits any more."""
        await self.note_beats()
        while self._task is not None:
            await asyncio.wait([self._task])

    def _wake(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name="fleet decisions")

    async def _drain(self) -> None:
        try:
            while self._waiting or self._beats_due:
                if self._beats_due:
                    await self.note_beats()
                taken, self._waiting = self._waiting[:MAX_DECIDED_TOGETHER], self._waiting[MAX_DECIDED_TOGETHER:]
                # A full disk refuses new work; what already runs has to be able to end. On their way they are together.
                ends = [one for one in taken if not one[0].begins_work]
                begins = [one for one in taken if one[0].begins_work]
                await asyncio.gather(*(self._decide(part) for part in (ends, begins) if part))
        finally:
            self._task = None
            if self._waiting or self._beats_due:
                self._wake()

    async def _note(self, beats: tuple[Beat, ...]) -> None:
        try:
            self._on_beats(await self._ledger.beat(beats))
        except Exception:
            # Heartbeats come again; a worker whose heartbeats stay unrecorded is given up by the reaper.
            log.exception("heartbeats could not be recorded")

    async def _decide(self, part: Sequence[_Waiting]) -> None:
        try:
            decisions = await self._ledger.decide_all([command for command, _ in part])
        except Exception as error:
            await self._one_by_one(part, error)
            return
        for (command, future), decision in zip(part, decisions, strict=True):
            self._tell(command, future, decision)

    async def _one_by_one(self, part: Sequence[_Waiting], error: Exception) -> None:
        """One of them broke the transaction of all: the others are innocent."""
        if len(part) == 1:
            if not isinstance(error, PalyraError):
                log.error("%s could not be decided", type(part[0][0]).__name__, exc_info=error)
            if not part[0][1].done():
                part[0][1].set_exception(error)
            return
        for one in part:
            await self._decide([one])

    def _tell(self, command: FleetCommand, future: "asyncio.Future[FleetDecision]", decision: FleetDecision) -> None:
        try:
            self._on_decided(command, decision)
        except Exception:
            log.exception("what %s means could not be carried out", type(command).__name__)
        if not future.done():
            future.set_result(decision)
