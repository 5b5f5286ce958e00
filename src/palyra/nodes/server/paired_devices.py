"""The records of paired devices: registration, withheld capabilities, revocation, and views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.clock import Clock, rfc3339
from palyra.devicelink.limits import MAX_PLATFORM_CHARS, MAX_REASON_CHARS, MAX_VERSION_CHARS
from palyra.devicelink.server.connections import CONTESTED, NodeRegistry
from palyra.identity.device import DeviceId, DeviceKind, actor_of
from palyra.nodes.domain import capability as capabilities
from palyra.nodes.domain.capability import accept_inventory, find_device, readable, withhold
from palyra.nodes.domain.rate_limits import NEWS, DeviceRates
from palyra.nodes.domain.records import CapabilityRequestRecord, DeviceCapabilityView, NodeRecord
from palyra.nodes.server.dispatcher import Dispatcher
from palyra.nodes.store.port import NodeState, NodeUnit
from palyra.store.event import NewEvent

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager

# The newest requests, shown with one device.
MAX_SHOWN_REQUESTS = 20
# How old the cached records may be when a message is checked: another process may have revoked a device.
RECHECK_SECONDS = 0.25


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    software_version: str
    capabilities: tuple[DeviceCapabilityView, ...]


@dataclass(eq=False, repr=False, kw_only=True)
class PairedDevices:
    state: NodeState
    registry: NodeRegistry
    dispatcher: Dispatcher
    identities: "Callable[[], IdentityManager]"
    clock: Clock

    def __post_init__(self) -> None:
        self._paired: dict[str, NodeRecord] = {}
        self._read_at = float("-inf")
        self._news = DeviceRates(NEWS)

    def nodes(self) -> Sequence[NodeRecord]:
        return self.state.read(lambda unit: unit.nodes.list())

    def online(self) -> list[str]:
        return list(self.registry.online())

    def is_paired(self, device_id: str) -> bool:
        """Return whether a device is paired, by records read at most ``RECHECK_SECONDS`` ago."""
        return self._find_recent(device_id) is not None

    def _find_recent(self, device_id: str) -> NodeRecord | None:
        """Return the record of a paired device, from the cache if it is recent.

        For an unknown device the state is read at once, because it may have been paired since.
        """
        now = self.clock.monotonic()
        if device_id not in self._paired or now - self._read_at > RECHECK_SECONDS:
            self._paired = {node.id: node for node in self.nodes() if node.revoked_ms is None}
            self._read_at = now
        return self._paired.get(device_id)

    async def register(self, device_id: DeviceId, registration: Registration) -> NodeRecord:
        """Register a device. An unchanged registration writes nothing."""
        recent = self._find_recent(device_id)
        known = None if recent is None or recent.registered_ms is None else recent
        if known is None or not _is_unchanged(known, registration):
            # The rate limit comes first: a check of an inventory costs more than sending one.
            self._news.take(device_id, self.clock.monotonic())
        if known is not None and _apply_registration(known, registration, 0) == known:
            return known
        try:
            return await self.state.transact(lambda unit: self._register(unit, device_id, registration))
        finally:
            self._forget()

    def _register(self, unit: NodeUnit, device_id: DeviceId, registration: Registration) -> NodeRecord:
        before = unit.nodes.get(device_id)
        if before is None:
            raise capabilities.UnknownDevice("the device is not paired", device=device_id)
        node = _apply_registration(before, registration, unit.now_ms)
        unit.nodes.put(node)
        unit.append(
            _event(
                "node.registered",
                node.id,
                node.name,
                actor=_device(device_id),
                platform=node.platform,
                software_version=node.software_version,
                capabilities=[one.name for one in node.capabilities],
                withheld=list(node.withheld),
            )
        )
        return node

    async def note_connected(
        self, device_id: DeviceId, *, generation: int, address: str, replaced: bool, takeovers: int = 0
    ) -> None:
        def work(unit: NodeUnit) -> None:
            payload: dict[str, Any] = {"generation": generation, "address": address, "replaced": replaced}
            unit.append(_event("node.connected", *_names(unit, device_id), actor=_device(device_id), **payload))
            if takeovers == CONTESTED:
                about: dict[str, Any] = {"generation": generation, "address": address, "takeovers": takeovers}
                unit.append(_event("node.contested", *_names(unit, device_id), actor=_device(device_id), **about))

        await self.state.transact(work)

    async def note_disconnected(self, device_id: DeviceId, code: str, seconds: float) -> None:
        def work(unit: NodeUnit) -> None:
            payload: dict[str, Any] = {"code": code, "connected_seconds": round(seconds, 3)}
            unit.append(_event("node.disconnected", *_names(unit, device_id), actor=_device(device_id), **payload))

        await self.state.transact(work)

    async def set_withheld(self, asked: str, name: str, *, withheld: bool, actor: str) -> NodeRecord:
        def work(unit: NodeUnit) -> NodeRecord:
            node = withhold(find_device(unit.nodes.list(), asked), name, withheld=withheld)
            unit.nodes.put(node)
            kind = "node.capability_withheld" if withheld else "node.capability_allowed"
            unit.append(_event(kind, node.id, node.name, actor=actor, capability=name))
            return node

        node = await self.state.transact(work)
        self._forget()
        if withheld:
            await self.dispatcher.end_withheld(node.id, name)
        return node

    async def revoke(self, asked: str, *, reason: str, actor: str) -> NodeRecord:
        """End a device's access. Its certificates come first, so that a crash leaves only the record to change."""
        node = find_device(self.nodes(), asked)
        await self.identities().revoke(DeviceId(node.id), reason=readable(reason, MAX_REASON_CHARS), actor=actor)
        return await self.note_revoked(node.id, reason=reason, actor=actor)

    async def note_revoked(self, device_id: str, *, reason: str, actor: str) -> NodeRecord:
        def work(unit: NodeUnit) -> NodeRecord:
            node = unit.nodes.get(device_id)
            if node is None:
                raise capabilities.UnknownDevice("there is no such device", device=device_id)
            if node.revoked_ms is not None:
                return node
            kept = readable(reason, MAX_REASON_CHARS)
            node = msgspec.structs.replace(node, revoked_ms=unit.now_ms, revoked_reason=kept)
            unit.nodes.put(node)
            unit.append(_event("node.revoked", node.id, node.name, actor=actor, reason=kept))
            return node

        node = await self.state.transact(work)
        self._forget()
        self.dispatcher.end_device(device_id, "identity.revoked")
        return node

    def _forget(self) -> None:
        self._read_at = float("-inf")

    def view(self, node: NodeRecord, *, requests: bool = False) -> dict[str, Any]:
        """Make the view of a device for the API, the console and the command line."""
        connected = self.registry.get(node.id)
        shown: dict[str, Any] = {
            "device_id": str(node.id),
            "name": node.name,
            "platform": node.platform,
            "software_version": node.software_version,
            "state": "revoked" if node.revoked_ms is not None else "offline" if connected is None else "online",
            "paired_at": rfc3339(node.paired_ms),
            "connected_since": None if connected is None else rfc3339(connected.since_ms),
            "certificate_generation": None if connected is None else connected.generation,
            # Two parties replace each other with one certificate: it was copied, and should be revoked.
            "contested": connected is not None and connected.takeovers >= CONTESTED,
            "capabilities": [_capability_view(one) for one in node.capabilities],
            "withheld": list(node.withheld),
        }
        if node.revoked_ms is not None:
            shown |= {"revoked_at": rfc3339(node.revoked_ms), "revoked_reason": node.revoked_reason}
        if requests:
            all_of = self.state.read(lambda unit: [one for one in unit.requests.list() if one.device_id == node.id])
            shown["requests"] = [_request_view(one) for one in reversed(all_of[-MAX_SHOWN_REQUESTS:])]
        return shown

    def find(self, asked: str) -> NodeRecord:
        """Find a device, also a revoked one by its id."""
        nodes = self.nodes()
        return next((node for node in nodes if node.id == asked), None) or find_device(nodes, asked)


