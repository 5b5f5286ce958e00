import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import Operation, Request, Response
from palyra.client.views import IdentityView

DATA = {"trust_domain": "palyra-x", "authorities": [{"state": "current"}], "devices": [], "new_field": 1}


def exchange(operation: Operation[IdentityView]) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": DATA}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_identity_is_asked_for_and_kept_whole() -> None:
    request, view = exchange(admin_operations.identity())
    assert (request.method, request.path) == ("GET", "/v1/identity")
    assert view.trust_domain == "palyra-x" and view.document["new_field"] == 1


def test_a_rotation_says_nothing_more() -> None:
    request, view = exchange(admin_operations.rotate_authority())
    assert (request.method, request.path, json.loads(request.body)) == ("POST", "/v1/identity/rotation", {})
    assert view.authorities == [{"state": "current"}]
