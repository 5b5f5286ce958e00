"""The node host as one machine: the connection and the work, and what each means for the other.

It is told what happened and answers with commands, in the order in which they are to be carried out. It knows no
network, no disk, no clock and no chance of its own: whole lives of a device are tested as transcripts.
"""

from collections.abc import Callable, Iterable, Mapping

from palyra.nodes.device.device_record import HeldCertificate
from palyra.nodes.host.links import LinkKeeper, LinkState
from palyra.nodes.host.messages import (
    CloseLink,
    Command,
    Dispatch,
    End,
    LossKind,
    Note,
    Now,
    Offer,
    Outcome,
    Report,
    Say,
    SendAccepted,
    SendLeaving,
    SendMediation,
    ShowState,
    Welcome,
)
from palyra.nodes.host.work import WorkBook


class HostMachine:
    def __init__(
        self,
        certificate: HeldCertificate,
        offered: Mapping[str, Offer],
        notes: Iterable[Note] = (),
        *,
        draw: Callable[[], float],
    ) -> None:
        self._links = LinkKeeper(certificate, draw)
        self._work = WorkBook(offered, notes)

    @property
    def ended(self) -> bool:
        return self._links.state is LinkState.ENDED

    @property
    def link(self) -> int | None:
        """The link that everything is sent on."""
        return self._links.current

    def next_wake_ms(self, now: Now) -> int | None:
        """When ``tick`` is due, on the monotonic clock."""
        if self.ended:
            return None
        wakes = (self._links.next_wake_ms(now), self._work.next_wake_ms)
        return min((wake for wake in wakes if wake is not None), default=None)

    def begin(self, now: Now) -> list[Command]:
        return [*self._work.begin(now.mono_ms), ShowState("offline"), *self.tick(now)]

    def tick(self, now: Now) -> list[Command]:
        if self.ended:
            return []
        said = self._work.tick(now.mono_ms)
        said += self._links.tick(now, self._work.running, self._work.open_ids)
        return self._sendable(said)

    def opened(self, link: int, welcome: Welcome, now: Now) -> list[Command]:
        said = self._links.opened(link, welcome, now)
        if self._links.current == link:
            said += self._work.abandoned(welcome.abandoned)
            if welcome.withheld:
                said.append(Say(f"withheld by an operator: {', '.join(welcome.withheld)}"))
        return self._sendable(said)

    def lost(self, link: int, kind: LossKind, why: str, now: Now) -> list[Command]:
        return self._links.lost(link, kind, why, now)

    def acknowledged(self, link: int, now: Now) -> list[Command]:
        self._links.heard(link, now)
        return []

    def dispatched(self, link: int, dispatch: Dispatch, now: Now) -> list[Command]:
        """On whichever link it came: one that is being replaced may still bring some."""
        if self.ended:
            return []
        self._links.heard(link, now)
        return self._sendable(self._work.dispatched(dispatch, now.mono_ms))

    def cancelled(self, link: int, request_id: str, now: Now) -> list[Command]:
        self._links.heard(link, now)
        return self._work.cancelled(request_id)

    def told_of_authorities(self, link: int, renew_now: bool, now: Now) -> list[Command]:
        self._links.heard(link, now)
        if renew_now:
            self._links.renew_now()
        return self.tick(now)

    def dismissed(self, code: str, now: Now) -> list[Command]:
        """A goodbye of the daemon; the stream ends by itself afterwards. Whether it is for good, the next try shows."""
        return [Say(f"the daemon says goodbye: {code}")]

    def answered(self, request_id: str, allowed: bool, now: Now) -> list[Command]:
        return self._sendable(self._work.answered(request_id, allowed, now.mono_ms))

    def worked(self, request_id: str, outcome: Outcome, now: Now) -> list[Command]:
        return self._sendable(self._work.ended(request_id, outcome, now.mono_ms))

    def reported(self, request_id: str, now: Now) -> list[Command]:
        return self._work.settled(request_id)

    def report_refused(self, request_id: str, code: str, now: Now) -> list[Command]:
        return [Say(f"the daemon did not take the result of {request_id}: {code}"), *self._work.settled(request_id)]

    def report_unsent(self, request_id: str, now: Now) -> list[Command]:
        """It is handed in again with the next link, or with the next heartbeat of this one."""
        self._work.unsent(request_id)
        return []

    def renewed(self, certificate: HeldCertificate, now: Now) -> list[Command]:
        return self._links.renewed(certificate, self._work.open_ids)

    def renewal_failed(self, why: str, now: Now) -> list[Command]:
        return self._links.renewal_failed(why, now)

    def stop(self, reason: str) -> list[Command]:
        """The person at the device wants it to stop. What runs is stopped and fails when the host comes back."""
        if self.ended:
            return []
        link = self.link
        # The link that is told of it closes by itself.
        closing = [each for each in self._stop() if not isinstance(each, CloseLink) or each.link != link]
        leaving: list[Command] = [] if link is None else [SendLeaving(link, reason)]
        return [*leaving, *closing, ShowState("stopped"), End("", reason)]

    def _stop(self) -> list[Command]:
        return self._links.stop()

    def _sendable(self, said: list[Command]) -> list[Command]:
        """Without a link nothing is sent: what was accepted is named in the next registration, results are kept."""
        if not self._links.online:
            return [each for each in said if not isinstance(each, SendAccepted | SendMediation | Report)]
        return [*said, *self._work.reports()]
