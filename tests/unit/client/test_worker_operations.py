import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import Operation, Request, Response

WORKER = {"worker_id": "01W", "name": "w", "state": "busy", "new_field": 1}
LEASE = {"lease_id": "01L", "worker_id": "01W", "state": "open"}


def exchange(operation: Operation[Any], data: Any) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_workers_are_listed_shown_and_changed() -> None:
    request, found = exchange(admin_operations.workers(), {"workers": [WORKER]})
    assert request.path == "/v1/workers" and found[0].name == "w"
    request, one = exchange(admin_operations.worker("my worker"), WORKER)
    assert request.path == "/v1/workers/my%20worker" and one.document["new_field"] == 1
    request, changed = exchange(admin_operations.change_worker("01W", "drain", reason="r"), WORKER)
    assert (request.method, request.path) == ("POST", "/v1/workers/01W/drain") and changed.state == "busy"
    assert json.loads(request.body) == {"reason": "r"}


def test_leases_are_listed_and_shown() -> None:
    request, found = exchange(admin_operations.leases(), {"leases": [LEASE]})
    assert request.path == "/v1/leases" and found[0].lease_id == "01L"
    request, _ = exchange(admin_operations.leases(worker="w", ended=True), {"leases": []})
    assert request.path == "/v1/leases?worker=w&all=true"
    request, one = exchange(admin_operations.lease("01L"), {**LEASE, "output": {"stdout": "x"}})
    assert request.path == "/v1/leases/01L" and one.output == {"stdout": "x"}
