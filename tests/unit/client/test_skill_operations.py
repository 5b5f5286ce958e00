import base64
import json
from typing import Any

import pytest

from palyra.client import admin_operations
from palyra.client.protocol import BadAnswer, Operation, Request, Response

VERSION = {"skill_id": "acme.notes", "version": "1.0.0", "digest": "ab", "state": "quarantined", "new_field": 1}


def exchange(operation: Operation[Any], data: Any) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_an_archive_goes_as_it_is_and_with_patience() -> None:
    for operation, path in (
        (admin_operations.install_skill(b"PK"), "/v1/skills"),
        (admin_operations.audit_skill(b"PK"), "/v1/skills/audit"),
    ):
        request, view = exchange(operation, VERSION)
        assert (request.method, request.path, request.body) == ("POST", path, b"PK")
        headers = dict(request.wire_headers("localhost"))
        assert headers[b"content-type"] == b"application/octet-stream" and request.patience_ms > 0
        assert view.digest == "ab" and view.document["new_field"] == 1


def test_every_change_names_what_it_means() -> None:
    request, _ = exchange(admin_operations.approve_skill("acme.notes", "1.0.0", "ab", reason="r"), VERSION)
    assert request.path == "/v1/skills/acme.notes/approve"
    assert json.loads(request.body) == {"version": "1.0.0", "digest": "ab", "reason": "r"}
    request, _ = exchange(admin_operations.change_skill("acme.notes", "rollback", version="1.0.0"), VERSION)
    assert request.path == "/v1/skills/acme.notes/rollback" and json.loads(request.body) == {"version": "1.0.0"}
    request, removed = exchange(admin_operations.remove_skill("a", version="1.0.0"), {"removed": [VERSION]})
    assert (request.method, request.path) == ("DELETE", "/v1/skills/a?version=1.0.0") and removed[0].version == "1.0.0"
    request, erased = exchange(admin_operations.purge_skill("a"), {"values": 2, "bytes": 9})
    assert (request.method, request.path) == ("DELETE", "/v1/skills/a/data") and erased.bytes == 9
    request, whole = exchange(admin_operations.configure_skill("a", {"n": 1}), {"configuration": {"n": 1, "m": 2}})
    assert request.method == "PUT" and whole == {"n": 1, "m": 2}


def test_publishers_and_their_keys() -> None:
    key = {"publisher": "acme", "key_id": "ed25519:00", "state": "active"}
    request, view = exchange(admin_operations.add_publisher("acme", b"\1" * 32), key)
    assert base64.b64decode(json.loads(request.body)["public_key"]) == b"\1" * 32 and view.state == "active"
    request, _ = exchange(admin_operations.remove_publisher("acme", "ed25519:00"), key)
    assert request.path == "/v1/publishers/acme/ed25519%3A00"
    request, _ = exchange(admin_operations.rotate_publisher("{}"), key)
    assert json.loads(request.body) == {"statement": "{}"}
    request, disabled = exchange(admin_operations.revoke_key("ed25519:00"), {"disabled": [VERSION]})
    assert request.path == "/v1/publishers/revocation" and disabled[0].skill_id == "acme.notes"
    _, listed = exchange(admin_operations.publishers(), {"keys": [key], "revoked": []})
    assert listed.keys == (key,)


def test_lists_and_one() -> None:
    request, skills = exchange(admin_operations.skills(), {"skills": [{"skill_id": "a", "active_version": None}]})
    assert request.path == "/v1/skills" and [one.skill_id for one in skills] == ["a"]
    request, _ = exchange(admin_operations.skills(removed=True), {"skills": []})
    assert request.path == "/v1/skills?all=true"
    request, one = exchange(admin_operations.skill("a/../b"), {"skill_id": "x", "history": [{}]})
    assert request.path == "/v1/skills/a%2F..%2Fb" and one.history == ({},)


def test_an_answer_without_a_configuration_is_none() -> None:
    operation = admin_operations.configure_skill("a", {})
    next(operation)
    with pytest.raises(BadAnswer):
        operation.send(Response(status=200, headers=(), body=b'{"ok": true, "data": {}}'))
