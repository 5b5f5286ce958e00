"""The leases of one worker: taken or declined, stopped, ended, told, answered. One table holds every transition.

It is told what happened and answers with commands in the order in which they are to be carried out. It knows no
network, no disk and no clock. A lease is told of until the daemon has answered, over any number of connections. One
that was not begun is never begun later: the daemon may have given it to another since.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.lease import Disclaimed, LeaseNote, LeaseOffer, NoSlot, WindingDown, require_sound
from palyra.fleet.agent.messages import Owed

T = TypeVar("T")


class LeaseStage(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    TOLD = "told"
    SETTLED = "settled"


class LeaseStageEvent(StrEnum):
    STOP = "stop"
    END = "end"
    TELL = "tell"
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
    (_S.ENDED, _E.TELL): _S.TOLD,
    (_S.ENDED, _E.DISCONNECT): _S.ENDED,
    # An answer to what was told on the connection before may still come in.
    (_S.ENDED, _E.SETTLE): _S.SETTLED,
    (_S.TOLD, _E.STOP): _S.TOLD,
    (_S.TOLD, _E.DISCONNECT): _S.ENDED,
    (_S.TOLD, _E.RESTATE): _S.ENDED,
    (_S.TOLD, _E.SETTLE): _S.SETTLED,
}
# Answers after which the same, or anything else, need not be said again.
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
# Answers that are about the connection and not about what was said.
AGAIN_ANSWERS: Final = frozenset(("worker.not_attested", "worker.stale_session"))


class Accept(msgspec.Struct, frozen=True):
    """To be noted on disk, then told to the daemon, then begun."""

    offer: LeaseOffer


class Decline(msgspec.Struct, frozen=True):
    lease_id: str
    fence: int
    refusal: PalyraError


class Stop(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str


class Tell(msgspec.Struct, frozen=True):
    """Sign and send how it ended."""

    lease_id: str


class Restate(msgspec.Struct, frozen=True):
    """The daemon cannot take the result: note it as a failure of this code, then tell it."""

    lease_id: str
    code: str
    message: str


class Disclaim(msgspec.Struct, frozen=True):
    """Look for traces of it, then sign and send that it was never begun here."""

    owed: Owed


class Forget(msgspec.Struct, frozen=True):
    lease_id: str


Command = Accept | Decline | Stop | Tell | Restate | Disclaim | Forget


class NoSuchTransition(AssertionError):
    """A fault of this program: no message from outside leads here."""


class LeaseMachine:
    """``attested``: the present connection is one on which the daemon listens to settlements."""

    def __init__(
        self,
        slots: int,
        notes: Iterable[LeaseNote] = (),
        *,
        require: Callable[[LeaseOffer], None] = lambda _offer: None,
    ) -> None:
        """``notes`` are of leases that have ended: those of an earlier life were ended before the book was opened.
        ``require`` raises for a call that this machine does not run."""
        notes = tuple(notes)
        self._require = require
        self._slots = min(slots, limits.MAX_OPEN_LEASES)
        self._stages = {note.lease_id: LeaseStage.ENDED for note in notes}
        self._restated = {note.lease_id for note in notes if note.restated}
        # Leases that the daemon was told are here.
        self._named: set[str] = set()
        self._settled: dict[str, None] = {}
        # Leases that were not begun, and why.
        self._refused: dict[str, PalyraError] = {}
        self._winding_down = False
        self.attested = False

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._stages)

    def name_open(self) -> tuple[str, ...]:
        """For a hello. What was named is not declined any more: the daemon counts on hearing how it ended."""
        self._named = set(self._stages)
        return self.open_ids

    def may_decline(self, lease_id: str) -> bool:
        """Whether the daemon does not know yet that the lease came here."""
        return lease_id not in self._named

    @property
    def stages(self) -> Mapping[str, LeaseStage]:
        return self._stages

    @property
    def running(self) -> int:
        return sum(stage in (LeaseStage.RUNNING, LeaseStage.STOPPING) for stage in self._stages.values())

    @property
    def slots(self) -> int:
        """How many leases are wanted at most at this moment."""
        return 0 if self._winding_down else self._slots

    def offered(self, offer: LeaseOffer) -> list[Command]:
        if offer.lease_id in self._stages or offer.lease_id in self._settled:
            # It came twice. What is to be said of it will be said, or has been.
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
        """Cancelled, void, or the worker ends. A lease that is not known is no matter."""
        before = self._stages.get(lease_id)
        if before is None:
            return []
        self._step(lease_id, LeaseStageEvent.STOP)
        return [Stop(lease_id, reason)] if before is LeaseStage.RUNNING else []

    def ended(self, lease_id: str) -> list[Command]:
        """Its end is noted on disk."""
        self._step(lease_id, LeaseStageEvent.END)
        return self._told() if self.attested else []

    def dropped(self, lease_id: str, refusal: PalyraError) -> None:
        """It was taken, could not be begun and was not named to the daemon: it is declined after all."""
        self._step(lease_id, LeaseStageEvent.DROP)
        del self._stages[lease_id]
        _remember(self._refused, lease_id, refusal)

    def owed(self, owed: Owed) -> list[Command]:
        """Of what was begun here the end is told, or has been. Nothing else is said of it."""
        if owed.lease_id in self._stages or owed.lease_id in self._settled:
            return []
        if owed.lease_id not in self._refused:
            _remember(self._refused, owed.lease_id, Disclaimed("the worker has said that it never began this lease"))
        return [Disclaim(owed)]

    def accepted_attestation(self) -> list[Command]:
        self.attested = True
        return self._told()

    def disconnected(self) -> None:
        self.attested = False
        for lease_id in self._stages:
            self._step(lease_id, LeaseStageEvent.DISCONNECT)

    def answered(self, lease_id: str, code: str, message: str = "") -> list[Command]:
        stage = self._stages.get(lease_id)
        if stage not in (LeaseStage.ENDED, LeaseStage.TOLD):
            return []
        if code in AGAIN_ANSWERS:
            # With the next attestation.
            self._step(lease_id, LeaseStageEvent.DISCONNECT)
            return []
        if code in FINAL_ANSWERS or lease_id in self._restated:
            self._step(lease_id, LeaseStageEvent.SETTLE)
            self._forget(lease_id)
            return [Forget(lease_id)]
        if stage is LeaseStage.ENDED:
            return []
        self._step(lease_id, LeaseStageEvent.RESTATE)
        self._restated.add(lease_id)
        return [Restate(lease_id, code, message), *self._told()]

    def wind_down(self) -> None:
        """No further lease is taken."""
        self._winding_down = True

    def stop_all(self, reason: str) -> list[Command]:
        return [command for lease_id in tuple(self._stages) for command in self.stop(lease_id, reason)]

    def _told(self) -> list[Command]:
        if not self.attested:
            return []
        due = [lease_id for lease_id, stage in self._stages.items() if stage is LeaseStage.ENDED]
        for lease_id in due:
            self._step(lease_id, LeaseStageEvent.TELL)
        return [Tell(lease_id) for lease_id in due]

    def _forget(self, lease_id: str) -> None:
        del self._stages[lease_id]
        self._restated.discard(lease_id)
        self._named.discard(lease_id)
        _remember(self._settled, lease_id, None)

    def _step(self, lease_id: str, happening: LeaseStageEvent) -> None:
        before = self._stages[lease_id]
        after = TRANSITIONS.get((before, happening))
        if after is None:
            raise NoSuchTransition(f"a lease that is {before.value} cannot {happening.value}")
        self._stages[lease_id] = after


def _remember(among: dict[str, T], lease_id: str, what: T) -> None:
    among[lease_id] = what
    while len(among) > limits.MAX_REMEMBERED:
        del among[next(iter(among))]
