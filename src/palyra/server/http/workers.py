"""``/v1/workers``: the fleet's workers and leases, and what an operator decides about them."""

import asyncio
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.errors import InvalidInput
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.worker import UnknownWorker, WorkerRecord
from palyra.fleet.limits import MAX_REASON_CHARS
from palyra.server.context import ApiService, Fleet
from palyra.server.http.envelope import answer, read_into, read_query, to_view
from palyra.server.http.route_schema import describe
from palyra.server.http.views import (
    LeaseData,
    LeaseList,
    LeaseWithOutput,
    WorkerAttestationData,
    WorkerData,
    WorkerList,
    WorkerWithLeases,
)

# Standard output and standard error, as the wire numbers them.
_STREAMS = {"stdout": 1, "stderr": 2}


class AmbiguousWorker(InvalidInput):
    code = "worker.ambiguous_name"
    hint = "name the worker by its id; `palyra worker list` shows it"
    http_status = 409


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class LeaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """``all=true`` asks for ended leases too."""

    worker: str = ""
    all: Literal["true", "false"] = "false"
    before: Annotated[str, msgspec.Meta(max_length=64)] = ""


@describe("The workers of the fleet.", data=WorkerList)
async def list_workers(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    found = await asyncio.to_thread(service.workers().workers)
    return answer({"workers": [worker_view(one) for one in found]})


@describe("One worker with its open leases.", data=WorkerWithLeases)
async def show_worker(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    fleet = service.workers()
    record = await asyncio.to_thread(find_worker, fleet, request.path_params["worker"])
    leases = await asyncio.to_thread(fleet.ledger.leases, record.worker_id)
    return answer({**worker_view(record), "leases": [lease_view(one) for one in leases]})


@describe("Drains, resumes, quarantines, releases or removes a worker.", body=WorkerBody, data=WorkerData)
async def change_worker(service: ApiService, request: Request) -> Response:
    """Apply the change that the last word of the path names."""
    caller = service.admit_operator(request, "device.manage")
    body = await read_into(request, WorkerBody)
    fleet, change = service.workers(), request.url.path.rpartition("/")[2]
    name = request.path_params["worker"]
    return answer(await apply_worker_change(fleet, name, change, reason=body.reason, actor=caller.actor))


async def apply_worker_change(fleet: Fleet, name: str, change: str, *, reason: str, actor: str) -> WorkerData:
    record = await asyncio.to_thread(find_worker, fleet, name)
    named = {"actor": actor, "worker_id": record.worker_id}
    match change:
        case "drain":
            await fleet.decide(commands.DrainWorker(**named, reason=reason))
        case "resume":
            await fleet.decide(commands.ResumeWorker(**named))
        case "quarantine":
            await fleet.decide(commands.QuarantineWorker(**named, reason=reason or "an operator's decision"))
        case "release":
            await fleet.decide(commands.ReleaseWorker(**named, reason=reason))
        case "remove":
            await fleet.remove(record.worker_id, reason=reason, actor=actor)
    return worker_view(await asyncio.to_thread(fleet.ledger.worker, record.worker_id))


@describe("Leases, the newest first.", query=LeaseQuery, data=LeaseList)
async def list_leases(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    fleet, query = service.workers(), read_query(request, LeaseQuery)
    worker_id = ""
    if query.worker:
        worker_id = (await asyncio.to_thread(find_worker, fleet, query.worker)).worker_id
    leases = await asyncio.to_thread(
        lambda: fleet.ledger.leases(worker_id, only_open=query.all != "true", before=query.before)
    )
    return answer({"leases": [lease_view(one) for one in leases]})


@describe("One lease with the end of what its call has printed.", data=LeaseWithOutput)
async def show_lease(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    fleet = service.workers()
    lease = await asyncio.to_thread(fleet.ledger.lease, request.path_params["lease_id"])
    output = {
        name: fleet.output.tail(lease.lease_id, stream).decode("utf-8", "replace") for name, stream in _STREAMS.items()
    }
    return answer({**lease_view(lease), "output": output})


def find_worker(fleet: Fleet, name: str) -> WorkerRecord:
    """Find a worker by its id, or by the name it was paired under."""
    try:
        return fleet.ledger.worker(name)
    except UnknownWorker:
        found = [one for one in fleet.workers() if one.name == name and one.state.value != "removed"]
        if len(found) > 1:
            raise AmbiguousWorker(f"{len(found)} workers are named {name[:64]!r}") from None
        if not found:
            raise
        return found[0]


def worker_view(worker: WorkerRecord) -> WorkerData:
    attested = worker.attested
    attestation = None
    if attested is not None:
        attestation = to_view(WorkerAttestationData, attested, capabilities=sorted(attested.capabilities))
    return to_view(
        WorkerData,
        worker,
        since=rfc3339(worker.since_ms),
        open_leases=len(worker.open_leases),
        owes_cleanup=len(worker.owes),
        attestation=attestation,
    )


def lease_view(lease: WorkerLease) -> LeaseData:
    return to_view(LeaseData, lease, ended_at=rfc3339(lease.ended_ms) if lease.ended_ms else None)
