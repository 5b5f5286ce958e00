import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import Operation, Request, Response

SERVER = {"name": "clock", "command": ["x"], "tools": [{"tool": "get"}], "new_field": 1}


def exchange(operation: Operation[Any], data: Any) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_servers_are_listed_shown_looked_at_and_approved() -> None:
    request, found = exchange(admin_operations.mcp_servers(), {"servers": [SERVER]})
    assert request.path == "/v1/mcp/servers" and found[0].name == "clock"
    request, one = exchange(admin_operations.mcp_server("a b"), SERVER)
    assert request.path == "/v1/mcp/servers/a%20b" and one.document["new_field"] == 1
    request, _ = exchange(admin_operations.look_at_mcp_server("clock"), SERVER)
    assert (request.method, request.path) == ("POST", "/v1/mcp/servers/clock/look") and request.patience_ms > 0
    request, _ = exchange(admin_operations.approve_mcp_tools("clock", {"get": "d"}), SERVER)
    assert json.loads(request.body) == {"tools": {"get": "d"}}