def _apply_registration(node: NodeRecord, registration: Registration, now_ms: int) -> NodeRecord:
    """Make the record after a registration. The device keeps its approved name."""
    return msgspec.structs.replace(
        node,
        platform=readable(registration.platform, MAX_PLATFORM_CHARS) or node.platform,
        software_version=readable(registration.software_version, MAX_VERSION_CHARS) or node.software_version,
        capabilities=accept_inventory(registration.capabilities, node.withheld, node.capabilities),
        registered_ms=now_ms or node.registered_ms,
    )


def _is_unchanged(node: NodeRecord, registration: Registration) -> bool:
    """Compare a registration with the record, without checking it."""
    known = {one.name: msgspec.structs.replace(one, withheld=False) for one in node.capabilities}
    return (
        registration.platform in ("", node.platform)
        and registration.software_version in ("", node.software_version)
        and len(registration.capabilities) == len(known)
        and all(known.get(one.name) == one for one in registration.capabilities)
    )


def _event(kind: str, device_id: str, name: str, *, actor: str, **payload: Any) -> NewEvent:
    return NewEvent(kind=kind, actor=actor, payload={"device_id": device_id, "name": name, **payload})


def _names(unit: NodeUnit, device_id: DeviceId) -> tuple[str, str]:
    node = unit.nodes.get(device_id)
    return device_id, "" if node is None else node.name


def _device(device_id: DeviceId) -> str:
    return actor_of(DeviceKind.NODE, device_id)


def _capability_view(one: DeviceCapabilityView) -> dict[str, Any]:
    shown = msgspec.to_builtins(one)
    schema = shown.pop("input_schema_json")
    return {**shown, "input_schema": msgspec.json.decode(schema) if schema else None}


def _request_view(request: CapabilityRequestRecord) -> dict[str, Any]:
    return {
        "request_id": str(request.id),
        "capability": request.capability,
        "state": request.state.value,
        "principal": request.principal,
        "call_id": request.call_id or None,
        "created_at": rfc3339(request.created_ms),
        "deadline_at": rfc3339(request.deadline_ms),
        "ended_at": None if request.finished_ms is None else rfc3339(request.finished_ms),
        "error": request.error_code or None,
    }
