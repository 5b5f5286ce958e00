"""Nodes and workers: codes for new devices, requests to join, paired devices, and the fleet with its leases."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from palyra.clock import rfc3339
from palyra.devicelink.limits import MAX_CAPABILITY_NAME_CHARS, MAX_REASON_CHARS
from palyra.devicelink.pairing.code import PairingMethod
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import CodeState, NodeRecord, PairingState
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.server.console.svg import qr_path
from palyra.server.http.devices import (
    PairingCodeBody,
    PairingDecisionBody,
    admit_pairing_decision,
    apply_pairing_decision,
    code_view,
)
from palyra.server.http.workers import apply_worker_change, lease_view, worker_view

Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]
# Decided requests on the page, below those that wait.
DECIDED = 10


class WithdrawBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request that withdraws a code: it has no fields."""


class NodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["revoke", "withhold", "allow"]
    capability: Annotated[str, msgspec.Meta(max_length=MAX_CAPABILITY_NAME_CHARS)] = ""
    reason: Reason = ""


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["drain", "resume", "quarantine", "release", "remove"]
    reason: Reason = ""


async def show_devices(console: Console, _visit: Visit) -> dict[str, Any]:
    devices = await console.service.nodes()
    fleet = console.service.workers()
    pairings = await devices.pairing.pairings()
    workers = await asyncio.to_thread(fleet.workers)
    leases = await asyncio.to_thread(lambda: fleet.ledger.leases("", only_open=True))
    return {
        # A used code admits nobody else. The page shows its request instead.
        "codes": [code for code in await devices.pairing.codes() if code.state is CodeState.LIVE],
        "asking": [each for each in pairings if each.state is PairingState.PENDING_APPROVAL],
        "decided": [each for each in pairings if each.state is not PairingState.PENDING_APPROVAL][:DECIDED],
        "nodes": [_node_view(node, devices.node_service.view(node)) for node in devices.node_service.nodes()],
        "workers": workers,
        "names": {worker.worker_id: worker.name for worker in workers},
        "leases": leases,
    }


def _node_view(node: NodeRecord, view: dict[str, Any]) -> dict[str, Any]:
    """Show no connection of a worker or its proxy here: the list of the fleet has their state."""
    other = node.kind is not DeviceKind.NODE and view["state"] == "offline"
    return {**view, "kind": node.kind.value, "state": "paired" if other else view["state"]}


async def console_nodes_list_handler(console: Console, _visit: Visit) -> dict[str, Any]:
    nodes = (await console.service.nodes()).node_service
    return {"nodes": [nodes.view(node) for node in nodes.nodes()]}


async def list_workers(console: Console, _visit: Visit) -> dict[str, Any]:
    fleet = console.service.workers()
    workers = await asyncio.to_thread(fleet.workers)
    leases = await asyncio.to_thread(lambda: fleet.ledger.leases("", only_open=True))
    return {"workers": [worker_view(one) for one in workers], "leases": [lease_view(one) for one in leases]}


async def make_code(console: Console, visit: Visit, body: PairingCodeBody) -> dict[str, Any]:
    """Return the code, this once: nothing keeps it, also not the record of this action."""
    console.service.require_operator(visit.caller, "device.pair", kind=body.kind.value)
    pairing = (await console.service.nodes()).pairing
    made = await pairing.make_code(body.method, body.kind, actor=visit.caller.actor, ttl_seconds=body.ttl_seconds)
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
    pairing = (await console.service.nodes()).pairing
    return code_view(await pairing.withdraw_code(visit.path("code_id"), actor=visit.caller.actor))


async def decide_pairing(console: Console, visit: Visit, body: PairingDecisionBody) -> Any:
    pairing_id = visit.path("pairing_id")
    pairing = await admit_pairing_decision(console.service, visit.caller, pairing_id)
    return await apply_pairing_decision(pairing, pairing_id, body, visit.caller.actor)


async def change_node(console: Console, visit: Visit, body: NodeBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "device.manage")
    nodes, device = (await console.service.nodes()).node_service, visit.path("device")
    if body.change == "revoke":
        return nodes.view(await nodes.revoke(device, reason=body.reason, actor=visit.caller.actor))
    return nodes.view(
        await nodes.set_withheld(device, body.capability, withheld=body.change == "withhold", actor=visit.caller.actor)
    )


async def change_worker(console: Console, visit: Visit, body: WorkerBody) -> Any:
    console.service.require_operator(visit.caller, "device.manage")
    fleet, actor = console.service.workers(), visit.caller.actor
    return await apply_worker_change(fleet, visit.path("worker"), body.change, reason=body.reason, actor=actor)


SECTION = Section(
    pages=(
        Page(
            path="/devices",
            template="devices.html",
            title="Nodes and workers",
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
