"""The leases of one worker, from offer to settlement. One table holds every transition.

Pure: events go in, and commands come out in the order in which the agent carries them out. The end of a lease is
reported until the daemon has answered, over any number of connections. A lease that was declined or disclaimed is never
begun later: the daemon may have given its call to another worker.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.lease import Disclaimed, LeaseNote, LeaseOffer, NoSlot, OwedLease, WindingDown, require_sound

T = TypeVar("T")


class LeaseStage(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    REPORTED = "reported"
    SETTLED = "settled"


class LeaseStageEvent(StrEnum):
    STOP = "stop"
    END = "end"
    REPORT = "report"
    DISCONNECT = "disconnect"
    RESTATE = "restate"
    SETTLE = "settle"
    DROP = "drop"


_S, _E = LeaseStage, LeaseStageEvent
TRANSITIONS: Final[dict[tuple[LeaseStage, LeaseStageEvent], LeaseStage]] = {
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.RUNNING, _E.END): _S.ENDED,
    (_S.RUNNING, _E.DISCONNECT): _S.RUNNING,
    # It could not be noted, so it is not begun.
    (_S.RUNNING, _E.DROP): _S.SETTLED,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
    (_S.STOPPING, _E.END): _S.ENDED,
    (_S.STOPPING, _E.DISCONNECT): _S.STOPPING,
    (_S.STOPPING, _E.DROP): _S.SETTLED,
    (_S.ENDED, _E.STOP): _S.ENDED,
    (_S.ENDED, _E.REPORT): _S.REPORTED,
    (_S.ENDED, _E.DISCONNECT): _S.ENDED,
    # The answer to a report on the connection before may still arrive.
    (_S.ENDED, _E.SETTLE): _S.SETTLED,
    (_S.REPORTED, _E.STOP): _S.REPORTED,
    (_S.REPORTED, _E.DISCONNECT): _S.ENDED,
    (_S.REPORTED, _E.RESTATE): _S.ENDED,
    (_S.REPORTED, _E.SETTLE): _S.SETTLED,
}
# After these answers the worker reports nothing more about the lease.
FINAL_ANSWERS: Final = frozenset(
    (
        "",
        "lease.duplicate_result",
        "lease.fenced",
        "lease.late",
        "lease.ended",
        "lease.unknown",
        "lease.wrong_worker",
        "lease.stale_fence",
        "lease.settlement_mismatch",
    )
)
# These answers are about the connection and not about the report.
AGAIN_ANSWERS: Final = frozenset(("worker.not_attested", "worker.stale_session"))


class Accept(msgspec.Struct, frozen=True):
    """Note the lease on disk, then run it."""

    offer: LeaseOffer


class Decline(msgspec.Struct, frozen=True):
    lease_id: str
    fence: int
    refusal: PalyraError


class Stop(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str


class Report(msgspec.Struct, frozen=True):
    """Sign the end of the lease and send it."""

    lease_id: str


class Restate(msgspec.Struct, frozen=True):
    """Replace the result, which the daemon cannot take, by a failure with this code."""

    lease_id: str
    code: str
    message: str


class Disclaim(msgspec.Struct, frozen=True):
    """Look for traces of the lease, then sign and send that it was never begun here."""

    owed: OwedLease


class Forget(msgspec.Struct, frozen=True):
    lease_id: str


Command = Accept | Decline | Stop | Report | Restate | Disclaim | Forget


class NoSuchTransition(AssertionError):
    """A fault of this program: no message from outside causes it."""


class LeaseMachine:
    """``attested``: on the present connection the daemon takes settlements."""

    def __init__(
        self,
        slots: int,
        notes: Iterable[LeaseNote] = (),
        *,
        require: Callable[[LeaseOffer], None] = lambda _offer: None,
    ) -> None:
        """Begin with the ended leases of an earlier life. ``require`` raises for a call that this machine refuses."""
        notes = tuple(notes)
        self._require = require
        self._slots = min(slots, limits.MAX_OPEN_LEASES)
        self._stages = {note.lease_id: LeaseStage.ENDED for note in notes}
        self._restated = {note.lease_id for note in notes if note.restated}
        # Leases that the last hello named.
        self._named: set[str] = set()
        self._settled: dict[str, None] = {}
        # Leases that were not begun, and the reason.
        self._refused: dict[str, PalyraError] = {}
        self._winding_down = False
        self.attested = False

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._stages)

    def name_open(self) -> tuple[str, ...]:
        """Return the open leases for a hello. They are not declined any more: the daemon now waits for their ends."""
        self._named = set(self._stages)
        return self.open_ids

    def may_decline(self, lease_id: str) -> bool:
        """Tell whether no hello has named the lease."""
        return lease_id not in self._named

    @property
    def stages(self) -> Mapping[str, LeaseStage]:
        return self._stages

    @property
    def running(self) -> int:
        return sum(stage in (LeaseStage.RUNNING, LeaseStage.STOPPING) for stage in self._stages.values())

    @property
    def slots(self) -> int:
        """The most leases that this worker takes now."""
        return 0 if self._winding_down else self._slots

    def on_offer(self, offer: LeaseOffer) -> list[Command]:
        if offer.lease_id in self._stages or offer.lease_id in self._settled:
            # The offer came twice.
            return []
        if (earlier := self._refused.get(offer.lease_id)) is not None:
            return [Decline(offer.lease_id, offer.fence, earlier)]
        try:
            require_sound(offer)
            self._require(offer)
            if self._winding_down:
                raise WindingDown("the worker is winding down")
            if len(self._stages) >= self._slots:
                raise NoSlot(f"{len(self._stages)} of {self._slots} slots are taken")
        except PalyraError as refusal:
            _remember(self._refused, offer.lease_id, refusal)
            return [Decline(offer.lease_id, offer.fence, refusal)]
        self._stages[offer.lease_id] = LeaseStage.RUNNING
        return [Accept(offer)]

    def stop(self, lease_id: str, reason: str) -> list[Command]:
        """Stop a lease that was cancelled or voided. Ignore an unknown one."""
        before = self._stages.get(lease_id)
        if before is None:
            return []
        self._step(lease_id, LeaseStageEvent.STOP)
        return [Stop(lease_id, reason)] if before is LeaseStage.RUNNING else []

    def on_end(self, lease_id: str) -> list[Command]:
        """Take the end of a lease, which is noted on disk."""
        self._step(lease_id, LeaseStageEvent.END)
        return self._report_due()

    def drop(self, lease_id: str, refusal: PalyraError) -> None:
        """Remove an accepted lease that could not be begun and that no hello has named."""
        self._step(lease_id, LeaseStageEvent.DROP)
        del self._stages[lease_id]
        _remember(self._refused, lease_id, refusal)

    def on_owed(self, owed: OwedLease) -> list[Command]:
        """Disclaim a lease that was not begun here. The end of any other is reported anyway."""
        if owed.lease_id in self._stages or owed.lease_id in self._settled:
            return []
        if owed.lease_id not in self._refused:
            _remember(self._refused, owed.lease_id, Disclaimed("the worker has said that it never began this lease"))
        return [Disclaim(owed)]

    def on_attested(self) -> list[Command]:
        self.attested = True
        return self._report_due()

    def on_disconnect(self) -> None:
        self.attested = False
        for lease_id in self._stages:
            self._step(lease_id, LeaseStageEvent.DISCONNECT)

    def on_answer(self, lease_id: str, code: str, message: str = "") -> list[Command]:
        stage = self._stages.get(lease_id)
        if stage not in (LeaseStage.ENDED, LeaseStage.REPORTED):
            return []
        if code in AGAIN_ANSWERS:
            # The next attestation reports it again.
            self._step(lease_id, LeaseStageEvent.DISCONNECT)
            return []
        if code in FINAL_ANSWERS or lease_id in self._restated:
            self._step(lease_id, LeaseStageEvent.SETTLE)
            del self._stages[lease_id]
            self._restated.discard(lease_id)
            self._named.discard(lease_id)
            _remember(self._settled, lease_id, None)
            return [Forget(lease_id)]
        if stage is LeaseStage.ENDED:
            return []
        self._step(lease_id, LeaseStageEvent.RESTATE)
        self._restated.add(lease_id)
        return [Restate(lease_id, code, message), *self._report_due()]

    def wind_down(self) -> None:
        self._winding_down = True

    def stop_all(self, reason: str) -> list[Command]:
        return [command for lease_id in tuple(self._stages) for command in self.stop(lease_id, reason)]

    def _report_due(self) -> list[Command]:
        if not self.attested:
            return []
        due = [lease_id for lease_id, stage in self._stages.items() if stage is LeaseStage.ENDED]
        for lease_id in due:
            self._step(lease_id, LeaseStageEvent.REPORT)
        return [Report(lease_id) for lease_id in due]

    def _step(self, lease_id: str, event: LeaseStageEvent) -> None:
        before = self._stages[lease_id]
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise NoSuchTransition(f"a lease that is {before.value} cannot {event.value}")
        self._stages[lease_id] = after


def _remember(among: dict[str, T], lease_id: str, value: T) -> None:
    among[lease_id] = value
    while len(among) > limits.MAX_REMEMBERED:
        del among[next(iter(among))]
