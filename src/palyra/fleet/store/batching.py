"""Decides the commands of many callers together: while one transaction is written, the next batch fills.

A single command is decided at once, without a timer, and a thousand cost a few transactions. Heartbeats wait a moment
for others, because no caller waits for them: a thousand idle workers cost a few transactions a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import msgspec

from palyra.errors import PalyraError
from palyra.fleet.domain.commands import FleetCommand, FleetDecision
from palyra.fleet.limits import MAX_DECIDED_TOGETHER
from palyra.fleet.store.port import Beat, BeatAnswer, FleetLedger

log = logging.getLogger("palyra.workers")

Decided = Callable[[FleetCommand, FleetDecision], None]
_Waiting = tuple[FleetCommand, "asyncio.Future[FleetDecision]"]


@dataclass(eq=False)
class CommandBatcher:
    """``on_decided`` gets each decision, in order, before the caller that submitted the command."""

    ledger: FleetLedger
    on_decided: Decided
    on_beats: Callable[[BeatAnswer], None]
    _: KW_ONLY
    # Heartbeats wait this long for others.
    beats_gather_seconds: float

    def __post_init__(self) -> None:
        self._beats_timer: asyncio.TimerHandle | None = None
        self._beats_due = False
        self._waiting: list[_Waiting] = []
        self._beats: dict[str, Beat] = {}
        self._task: asyncio.Task[None] | None = None

    async def decide(self, command: FleetCommand) -> FleetDecision:
        """Return the decision once it is on disk. A refusal is in it and not raised."""
        return await self.submit(command)

    def submit(self, command: FleetCommand) -> "asyncio.Future[FleetDecision]":
        """Submit a command. Commands are decided in the order of their submission."""
        future: asyncio.Future[FleetDecision] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        self._wake()
        return future

    def beat(self, beat: Beat) -> None:
        self._beats[beat.worker_id] = beat
        if self._beats_timer is None:
            self._beats_timer = asyncio.get_running_loop().call_later(self.beats_gather_seconds, self._wake_for_beats)

    def reset_workspace_count(self, worker_id: str) -> None:
        """Set the count of a waiting heartbeat to 0: the worker may hold fewer leases when it is checked."""
        beat = self._beats.get(worker_id)
        if beat is not None and beat.workspaces:
            self._beats[worker_id] = msgspec.structs.replace(beat, workspaces=0)

    def _wake_for_beats(self) -> None:
        self._beats_timer = None
        self._beats_due = True
        self._wake()

    async def note_beats(self) -> None:
        """Write the waiting heartbeats, before the reaper looks for silent workers."""
        beats, self._beats, self._beats_due = tuple(self._beats.values()), {}, False
        if self._beats_timer is not None:
            self._beats_timer.cancel()
            self._beats_timer = None
        if not beats:
            return
        try:
            self.on_beats(await self.ledger.beat(beats))
        except Exception:
            # Heartbeats come again. The reaper gives a worker up whose heartbeats stay unrecorded.
            log.exception("heartbeats could not be recorded")

    async def settle(self) -> None:
        """Wait until no command and no heartbeat is left."""
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
                # A full disk refuses new work, and running work must be able to end. The two are written in parallel.
                ends = [one for one in taken if not one[0].begins_work]
                begins = [one for one in taken if one[0].begins_work]
                await asyncio.gather(*(self._decide(part) for part in (ends, begins) if part))
        finally:
            self._task = None
            if self._waiting or self._beats_due:
                self._wake()

    async def _decide(self, part: Sequence[_Waiting]) -> None:
        try:
            decisions = await self.ledger.decide_all([command for command, _ in part])
        except Exception as error:
            await self._decide_singly(part, error)
            return
        for (command, future), decision in zip(part, decisions, strict=True):
            self._deliver(command, future, decision)

    async def _decide_singly(self, part: Sequence[_Waiting], error: Exception) -> None:
        """Decide each command alone, after one of them broke the transaction of all."""
        if len(part) == 1:
            if not isinstance(error, PalyraError):
                log.error("%s could not be decided", type(part[0][0]).__name__, exc_info=error)
            if not part[0][1].done():
                part[0][1].set_exception(error)
            return
        for one in part:
            await self._decide([one])

    def _deliver(self, command: FleetCommand, future: "asyncio.Future[FleetDecision]", decision: FleetDecision) -> None:
        try:
            self.on_decided(command, decision)
        except Exception:
            log.exception("the decision on %s could not be carried out", type(command).__name__)
        if not future.done():
            future.set_result(decision)
