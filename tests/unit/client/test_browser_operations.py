import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import Operation, Request, Response

SESSION = {"session_id": "01S", "principal": "agent:a", "run_id": "01R", "hosts": ["a.test"], "new_field": 1}
DOWNLOAD = {"id": "01D", "name": "a.csv", "state": "quarantined"}
PROFILE = {"profile_id": "01P", "principal": "agent:a", "name": "work"}


def exchange(operation: Operation[Any], data: Any) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_sessions_are_listed_shown_and_changed() -> None:
    request, found = exchange(admin_operations.browser_sessions(), {"sessions": [SESSION]})
    assert request.path == "/v1/browser/sessions" and found[0].hosts == ("a.test",)
    request, one = exchange(admin_operations.browser_session("a/b"), SESSION)
    assert request.path == "/v1/browser/sessions/a%2Fb" and one.document["new_field"] == 1
    request, _ = exchange(admin_operations.change_browser_session("01S", "takeover", reason="x"), SESSION)
    assert (request.method, request.path) == ("POST", "/v1/browser/sessions/01S/takeover")
    assert json.loads(request.body) == {"reason": "x"}


def test_downloads_are_listed_released_and_deleted() -> None:
    request, found = exchange(admin_operations.browser_downloads("01S"), {"downloads": [DOWNLOAD]})
    assert request.path == "/v1/browser/sessions/01S/downloads" and found[0].state == "quarantined"
    request, _ = exchange(admin_operations.decide_browser_download("01S", "01D", "release"), DOWNLOAD)
    assert (request.method, request.path) == ("POST", "/v1/browser/sessions/01S/downloads/01D/release")
    request, _ = exchange(admin_operations.decide_browser_download("01S", "01D", "delete"), DOWNLOAD)
    assert (request.method, request.path) == ("DELETE", "/v1/browser/sessions/01S/downloads/01D")


def test_profiles_are_listed_made_and_changed() -> None:
    request, found = exchange(admin_operations.browser_profiles(), {"profiles": [PROFILE]})
    assert request.path == "/v1/browser/profiles" and found[0].name == "work"
    request, _ = exchange(admin_operations.create_browser_profile("agent:a", "work", private=True), PROFILE)
    assert json.loads(request.body) == {"principal": "agent:a", "name": "work", "private": True}
    for change, method, path in (("reset", "POST", "/01P/reset"), ("delete", "DELETE", "/01P")):
        request, _ = exchange(admin_operations.change_browser_profile("01P", change), PROFILE)  # type: ignore[arg-type]
        assert (request.method, request.path) == (method, f"/v1/browser/profiles{path}")
    request, accepted = exchange(admin_operations.accept_browser_profiles(), {"heard": 9, "found": 5, "generation": 10})
    assert (request.method, request.path) == ("POST", "/v1/browser/profiles/accept")
    assert (accepted.last_known, accepted.found, accepted.generation) == (9, 5, 10)
