"""The endpoints for the worker fleet."""

from palyra.client.protocol import Operation, convert_view, convert_views, get, path_of, read_answer, send_json
from palyra.client.views import LeaseView, WorkerView


def workers() -> Operation[tuple[WorkerView, ...]]:
    """Every worker of the fleet, removed ones included for a while."""
    response = yield get(path_of("v1", "workers"))
    return convert_views(read_answer(response), "workers", WorkerView)


def worker(worker: str) -> Operation[WorkerView]:
    """One worker, by id or name, with its open leases."""
    response = yield get(path_of("v1", "workers", worker))
    return convert_view(read_answer(response), WorkerView)


def change_worker(worker: str, change: str, *, reason: str | None = None) -> Operation[WorkerView]:
    """``change`` is drain, resume, quarantine, release or remove."""
    response = yield send_json("POST", path_of("v1", "workers", worker, change), {"reason": reason})
    return convert_view(read_answer(response), WorkerView)


def leases(*, worker: str | None = None, ended: bool = False) -> Operation[tuple[LeaseView, ...]]:
    """The open leases, newest first; with ``ended`` those that are over as well, as far as the ledger keeps them."""
    query = {"worker": worker, "all": "true" if ended else None}
    response = yield get(path_of("v1", "leases", query=query))
    return convert_views(read_answer(response), "leases", LeaseView)


def lease(lease_id: str) -> Operation[LeaseView]:
    """One lease, with the end of what its call has printed while it runs."""
    response = yield get(path_of("v1", "leases", lease_id))
    return convert_view(read_answer(response), LeaseView)
