"""The machine of a device's connection to its daemon, and the base of the host's two machines."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from palyra.devicelink.agent.backoff import Backoff
from palyra.devicelink.agent.device_folder import HeldCertificate
from palyra.errors import Failed
from palyra.nodes import limits
from palyra.nodes.agent.messages import (
    CertificateExpired,
    CloseLink,
    Command,
    End,
    HostRefused,
    LossKind,
    Now,
    OpenLink,
    RequestRenewal,
    RetireLink,
    Say,
    SendHeartbeat,
    ShowState,
    Welcome,
)

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class HostMisused(Failed):
    code = "nodes.host_misused"
    hint = "this is a fault in Palyra: the node host got an event that its state does not allow"


def step(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    try:
        return table[state, event]
    except KeyError:
        raise HostMisused(f"a host that is {state.value} cannot take {event.value}") from None


# The device reconnects when its connection is lost, and replaces it before its certificate ends.
#
# Values in, commands out. A new certificate gets a link of its own, and the old link is closed once the new one is
# open, so the device is never offline for a renewal.


class LinkState(StrEnum):
    OFFLINE = "offline"
    CONNECTING = "connecting"
    ONLINE = "online"
    RENEWING = "renewing"
    SWITCHING = "switching"
    ENDED = "ended"


class LinkEvent(StrEnum):
    WAITED = "waited"
    OPENED = "opened"
    LOST = "lost"
    SPARE_LOST = "spare_lost"
    RENEWAL_DUE = "renewal_due"
    RENEWED = "renewed"
    RENEWAL_FAILED = "renewal_failed"
    SWITCH_DUE = "switch_due"
    STOPPED = "stopped"


_S = LinkState
_E = LinkEvent
TRANSITIONS: Final[dict[tuple[LinkState, LinkEvent], LinkState]] = {
    (_S.OFFLINE, _E.WAITED): _S.CONNECTING,
    (_S.OFFLINE, _E.RENEWED): _S.OFFLINE,
    (_S.OFFLINE, _E.RENEWAL_FAILED): _S.OFFLINE,
    (_S.OFFLINE, _E.STOPPED): _S.ENDED,
    (_S.CONNECTING, _E.OPENED): _S.ONLINE,
    (_S.CONNECTING, _E.LOST): _S.OFFLINE,
    # The answer to a renewal arrived before the loss of its link.
    (_S.CONNECTING, _E.RENEWED): _S.CONNECTING,
    (_S.CONNECTING, _E.RENEWAL_FAILED): _S.CONNECTING,
    (_S.CONNECTING, _E.STOPPED): _S.ENDED,
    (_S.ONLINE, _E.LOST): _S.OFFLINE,
    (_S.ONLINE, _E.RENEWAL_DUE): _S.RENEWING,
    (_S.ONLINE, _E.SWITCH_DUE): _S.SWITCHING,
    (_S.ONLINE, _E.RENEWED): _S.ONLINE,
    (_S.ONLINE, _E.RENEWAL_FAILED): _S.ONLINE,
    (_S.ONLINE, _E.STOPPED): _S.ENDED,
    (_S.RENEWING, _E.LOST): _S.OFFLINE,
    (_S.RENEWING, _E.RENEWED): _S.SWITCHING,
    (_S.RENEWING, _E.RENEWAL_FAILED): _S.ONLINE,
    (_S.RENEWING, _E.STOPPED): _S.ENDED,
    (_S.SWITCHING, _E.OPENED): _S.ONLINE,
    (_S.SWITCHING, _E.SPARE_LOST): _S.ONLINE,
    # The old link was lost first: the new one, which is opening, is the only one.
    (_S.SWITCHING, _E.LOST): _S.CONNECTING,
    (_S.SWITCHING, _E.RENEWED): _S.SWITCHING,
    (_S.SWITCHING, _E.RENEWAL_FAILED): _S.SWITCHING,
    (_S.SWITCHING, _E.STOPPED): _S.ENDED,
}


class LinkMachine:
    """``current`` is the link that sends messages. ``draw`` returns a random number from 0 to 1."""

    def __init__(self, certificate: HeldCertificate, draw: Callable[[], float]) -> None:
        self.state = LinkState.OFFLINE
        self.current: int | None = None
        self._certificate = certificate
        self._draw = draw
        self._spare: int | None = None
        self._newest = 0
        self._backoff = Backoff()
        self._renewal_backoff = Backoff()
        self._refusals = 0
        self._try_at_ms = 0
        # When a renewal that failed may be tried again, and whether the daemon asked for one.
        self._renew_not_before_ms = 0
        self._renew_now = False
        # A generation, and when its renewal is due on the monotonic clock, as first computed.
        self._due: tuple[int, int] = (0, 0)
        # The generations that the newest link was opened with, and the link in use.
        self._opened_with = 0
        self._used = 0
        self._interval_ms = 0
        self._beat_at_ms = 0
        self._received_at_ms = 0

    @property
    def online(self) -> bool:
        return self.current is not None

    def next_wake_ms(self, now: Now) -> int | None:
        """Return when ``tick`` is due, on the monotonic clock."""
        match self.state:
            case LinkState.OFFLINE:
                return self._try_at_ms
            case LinkState.ONLINE | LinkState.RENEWING | LinkState.SWITCHING:
                return min(self._beat_at_ms, self._silent_at_ms, self._renewal_at_ms(now))
        return None

    def tick(self, now: Now, running: int, open_ids: tuple[str, ...]) -> list[Command]:
        if self.state is LinkState.OFFLINE and now.mono_ms >= self._try_at_ms:
            return self._connect(now, open_ids)
        if self.current is None:
            return []
        if now.mono_ms >= self._silent_at_ms:
            link = self.current
            return [CloseLink(link), *self.on_lost(link, LossKind.UNREACHABLE, "no heartbeat was answered", now)]
        commands: list[Command] = []
        if now.mono_ms >= self._beat_at_ms:
            self._beat_at_ms = now.mono_ms + self._interval_ms
            commands.append(SendHeartbeat(self.current, running))
        if self.state is LinkState.ONLINE and now.mono_ms >= self._renewal_at_ms(now):
            if self._unused:
                self._step(_E.SWITCH_DUE)
                commands += self._open_spare(open_ids)
            else:
                self._step(_E.RENEWAL_DUE)
                commands.append(RequestRenewal(self.current))
        return commands

    def on_opened(self, link: int, welcome: Welcome, now: Now) -> list[Command]:
        if link != self._newest or self.state not in (LinkState.CONNECTING, LinkState.SWITCHING):
            return [CloseLink(link)]
        before, self.current, self._spare = self.current, link, None
        self._step(_E.OPENED)
        self._used = self._opened_with
        self._backoff = Backoff()
        self._refusals = 0
        self._interval_ms = max(welcome.heartbeat_interval_ms, limits.SHORTEST_HEARTBEAT_MS)
        self._received_at_ms = now.mono_ms
        self._beat_at_ms = now.mono_ms + self._interval_ms
        if before is not None:
            return [RetireLink(before), Say("the new certificate is in use")]
        return [ShowState("online"), Say("connected")]

    def note_message(self, link: int, now: Now) -> None:
        """Note any message of the daemon: it shows that the link is alive."""
        if link == self.current:
            self._received_at_ms = now.mono_ms

    def on_lost(self, link: int, kind: LossKind, why: str, now: Now) -> list[Command]:
        if link == self.current:
            self.current = None
            # If a new link is opening, it becomes the only one.
            self._step(_E.LOST)
            if self.state is LinkState.CONNECTING:
                return [ShowState("offline")]
            self._spare = None
            return [ShowState("offline"), Say(f"the connection is lost: {why}"), *self._retry(kind, why, now)]
        if link != self._newest or self.state not in (LinkState.CONNECTING, LinkState.SWITCHING):
            return []
        self._spare = None
        if self.state is LinkState.SWITCHING:
            self._step(_E.SPARE_LOST)
            self._delay_renewal(now)
            return [Say(f"the new certificate could not be used yet: {why}")]
        self._step(_E.LOST)
        return [Say(f"no connection: {why}"), *self._retry(kind, why, now)]

    def on_renewed(self, certificate: HeldCertificate, open_ids: tuple[str, ...]) -> list[Command]:
        """Use the new certificate, which is on disk."""
        if self.state is LinkState.ENDED:
            return []
        if certificate.generation <= self._certificate.generation:
            self._step(_E.RENEWAL_FAILED)
            return []
        self._certificate = certificate
        self._renewal_backoff = Backoff()
        self._renew_not_before_ms = 0
        self._renew_now = False
        switching = self.state is LinkState.RENEWING
        self._step(_E.RENEWED)
        return self._open_spare(open_ids) if switching else []

    def on_renewal_failed(self, why: str, now: Now) -> list[Command]:
        if self.state is LinkState.ENDED:
            return []
        self._delay_renewal(now)
        self._step(_E.RENEWAL_FAILED)
        return [Say(f"the certificate could not be renewed: {why}")]

    def renew_now(self) -> None:
        """Renew the certificate soon, because the daemon's authorities changed."""
        self._renew_now = True

    def stop(self) -> list[Command]:
        """Close all links and stop reconnecting."""
        if self.state is LinkState.ENDED:
            return []
        links = [link for link in (self.current, self._spare) if link is not None]
        if self.state is LinkState.CONNECTING and self._newest not in links:
            links.append(self._newest)
        self.current = self._spare = None
        self._step(_E.STOPPED)
        return [CloseLink(link) for link in links]

    def _connect(self, now: Now, open_ids: tuple[str, ...]) -> list[Command]:
        if now.wall_ms >= self._certificate.not_after_ms:
            expired = CertificateExpired("this device's certificate has ended")
            return [*self.stop(), ShowState("ended"), End(expired.code, expired.message)]
        self._step(_E.WAITED)
        return self._open(open_ids)

    def _open_spare(self, open_ids: tuple[str, ...]) -> list[Command]:
        commands = self._open(open_ids)
        self._spare = self._newest
        return commands

    def _open(self, open_ids: tuple[str, ...]) -> list[Command]:
        self._newest += 1
        self._opened_with = self._certificate.generation
        return [OpenLink(self._newest, open_ids)]

    def _retry(self, kind: LossKind, why: str, now: Now) -> list[Command]:
        self._refusals = self._refusals + 1 if kind is LossKind.REFUSED else 0
        if self._refusals >= limits.MAX_REFUSALS:
            refused = HostRefused("the daemon does not take this device")
            return [*self.stop(), ShowState("ended"), End(refused.code, f"{refused.message}: {why}")]
        self._backoff = self._backoff.failed()
        self._try_at_ms = now.mono_ms + self._backoff.delay_ms(self._draw())
        return []

    def _delay_renewal(self, now: Now) -> None:
        self._renewal_backoff = self._renewal_backoff.failed()
        self._renew_not_before_ms = now.mono_ms + self._renewal_backoff.delay_ms(self._draw())

    @property
    def _unused(self) -> bool:
        """Whether a certificate exists that no link uses yet."""
        return self._certificate.generation > self._used

    @property
    def _silent_at_ms(self) -> int:
        return self._received_at_ms + limits.SILENT_INTERVALS * self._interval_ms

    def _renewal_at_ms(self, now: Now) -> int:
        if self.state is not LinkState.ONLINE:
            # A renewal is running. The next heartbeat checks again.
            return self._beat_at_ms
        due_at = now.mono_ms if self._renew_now or self._unused else self._due_at_ms(now)
        return max(due_at, self._renew_not_before_ms)

    def _due_at_ms(self, now: Now) -> int:
        """Compute when renewal is due, by wall time, but never later than first computed.

        Otherwise a wall clock that is set back would let the certificate expire.
        """
        by_wall = now.mono_ms + max(0, self._certificate.renew_at_ms - now.wall_ms)
        if self._due[0] != self._certificate.generation:
            self._due = (self._certificate.generation, by_wall)
        return min(by_wall, self._due[1])

    def _step(self, event: LinkEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)
