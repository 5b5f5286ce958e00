"""Sends requests to devices, and results to their callers. Each step is on disk first.

A request is sent at least once, and its result counts at most once. A request that may not have arrived is sent again
when the device is back and does not name it. Devices never do a request twice.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.server import connections
from palyra.devicelink.server.connections import Connected, NodeRegistry
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId
from palyra.nodes.domain import requests
from palyra.nodes.domain.capability import CapabilityWithheld
from palyra.nodes.domain.records import CapabilityRequestRecord, DeviceCapabilityView, RequestId, RequestState
from palyra.nodes.domain.requests import Result
from palyra.nodes.server import request_changes
from palyra.nodes.server.request_changes import Settled
from palyra.nodes.store.port import NodeState

# The commands to a device, as values. ``stream`` encodes them.


class Dispatch(msgspec.Struct, frozen=True):
    request_id: str
    capability: str
    input_json: bytes
    # How long the device may take from now on.
    timeout_ms: int
    max_result_bytes: int


class Cancel(msgspec.Struct, frozen=True):
    request_id: str
    reason: str


class CertificateNews(msgspec.Struct, frozen=True):
    """The authorities changed. A renewal gets a certificate by the new one."""

    ca_bundle_pem: bytes
    renew_now: bool


class Goodbye(msgspec.Struct, frozen=True):
    code: str
    message: str


Command = Dispatch | Cancel | CertificateNews | Goodbye


log = logging.getLogger("palyra.nodes")
# How often to check for silent devices, and for deadlines of requests that have no waiting caller.
TEND_SECONDS = 1.0
# How long the result of a request that has ended on disk may take to reach its caller.
ENDING_SECONDS = 5.0


class Line(Protocol):
    """One stream to a device. No method waits."""

    def send(self, command: Command) -> None: ...

    def end(self, code: str, message: str) -> None:
        """Send a goodbye and close."""

    def cut(self, code: str) -> None:
        """Close at once, for a device that may not connect."""


class CapabilityCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request to make. ``input_json`` is canonical; the decision was made on its digest."""

    device_id: DeviceId
    capability: DeviceCapabilityView
    input_json: bytes
    input_digest: str
    timeout_ms: int
    principal: str
    call_id: str = ""


class _Open(msgspec.Struct, eq=False):
    connected: Connected
    line: Line
    # The requests that were sent on this stream. None is sent twice.
    given: set[str]


