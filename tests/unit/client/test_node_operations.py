import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import Operation, Request, Response

NODE = {"device_id": "01D", "name": "lap", "state": "online", "capabilities": [{"name": "echo"}], "new_field": 1}


def exchange(operation: Operation[Any], data: Any) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_devices_are_listed_and_shown() -> None:
    request, found = exchange(admin_operations.nodes(), {"nodes": [NODE]})
    assert (request.method, request.path) == ("GET", "/v1/nodes") and found[0].name == "lap"
    request, one = exchange(admin_operations.node("my lap/top"), NODE)
    assert request.path == "/v1/nodes/my%20lap%2Ftop" and one.document["new_field"] == 1


def test_changes_name_the_device_and_what_of_it() -> None:
    request, _ = exchange(admin_operations.revoke_node("01D", reason="lost"), NODE)
    assert (request.path, json.loads(request.body)) == ("/v1/nodes/01D/revoke", {"reason": "lost"})
    request, _ = exchange(admin_operations.revoke_node("01D"), NODE)
    assert json.loads(request.body) == {}
    for operation, verb in (
        (admin_operations.withhold_capability, "withhold"),
        (admin_operations.allow_capability, "allow"),
    ):
        request, changed = exchange(operation("01D", "echo"), NODE)
        assert (request.method, request.path) == ("POST", f"/v1/nodes/01D/{verb}") and changed.device_id == "01D"
        assert json.loads(request.body) == {"capability": "echo"}
