"""The machine of the requests to this device, from the dispatch until the result is settled.

Values in, commands out. The device writes a note before it begins a request and before it reports a result, and never
does a request twice. So a device that is killed at any moment does no work twice.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from palyra.devicelink.agent.device_folder import HeldCertificate
from palyra.nodes import limits
from palyra.nodes.agent.link_state import LinkMachine, LinkState, step
from palyra.nodes.agent.messages import (
    AskPerson,
    Begin,
    CancelQuestion,
    CloseLink,
    Command,
    DeviceBusy,
    DeviceTimedOut,
    Dispatch,
    End,
    ForgetNote,
    HostInterrupted,
    LossKind,
    NotAllowedHere,
    Note,
    NoteState,
    NotOffered,
    Now,
    Offer,
    Outcome,
    Report,
    Say,
    SendAccepted,
    SendLeaving,
    SendMediation,
    ShowState,
    Stop,
    Welcome,
    WriteNote,
)


class WorkState(StrEnum):
    AWAITING_PERSON = "awaiting_person"
    RUNNING = "running"
    FINISHED = "finished"
    SETTLING = "settling"
    SETTLED = "settled"


class WorkEvent(StrEnum):
    ALLOWED = "allowed"
    DECLINED = "declined"
    ENDED = "ended"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPORTED = "reported"
    UNSENT = "unsent"
    SETTLED = "settled"


_S = WorkState
_E = WorkEvent
TRANSITIONS: Final[dict[tuple[WorkState, WorkEvent], WorkState]] = {
    (_S.AWAITING_PERSON, _E.ALLOWED): _S.RUNNING,
    (_S.AWAITING_PERSON, _E.DECLINED): _S.FINISHED,
    (_S.AWAITING_PERSON, _E.EXPIRED): _S.FINISHED,
    (_S.AWAITING_PERSON, _E.CANCELLED): _S.SETTLED,
    (_S.RUNNING, _E.ENDED): _S.FINISHED,
    (_S.RUNNING, _E.EXPIRED): _S.FINISHED,
    (_S.RUNNING, _E.CANCELLED): _S.SETTLED,
    (_S.FINISHED, _E.REPORTED): _S.SETTLING,
    (_S.FINISHED, _E.CANCELLED): _S.SETTLED,
    (_S.FINISHED, _E.EXPIRED): _S.SETTLED,
    (_S.SETTLING, _E.SETTLED): _S.SETTLED,
    (_S.SETTLING, _E.UNSENT): _S.FINISHED,
    (_S.SETTLING, _E.CANCELLED): _S.SETTLED,
}
# Late events: the request ended before the answer of the person, the work or the daemon arrived.
LATE: Final = frozenset(
    {
        *((state, _E.ALLOWED) for state in (_S.FINISHED, _S.SETTLING, _S.SETTLED)),
        *((state, _E.DECLINED) for state in (_S.FINISHED, _S.SETTLING, _S.SETTLED)),
        *((state, _E.ENDED) for state in (_S.FINISHED, _S.SETTLING, _S.SETTLED)),
        *((_S.SETTLED, event) for event in (_E.UNSENT, _E.SETTLED, _E.CANCELLED, _E.EXPIRED)),
        (_S.FINISHED, _E.UNSENT),
    }
)


class _Request(msgspec.Struct, kw_only=True):
    request_id: str
    capability: str
    state: WorkState
    # When the work must have ended, or when the result of a finished request becomes useless.
    deadline_ms: int
    dispatch: Dispatch | None = None
    outcome: Outcome | None = None


class RequestMachine:
    """``offered`` are the offers by name; ``notes`` are those of an earlier process."""

    def __init__(self, offered: Mapping[str, Offer], notes: Iterable[Note] = ()) -> None:
        self._offered = dict(offered)
        self._requests: dict[str, _Request] = {}
        self._remembered: dict[str, None] = {}
        self._left = tuple(notes)

    def begin(self, now_ms: int) -> list[Command]:
        """Restore the requests of an earlier process. An unfinished one has failed, which the next link reports."""
        commands: list[Command] = []
        for note in self._left:
            if note.state is NoteState.SETTLED:
                self._remember(note.request_id)
                continue
            outcome = note.outcome
            offer = self._offered.get(note.capability)
            if outcome is None and offer is not None and offer.idempotent:
                # The daemon may send it again, and then the device does it again.
                commands.append(ForgetNote(note.request_id))
                continue
            if outcome is None:
                error = HostInterrupted("the device stopped while it worked on this")
                outcome = Outcome.failed(error.code, error.message)
                commands.append(WriteNote(_finished(note.request_id, note.capability, outcome)))
            self._requests[note.request_id] = _Request(
                request_id=note.request_id,
                capability=note.capability,
                state=WorkState.FINISHED,
                deadline_ms=now_ms + limits.RESULT_KEPT_MS,
                outcome=outcome,
            )
        self._left = ()
        return commands

    @property
    def running(self) -> int:
        return sum(
            request.state in (WorkState.AWAITING_PERSON, WorkState.RUNNING) for request in self._requests.values()
        )

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._requests)

    @property
    def next_wake_ms(self) -> int | None:
        return min((request.deadline_ms for request in self._requests.values()), default=None)

    def on_dispatched(self, dispatch: Dispatch, now_ms: int) -> list[Command]:
        known = self._requests.get(dispatch.request_id)
        if known is not None:
            return [SendAccepted(dispatch.request_id)]
        if dispatch.request_id in self._remembered:
            return [Say(f"request {dispatch.request_id} came again and is not done again")]
        if len(self._requests) >= limits.MAX_OPEN:
            return [Say(f"request {dispatch.request_id} is not taken: {limits.MAX_OPEN} are open already")]
        offer = self._offered.get(dispatch.capability)
        timeout_ms = min(dispatch.timeout_ms, limits.MAX_WORK_MS)
        if offer is None:
            return self._refuse(dispatch, NotOffered("this device does not offer that capability"), now_ms)
        if self.running >= limits.MAX_RUNNING:
            return self._refuse(dispatch, DeviceBusy(f"{limits.MAX_RUNNING} requests are being worked on"), now_ms)
        asks = offer.local_mediation
        request = _Request(
            request_id=dispatch.request_id,
            capability=dispatch.capability,
            state=WorkState.AWAITING_PERSON if asks else WorkState.RUNNING,
            deadline_ms=now_ms + timeout_ms,
            dispatch=dispatch,
        )
        self._requests[dispatch.request_id] = request
        note = Note(request_id=dispatch.request_id, capability=dispatch.capability, state=NoteState.BEGUN)
        commands: list[Command] = [WriteNote(note), SendAccepted(dispatch.request_id)]
        if asks:
            return [*commands, SendMediation(dispatch.request_id), AskPerson(dispatch, timeout_ms)]
        return [*commands, Begin(dispatch, timeout_ms)]

    def on_answered(self, request_id: str, allowed: bool, now_ms: int) -> list[Command]:
        if (request := self._requests.get(request_id)) is None:
            return []
        if request.dispatch is None or not self._step(request, _E.ALLOWED if allowed else _E.DECLINED):
            return []
        if allowed:
            return [Begin(request.dispatch, max(1, request.deadline_ms - now_ms))]
        declined = NotAllowedHere("the person at the device did not allow it")
        return self._finish(request, Outcome.rejected(declined.code, declined.message), now_ms)

    def on_ended(self, request_id: str, outcome: Outcome, now_ms: int) -> list[Command]:
        request = self._requests.get(request_id)
        if request is None or not self._step(request, _E.ENDED):
            return []
        return self._finish(request, outcome, now_ms)

    def on_cancelled(self, request_id: str) -> list[Command]:
        """Stop a request that the daemon cancelled, and report nothing."""
        if (request := self._requests.get(request_id)) is None:
            return []
        before = request.state
        self._step(request, _E.CANCELLED)
        return [*_stopping(before, request_id), *self._settle(request)]

    def on_abandoned(self, request_ids: Iterable[str]) -> list[Command]:
        return [command for each in request_ids for command in self.on_cancelled(each)]

    def tick(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        for request in [each for each in self._requests.values() if each.deadline_ms <= now_ms]:
            before = request.state
            if before is WorkState.SETTLING:
                # Its report is on the way. Wait for the answer.
                request.deadline_ms = now_ms + limits.RESULT_KEPT_MS
                continue
            self._step(request, _E.EXPIRED)
            if request.state is WorkState.SETTLED:
                commands.append(Say(f"the result of {request.request_id} could not be handed in in time"))
                commands += self._settle(request)
                continue
            late = DeviceTimedOut("its time was over before it was done")
            commands += _stopping(before, request.request_id)
            commands += self._finish(request, Outcome.failed(late.code, late.message), now_ms)
        return commands

    def reports(self) -> list[Command]:
        """Report all finished requests. Call this whenever a link is open."""
        commands: list[Command] = []
        for request in self._requests.values():
            if request.state is WorkState.FINISHED and request.outcome is not None:
                self._step(request, _E.REPORTED)
                commands.append(Report(request.request_id, request.outcome))
        return commands

    def on_unsent(self, request_id: str) -> None:
        if (request := self._requests.get(request_id)) is not None:
            self._step(request, _E.UNSENT)

    def on_settled(self, request_id: str) -> list[Command]:
        """Settle a request whose result the daemon took, or refused for good."""
        request = self._requests.get(request_id)
        if request is None or not self._step(request, _E.SETTLED):
            return []
        return self._settle(request)

    def _refuse(self, dispatch: Dispatch, error: NotOffered | DeviceBusy, now_ms: int) -> list[Command]:
        request = _Request(
            request_id=dispatch.request_id,
            capability=dispatch.capability,
            state=WorkState.FINISHED,
            deadline_ms=now_ms,
        )
        self._requests[dispatch.request_id] = request
        return self._finish(request, Outcome.failed(error.code, error.message), now_ms)

    def _finish(self, request: _Request, outcome: Outcome, now_ms: int) -> list[Command]:
        request.outcome = outcome
        request.dispatch = None
        request.deadline_ms = now_ms + limits.RESULT_KEPT_MS
        return [WriteNote(_finished(request.request_id, request.capability, outcome))]

    def _settle(self, request: _Request) -> list[Command]:
        del self._requests[request.request_id]
        self._remember(request.request_id)
        return [
            WriteNote(Note(request_id=request.request_id, capability=request.capability, state=NoteState.SETTLED)),
        ]

    def _remember(self, request_id: str) -> None:
        self._remembered[request_id] = None
        while len(self._remembered) > limits.MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))

    def _step(self, request: _Request, event: WorkEvent) -> bool:
        """Apply an event. Return False for one that comes too late."""
        if (request.state, event) in LATE:
            return False
        request.state = step(TRANSITIONS, request.state, event)
        return True


def _finished(request_id: str, capability: str, outcome: Outcome) -> Note:
    return Note(request_id=request_id, capability=capability, state=NoteState.FINISHED, outcome=outcome)


def _stopping(state: WorkState, request_id: str) -> list[Command]:
    if state is WorkState.AWAITING_PERSON:
        return [CancelQuestion(request_id)]
    return [Stop(request_id)] if state is WorkState.RUNNING else []


# The node host as one machine, which joins the connection and the requests.
#
# It gets events and returns commands, in the order in which they must run. It uses no network, disk, clock or
# randomness of its own, so tests run whole lives of a device as transcripts.


class HostMachine:
    def __init__(
        self,
        certificate: HeldCertificate,
        offered: Mapping[str, Offer],
        notes: Iterable[Note] = (),
        *,
        draw: Callable[[], float],
    ) -> None:
        self._links = LinkMachine(certificate, draw)
        self._work = RequestMachine(offered, notes)

    @property
    def ended(self) -> bool:
        return self._links.state is LinkState.ENDED

    @property
    def link(self) -> int | None:
        """The link that sends messages."""
        return self._links.current

    def next_wake_ms(self, now: Now) -> int | None:
        """Return when ``tick`` is due, on the monotonic clock."""
        if self.ended:
            return None
        wakes = (self._links.next_wake_ms(now), self._work.next_wake_ms)
        return min((wake for wake in wakes if wake is not None), default=None)

    def begin(self, now: Now) -> list[Command]:
        return [*self._work.begin(now.mono_ms), ShowState("offline"), *self.tick(now)]

    def tick(self, now: Now) -> list[Command]:
        if self.ended:
            return []
        commands = self._work.tick(now.mono_ms)
        commands += self._links.tick(now, self._work.running, self._work.open_ids)
        return self._sendable(commands)

    def on_opened(self, link: int, welcome: Welcome, now: Now) -> list[Command]:
        commands = self._links.on_opened(link, welcome, now)
        if self._links.current == link:
            commands += self._work.on_abandoned(welcome.abandoned)
            if welcome.withheld:
                commands.append(Say(f"withheld by an operator: {', '.join(welcome.withheld)}"))
        return self._sendable(commands)

    def on_lost(self, link: int, kind: LossKind, why: str, now: Now) -> list[Command]:
        return self._links.on_lost(link, kind, why, now)

    def on_acknowledged(self, link: int, now: Now) -> list[Command]:
        self._links.note_message(link, now)
        return []

    def on_dispatched(self, link: int, dispatch: Dispatch, now: Now) -> list[Command]:
        """Take a request from any link: an old link may still deliver some."""
        if self.ended:
            return []
        self._links.note_message(link, now)
        return self._sendable(self._work.on_dispatched(dispatch, now.mono_ms))

    def on_cancelled(self, link: int, request_id: str, now: Now) -> list[Command]:
        self._links.note_message(link, now)
        return self._work.on_cancelled(request_id)

    def on_authorities_changed(self, link: int, renew_now: bool, now: Now) -> list[Command]:
        self._links.note_message(link, now)
        if renew_now:
            self._links.renew_now()
        return self.tick(now)

    def on_dismissed(self, code: str, now: Now) -> list[Command]:
        """Log the daemon's goodbye. The stream ends by itself, and the next connection shows whether it is final."""
        return [Say(f"the daemon says goodbye: {code}")]

    def on_answered(self, request_id: str, allowed: bool, now: Now) -> list[Command]:
        return self._sendable(self._work.on_answered(request_id, allowed, now.mono_ms))

    def on_worked(self, request_id: str, outcome: Outcome, now: Now) -> list[Command]:
        return self._sendable(self._work.on_ended(request_id, outcome, now.mono_ms))

    def on_reported(self, request_id: str, now: Now) -> list[Command]:
        return self._work.on_settled(request_id)

    def on_report_refused(self, request_id: str, code: str, now: Now) -> list[Command]:
        return [Say(f"the daemon did not take the result of {request_id}: {code}"), *self._work.on_settled(request_id)]

    def on_report_unsent(self, request_id: str, now: Now) -> list[Command]:
        """Keep the result: the next link, or the next heartbeat of this one, reports it again."""
        self._work.on_unsent(request_id)
        return []

    def on_renewed(self, certificate: HeldCertificate, now: Now) -> list[Command]:
        return self._links.on_renewed(certificate, self._work.open_ids)

    def on_renewal_failed(self, why: str, now: Now) -> list[Command]:
        return self._links.on_renewal_failed(why, now)

    def stop(self, reason: str) -> list[Command]:
        """Stop the host. Requests that run are stopped, and fail when the host starts again."""
        if self.ended:
            return []
        link = self.link
        # The link that sends the farewell closes by itself.
        closing = [each for each in self._links.stop() if not isinstance(each, CloseLink) or each.link != link]
        leaving: list[Command] = [] if link is None else [SendLeaving(link, reason)]
        return [*leaving, *closing, ShowState("stopped"), End("", reason)]

    def _sendable(self, commands: list[Command]) -> list[Command]:
        """Drop the messages if no link is open. The next registration names the open requests, and results are kept."""
        if not self._links.online:
            return [each for each in commands if not isinstance(each, SendAccepted | SendMediation | Report)]
        return [*commands, *self._work.reports()]
