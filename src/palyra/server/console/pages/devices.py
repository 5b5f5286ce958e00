"""Nodes and workers: codes for new devices, who asks to join, what is paired, and the fleet with its leases."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from palyra.clock import rfc3339
from palyra.devicelink.limits import MAX_CAPABILITY_NAME_CHARS, MAX_REASON_CHARS
from palyra.devicelink.pairing.code import PairingMethod
from palyra.fleet.domain import commands
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import CodeState, NodeRecord, PairingState
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.server.console.svg import qr_path
from palyra.server.http.devices import PairingCodeBody, PairingDecisionBody, code_view, pairing_view
from palyra.server.http.workers import find_worker, lease_view, worker_view

Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]
# Decided requests shown below those that wait.
DECIDED = 10


class WithdrawBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Taking a code back needs nothing but its id."""


class NodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["revoke", "withhold", "allow"]
    capability: Annotated[str, msgspec.Meta(max_length=MAX_CAPABILITY_NAME_CHARS)] = ""
    reason: Reason = ""


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["drain", "resume", "quarantine", "release", "remove"]
    reason: Reason = ""


async def show_devices(console: Console, _visit: Visit) -> dict[str, Any]:
    desks = await console.service.nodes()
    fleet = console.service.workers()
    pairings = await desks.pairing.pairings()
    workers = await asyncio.to_thread(fleet.workers)
    leases = await asyncio.to_thread(lambda: fleet.ledger.leases("", only_open=True))
    return {
        # One that was used is of no use to anybody else: its request is shown instead.
        "codes": [code for code in await desks.pairing.codes() if code.state is CodeState.LIVE],
        "asking": [each for each in pairings if each.state is PairingState.PENDING_APPROVAL],
        "decided": [each for each in pairings if each.state is not PairingState.PENDING_APPROVAL][:DECIDED],
        "nodes": [_shown(node, desks.desk.view(node)) for node in desks.desk.nodes()],
        "workers": workers,
        "names": {worker.worker_id: worker.name for worker in workers},
        "leases": leases,
    }


def _shown(node: NodeRecord, view: dict[str, Any]) -> dict[str, Any]:
    """Only nodes have a connection to be on or off: a worker's state is in the fleet's list, its proxy's with it."""
    elsewhere = node.kind is not DeviceKind.NODE and view["state"] == "offline"
    return {**view, "kind": node.kind.value, "state": "paired" if elsewhere else view["state"]}


async def console_nodes_list_handler(console: Console, _visit: Visit) -> dict[str, Any]:
    desk = (await console.service.nodes()).desk
    return {"nodes": [desk.view(node) for node in desk.nodes()]}


async def list_workers(console: Console, _visit: Visit) -> dict[str, Any]:
    fleet = console.service.workers()
    workers = await asyncio.to_thread(fleet.workers)
    leases = await asyncio.to_thread(lambda: fleet.ledger.leases("", only_open=True))
    return {"workers": [worker_view(one) for one in workers], "leases": [lease_view(one) for one in leases]}


async def make_code(console: Console, visit: Visit, body: PairingCodeBody) -> dict[str, Any]:
    """A code as it is shown, once: nothing keeps it, the record of this action neither."""
    console.service.require_operator(visit.caller, "device.pair", kind=body.kind.value)
    desk = (await console.service.nodes()).pairing
    made = await desk.make_code(body.method, body.kind, actor=visit.caller.actor, ttl_seconds=body.ttl_seconds)
    shown: dict[str, Any] = msgspec.to_builtins(code_view(made.record))
    shown |= {
        "code": made.text.reveal(),
        "addresses": [str(address) for address in made.addresses],
        "expires_at": rfc3339(made.record.expires_ms),
    }
    if made.record.method is PairingMethod.QR:
        shown["qr"] = msgspec.to_builtins(await asyncio.to_thread(qr_path, made.text))
    return shown


async def withdraw_code(console: Console, visit: Visit, _body: WithdrawBody) -> Any:
    console.service.require_operator(visit.caller, "device.pair", kind="any")
    desk = (await console.service.nodes()).pairing
    return code_view(await desk.withdraw_code(visit.path("code_id"), actor=visit.caller.actor))


async def decide_pairing(console: Console, visit: Visit, body: PairingDecisionBody) -> Any:
    service, pairing_id = console.service, visit.path("pairing_id")
    service.require_operator(visit.caller, "device.pair", kind="any")
    desk = (await service.nodes()).pairing
    service.require_operator(visit.caller, "device.pair", kind=(await desk.pairing(pairing_id)).kind.value)
    actor, reason = visit.caller.actor, body.reason or ""
    if body.decision == "approve":
        return pairing_view(
            await desk.approve(pairing_id, actor=actor, comparison_code=body.comparison_code, reason=reason)
        )
    return pairing_view(await desk.reject(pairing_id, actor=actor, reason=reason))


async def change_node(console: Console, visit: Visit, body: NodeBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "device.manage")
    desk, device = (await console.service.nodes()).desk, visit.path("device")
    if body.change == "revoke":
        return desk.view(await desk.revoke(device, reason=body.reason, actor=visit.caller.actor))
    return desk.view(
        await desk.set_withheld(device, body.capability, withheld=body.change == "withhold", actor=visit.caller.actor)
    )


async def change_worker(console: Console, visit: Visit, body: WorkerBody) -> Any:
    console.service.require_operator(visit.caller, "device.manage")
    fleet = console.service.workers()
    record = await asyncio.to_thread(find_worker, fleet, visit.path("worker"))
    named = {"actor": visit.caller.actor, "worker_id": record.worker_id}
    match body.change:
        case "drain":
            await fleet.decide(commands.DrainWorker(**named, reason=body.reason))
        case "resume":
            await fleet.decide(commands.ResumeWorker(**named))
        case "quarantine":
            await fleet.decide(commands.QuarantineWorker(**named, reason=body.reason or "an operator's decision"))
        case "release":
            await fleet.decide(commands.ReleaseWorker(**named, reason=body.reason))
        case "remove":
            await fleet.remove(record.worker_id, reason=body.reason, actor=visit.caller.actor)
    return worker_view(await asyncio.to_thread(fleet.ledger.worker, record.worker_id))


SECTION = Section(
    pages=(
        Page(
            path="/devices",
            template="devices.html",
            title="Nodes and workers",
            menu="Nodes and workers",
            icon="devices",
            show=show_devices,
            live=("pairing.", "node", "worker.", "lease.", "identity."),
        ),
    ),
    listings=(
        Listing(path="/console/v1/nodes", show=console_nodes_list_handler),
        Listing(path="/console/v1/workers", show=list_workers),
    ),
    writes=(
        Write(
            path="/console/v1/pairing/codes",
            name="pairing.make_code",
            act=make_code,
            body=PairingCodeBody,
            shown_once=True,
        ),
        Write(
            path="/console/v1/pairing/codes/{code_id}/withdraw",
            name="pairing.withdraw_code",
            act=withdraw_code,
            body=WithdrawBody,
        ),
        Write(
            path="/console/v1/pairing/requests/{pairing_id}/decision",
            name="pairing.decide",
            act=decide_pairing,
            body=PairingDecisionBody,
        ),
        Write(path="/console/v1/nodes/{device}/change", name="node.change", act=change_node, body=NodeBody),
        Write(path="/console/v1/workers/{worker}/change", name="worker.change", act=change_worker, body=WorkerBody),
    ),
)