@dataclass(eq=False, repr=False, kw_only=True)
class Dispatcher:
    """``on_ended`` gets the final state of each request, for a counter."""

    state: NodeState
    registry: NodeRegistry
    clock: Clock
    instance: str
    max_result_bytes: int
    heartbeat_timeout: float
    on_ended: Callable[[str], None] = lambda _state: None

    def __post_init__(self) -> None:
        self._lines: dict[DeviceId, _Open] = {}
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        # Requests to send again on the device's next stream.
        self._returning: dict[DeviceId, tuple[str, ...]] = {}
        self._gone: set[DeviceId] = set()
        # Devices that may have open requests; None before the first read of the state. ``_entering`` has an entry for
        # each request that is being written.
        self._devices_with_requests: set[DeviceId] | None = None
        self._entering: list[DeviceId] = []
        self._wake = asyncio.Event()

    async def invoke(self, call: CapabilityCall) -> bytes:
        """Make a request and return its output as JSON. Raise any other end. Cancelling cancels the request."""
        now = self.clock.now_ms()
        request = CapabilityRequestRecord(
            id=str(RequestId.new()),
            device_id=call.device_id,
            capability=call.capability.name,
            state=RequestState.QUEUED,
            principal=call.principal,
            call_id=call.call_id,
            input_digest=call.input_digest,
            idempotent=call.capability.idempotent,
            created_ms=now,
            deadline_ms=now + call.timeout_ms,
            instance_id=self.instance,
            input_json=call.input_json.decode(),
        )
        outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = outcome
        try:
            connected = call.device_id in self._lines
            entered = await self._enter(request, connected)
            if connected:
                self._send(entered)
            elif call.device_id in self._lines:
                # The device connected while the request was being written.
                await self._send_waiting(call.device_id)
            left = (request.deadline_ms - self.clock.now_ms()) / MS_PER_SECOND
            try:
                async with asyncio.timeout(left):
                    # Shielded: a timeout must not cancel the future, because the result may still arrive.
                    return await asyncio.shield(outcome)
            except TimeoutError:
                settled = await self.state.transact(lambda unit: request_changes.time_out(unit, request.id))
                return await self._await_late_result(settled, outcome)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(request.id))
            raise
        finally:
            self._waiting.pop(request.id, None)
            if outcome.done() and not outcome.cancelled():
                outcome.exception()

    async def _enter(self, request: CapabilityRequestRecord, connected: bool) -> CapabilityRequestRecord:
        device_id = DeviceId(request.device_id)
        self._entering.append(device_id)
        try:
            return await self.state.transact(lambda unit: request_changes.enter(unit, request, connected=connected))
        finally:
            self._entering.remove(device_id)
            if self._devices_with_requests is not None:
                self._devices_with_requests.add(device_id)

    async def _await_late_result(self, settled: Settled, outcome: "asyncio.Future[bytes]") -> bytes:
        if settled.error is not None:
            self._count(settled)
            self._send_cancel(settled, "the deadline passed")
            raise settled.error
        # The result was being written when the time was up, so it counts.
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                return await asyncio.shield(outcome)
        except TimeoutError:
            raise requests.RequestTimedOut("the request ended elsewhere") from None

    async def _cancel(self, request_id: str) -> None:
        settled = await self.state.transact(lambda unit: request_changes.cancel(unit, request_id))
        if settled.error is not None:
            self._count(settled)
        self._send_cancel(settled, "the call was stopped")

    def _send_cancel(self, settled: Settled, reason: str) -> None:
        request = settled.request
        if settled.error is None or request is None or request.dispatched_ms is None:
            return
        opened = self._lines.get(DeviceId(request.device_id))
        if opened is not None:
            opened.given.discard(request.id)
            opened.line.send(Cancel(request.id, reason))

    async def take_result(self, device_id: DeviceId, request_id: str, result: Result) -> None:
        """Take a result. Raise a refusal if it does not count."""
        # Shielded: even if the device's connection breaks now, the caller must get the result.
        await asyncio.shield(self._settle(device_id, request_id, result))

    async def _settle(self, device_id: DeviceId, request_id: str, result: Result) -> None:
        unfit = requests.find_fault(result, self.max_result_bytes)
        settled = await self.state.transact(
            lambda unit: request_changes.settle(unit, device_id, request_id, result, unfit)
        )
        self._answer(settled)
        if settled.refusal is not None:
            raise settled.refusal

    async def note_accepted(self, device_id: DeviceId, request_id: str) -> None:
        await self.state.transact(lambda unit: request_changes.accept(unit, device_id, request_id))

    async def note_mediation(self, device_id: DeviceId, request_id: str) -> None:
        await self.state.transact(lambda unit: request_changes.ask_person(unit, device_id, request_id))

    async def reunite(self, device_id: DeviceId, still_open: tuple[str, ...]) -> tuple[str, ...]:
        """Compare a registering device's requests. Return those it names that no longer count."""
        if not self._may_have_open(device_id):
            self._returning.pop(device_id, None)
            return still_open
        reunion, lost = await self.state.transact(lambda unit: request_changes.reunite(unit, device_id, still_open))
        self._returning[device_id] = tuple(request.id for request in reunion.redeliver)
        for settled in lost:
            self._answer(settled)
        return reunion.abandoned

    def _may_have_open(self, device_id: DeviceId) -> bool:
        """Return whether the device may have open requests, without reading the state if possible.

        Only this process makes requests, or an earlier one left them. So a known device stays known until a read shows
        that it has none.
        """
        if self._devices_with_requests is None or device_id in self._devices_with_requests:
            found = self.state.read(lambda unit: {one.device_id for one in unit.requests.list() if one.open()})
            self._devices_with_requests = {DeviceId(one) for one in found} | {DeviceId(one) for one in self._entering}
        return device_id in self._devices_with_requests

    def attach(self, connected: Connected, line: Line) -> bool:
        """Attach a stream. Return whether it replaces one of the same device."""
        before = self.registry.attach(connected)
        old = self._lines.get(connected.device_id)
        self._lines[connected.device_id] = _Open(connected, line, set())
        self._gone.discard(connected.device_id)
        if old is not None:
            old.line.end(connections.REPLACED, "a newer connection of this device took over")
        return before is not None

    async def resume(self, device_id: DeviceId) -> None:
        """Send a device that is back its waiting requests."""
        await self._send_waiting(device_id, self._returning.pop(device_id, ()))

    def detach(self, connected: Connected) -> bool:
        """Detach a stream. Return whether the device is now offline."""
        opened = self._lines.get(connected.device_id)
        if opened is not None and opened.connected is connected:
            del self._lines[connected.device_id]
        return self.registry.detach(connected)

    def end_device(self, device_id: str, code: str) -> None:
        """Cut the stream of a device that may no longer connect. Its requests fail soon after."""
        opened = self._lines.get(DeviceId(device_id))
        if opened is not None:
            opened.line.cut(code)
        self._returning.pop(DeviceId(device_id), None)
        self._gone.add(DeviceId(device_id))
        self._wake.set()

    def announce(self, ca_bundle_pem: bytes, *, renew_now: bool = True) -> None:
        for opened in self._lines.values():
            opened.line.send(CertificateNews(ca_bundle_pem, renew_now=renew_now))

    def end_all(self) -> None:
        for opened in tuple(self._lines.values()):
            opened.line.end(connections.STOPPING, "the daemon is stopping")

    async def end_withheld(self, device_id: str, capability: str) -> None:
        """End the requests for a capability that an operator withheld."""
        error = CapabilityWithheld(f"{capability} was withheld", device=device_id, capability=capability)
        for settled in await self.state.transact(
            lambda unit: request_changes.fail_capability(unit, device_id, capability, error)
        ):
            self._send_cancel(settled, "the capability was withheld")
            self._answer(settled)

    async def tend(self) -> None:
        """End silent streams, overdue requests and those of ended devices, until cancelled."""
        while True:
            try:
                await self.tend_once()
            except PalyraError:
                log.exception("devices could not be looked after; will try again")
            interval = min(TEND_SECONDS, self.heartbeat_timeout / 4)
            try:
                async with asyncio.timeout(interval):
                    await self._wake.wait()
            except TimeoutError:
                continue
            # Cleared before the next turn, so that a failing state is not read in a tight loop.
            self._wake.clear()

    async def tend_once(self) -> None:
        for connected in self.registry.silent(self.clock.monotonic(), self.heartbeat_timeout):
            opened = self._lines.get(connected.device_id)
            if opened is not None:
                opened.line.end(connections.SILENT, "no message arrived for too long")
        for device_id in tuple(self._gone):
            for settled in await self.state.transact(partial(request_changes.fail_all_of, device_id=device_id)):
                self._answer(settled)
            self._gone.discard(device_id)
        now = self.clock.now_ms()
        if self.state.read(lambda unit: bool(requests.list_overdue(unit.requests.list(), now))):
            spared = frozenset(self._waiting)
            for settled in await self.state.transact(lambda unit: request_changes.time_out_overdue(unit, spared)):
                self._count(settled)
                self._send_cancel(settled, "the deadline passed")

    async def _send_waiting(self, device_id: DeviceId, again: tuple[str, ...] = ()) -> None:
        look = self.state.read(
            lambda unit: (
                bool(again)
                or any(one.device_id == device_id and one.state is RequestState.QUEUED for one in unit.requests.list())
            )
        )
        if look:
            for request in await self.state.transact(lambda unit: request_changes.send_waiting(unit, device_id, again)):
                self._send(request)

    def _send(self, request: CapabilityRequestRecord) -> None:
        """Send a request that is on disk as dispatched. An offline device gets it when it is back."""
        opened = self._lines.get(DeviceId(request.device_id))
        left = request.deadline_ms - self.clock.now_ms()
        if opened is None or left <= 0 or request.id in opened.given:
            return
        opened.given.add(request.id)
        opened.line.send(
            Dispatch(request.id, request.capability, request.input_json.encode(), left, self.max_result_bytes)
        )

    def _answer(self, settled: Settled) -> None:
        if settled.request is None:
            return
        self._count(settled)
        opened = self._lines.get(DeviceId(settled.request.device_id))
        if opened is not None:
            opened.given.discard(settled.request.id)
        waiter = self._waiting.get(settled.request.id)
        if waiter is None or waiter.done():
            return
        if settled.error is not None:
            waiter.set_exception(settled.error)
        else:
            waiter.set_result(settled.output_json)

    def _count(self, settled: Settled) -> None:
        if settled.request is not None:
            self.on_ended(settled.request.state.value)
