"""Drives the host's machine: passes it events of network, device and clock, and runs its commands in order."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.device_folder import DeviceFileBad, DeviceRecord
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.errors import PalyraError
from palyra.nodes import limits
from palyra.nodes.agent import messages, offered
from palyra.nodes.agent.capabilities import Performer, Person
from palyra.nodes.agent.link import GrpcLink, LinkLost
from palyra.nodes.agent.messages import Command, Now
from palyra.nodes.agent.note_folder import DeviceFolder
from palyra.nodes.agent.request_state import HostMachine

_log = logging.getLogger(__name__)
HostEvent = Callable[[HostMachine, Now], list[Command]]


class HostDriver:
    """A running node host. The caller holds the folder's lock."""

    def __init__(
        self,
        folder: DeviceFolder,
        record: DeviceRecord,
        *,
        offers: Mapping[str, messages.Offer],
        performer: Performer,
        person: Person,
        platform: str,
        software_version: str,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._identity = HeldIdentity(folder, record)
        self._offers = dict(offers)
        self._performer = performer
        self._person = person
        self._platform = platform
        self._software_version = software_version
        self._clock = clock
        self._machine = HostMachine(self._identity.held, self._offers, folder.notes(), draw=draw)
        # Each of our own tasks puts at most one event. A message of the daemon waits for a place, so reading stops.
        self._events: asyncio.Queue[HostEvent] = asyncio.Queue()
        self._room = asyncio.Semaphore(limits.MAX_UNHEARD)
        self._links: dict[int, GrpcLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._max_result_bytes = limits.MAX_RESULT_BYTES
        self._ended: messages.End | None = None

    async def run(self) -> messages.End:
        """Run until the host is stopped, or cannot go on."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._do(self._machine.begin(self._now()))
                while self._ended is None:
                    await self._do(await self._next())
                await self._finish()
        except* PalyraError as failed:
            raise _unwrap(failed) from None
        return self._ended

    async def _finish(self) -> None:
        """Cancel the tasks, but give the links time to send their farewell."""
        for name, task in self._tasks.items():
            if not name.startswith("link "):
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=limits.FAREWELL_SECONDS)
        for task in self._tasks.values():
            task.cancel()

    def stop(self, reason: str) -> None:
        self._post(lambda machine, _: machine.stop(reason))

    async def _next(self) -> list[Command]:
        now = self._now()
        wake = self._machine.next_wake_ms(now)
        wait = None if wake is None else max(0, wake - now.mono_ms) / MS_PER_SECOND
        try:
            async with asyncio.timeout(wait):
                event = await self._events.get()
        except TimeoutError:
            return self._machine.tick(self._now())
        return event(self._machine, self._now())

    def _now(self) -> Now:
        return Now(wall_ms=self._clock.now_ms(), mono_ms=int(self._clock.monotonic() * MS_PER_SECOND))

    def _post(self, event: HostEvent) -> None:
        self._events.put_nowait(event)

    async def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case messages.WriteNote(note):
                    await asyncio.to_thread(self._folder.write_note, note)
                case messages.ForgetNote(request_id):
                    await asyncio.to_thread(self._folder.forget_note, request_id)
                case messages.OpenLink(link, open_ids):
                    self._spawn(f"link {link}", self._live(link, open_ids))
                case messages.CloseLink(link):
                    self._cancel(f"link {link}")
                case messages.RetireLink(link):
                    self._spawn(f"retire {link}", self._retire(link))
                case messages.RequestRenewal(link):
                    self._spawn("renewal", self._renew(link))
                case messages.Begin(dispatch, timeout_ms):
                    self._spawn(f"work {dispatch.request_id}", self._work(dispatch, timeout_ms))
                case messages.AskPerson(dispatch, _):
                    self._spawn(f"ask {dispatch.request_id}", self._ask(dispatch))
                case messages.Stop(request_id):
                    self._cancel(f"work {request_id}")
                case messages.CancelQuestion(request_id):
                    self._cancel(f"ask {request_id}")
                case messages.Report(request_id, outcome):
                    self._spawn(f"report {request_id}", self._report(request_id, outcome))
                case messages.ShowState(state):
                    await asyncio.to_thread(self._folder.write_status, self._status(state))
                case messages.Say(text):
                    self._person.tell(text)
                case messages.End():
                    self._ended = command
                case _:
                    self._send(command)

    def _send(self, command: Command) -> None:
        link = self._links.get(self._machine.link or 0)
        match command:
            case messages.SendHeartbeat(number, running) if number in self._links:
                self._links[number].heartbeat(running)
            case messages.SendLeaving(number, reason) if number in self._links:
                self._links[number].leaving(reason)
                self._links[number].say_no_more()
            case messages.SendAccepted(request_id) if link is not None:
                link.accepted(request_id)
            case messages.SendMediation(request_id) if link is not None:
                link.mediation(request_id)

    def _spawn(self, name: str, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._group.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._tasks.pop(name) if self._tasks.get(name) is done else None)

    def _cancel(self, name: str) -> None:
        if (task := self._tasks.get(name)) is not None:
            task.cancel()

    async def _live(self, number: int, open_ids: tuple[str, ...]) -> None:
        servers = self._identity.servers
        link = GrpcLink(servers[number % len(servers)], self._identity.credentials())
        registration = messages.Registration(
            device_id=self._identity.device_id,
            display_name=self._identity.name,
            platform=self._platform,
            software_version=self._software_version,
            offers=tuple(self._offers.values()),
            open_request_ids=open_ids,
        )
        try:
            welcome, bundle = await link.register(registration)
            await self._identity.trust(bundle)
            if welcome.max_result_bytes:
                self._max_result_bytes = welcome.max_result_bytes
            self._links[number] = link
            await link.stream(
                lambda: self._post(lambda machine, now: machine.on_opened(number, welcome, now)),
                lambda incoming: self._on_message(number, incoming),
            )
        except LinkLost as lost:
            kind, why = lost.kind, lost.why
            self._post(lambda machine, now: machine.on_lost(number, kind, why, now))
        finally:
            self._links.pop(number, None)
            with contextlib.suppress(asyncio.CancelledError):
                await link.close()

    async def _on_message(self, number: int, incoming: messages.Incoming) -> None:
        """Queue a message. If the queue is full, wait: a fast daemon must not fill this device's memory."""
        if isinstance(incoming, messages.AuthoritiesChanged):
            await self._identity.trust(incoming.ca_bundle_pem)
        event = _to_event(number, incoming)
        await self._room.acquire()

        def apply(machine: HostMachine, now: Now) -> list[Command]:
            self._room.release()
            return event(machine, now)

        self._post(apply)

    async def _retire(self, number: int) -> None:
        """Close an old link later: messages that the daemon sent before the new link opened still arrive on it."""
        if (link := self._links.get(number)) is not None:
            link.say_no_more()
        task = self._tasks.get(f"link {number}")
        if task is not None:
            await asyncio.wait([task], timeout=limits.RETIRE_SECONDS)
            task.cancel()

    async def _renew(self, number: int) -> None:
        link = self._links.get(number)
        try:
            if link is None:
                raise LinkLost(messages.LossKind.UNREACHABLE, "the link is gone")
            csr = await self._identity.request_renewal()
            await self._identity.take_renewal(await link.renew(csr, self._identity.generation))
        except LinkLost as lost:
            why = lost.why
            self._post(lambda machine, now: machine.on_renewal_failed(why, now))
        except DeviceFileBad as error:
            why = error.message
            self._post(lambda machine, now: machine.on_renewal_failed(why, now))
        else:
            held = self._identity.held
            self._post(lambda machine, now: machine.on_renewed(held, now))

    async def _work(self, dispatch: messages.Dispatch, timeout_ms: int) -> None:
        most = offered.compute_result_limit(dispatch, self._max_result_bytes)
        outcome = await self._performer.perform(dispatch, timeout_ms=timeout_ms, max_result_bytes=most)
        self._post(lambda machine, now: machine.on_worked(dispatch.request_id, outcome, now))

    async def _ask(self, dispatch: messages.Dispatch) -> None:
        allowed = await self._person.allows(*offered.format_question(dispatch))
        self._post(lambda machine, now: machine.on_answered(dispatch.request_id, allowed, now))

    async def _report(self, request_id: str, outcome: messages.Outcome) -> None:
        link = self._links.get(self._machine.link or 0)
        try:
            if link is None:
                raise LinkLost(messages.LossKind.UNREACHABLE, "the link is gone")
            await link.report(request_id, outcome)
        except LinkLost as lost:
            if lost.final:
                why = lost.why
                self._post(lambda machine, now: machine.on_report_refused(request_id, why, now))
            else:
                self._post(lambda machine, now: machine.on_report_unsent(request_id, now))
        else:
            self._post(lambda machine, now: machine.on_reported(request_id, now))

    def _status(self, state: str) -> dict[str, object]:
        return {"state": state, "since_ms": self._clock.now_ms(), "device_id": self._identity.device_id}


def _to_event(number: int, incoming: messages.Incoming) -> HostEvent:
    match incoming:
        case messages.Acknowledged():
            return lambda machine, now: machine.on_acknowledged(number, now)
        case messages.Dispatched(dispatch):
            return lambda machine, now: machine.on_dispatched(number, dispatch, now)
        case messages.Cancelled(request_id):
            return lambda machine, now: machine.on_cancelled(number, request_id, now)
        case messages.AuthoritiesChanged(_, renew_now):
            return lambda machine, now: machine.on_authorities_changed(number, renew_now, now)
        case messages.Dismissed(code):
            return lambda machine, now: machine.on_dismissed(code, now)


def _unwrap(failed: "ExceptionGroup[PalyraError]") -> PalyraError:
    error = failed.exceptions[0]
    return _unwrap(error) if isinstance(error, ExceptionGroup) else error
