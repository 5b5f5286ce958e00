"""Operations as transcripts: no network, no transport."""

import json
from typing import Any

import pytest

from palyra.client import operations
from palyra.client.client import AsyncClient, Client
from palyra.client.protocol import BadAnswer, Operation, Request, Response
from palyra.limits import MAX_CALL_TIMEOUT_MS
from palyra.secret import Secret

CALL = {"call_id": "c", "run_id": "r", "tool": "t", "principal": "agent:a", "status": "succeeded"}


def play(operation: Operation[Any], data: Any, status: int = 200) -> tuple[Request, Any]:
    request = next(operation)
    answer = Response(status=status, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as finished:
        operation.send(answer)
    return request, finished.value.value


def test_a_call_without_arguments_sends_an_empty_object() -> None:
    request, view = play(operations.call("echo"), CALL)
    assert json.loads(request.body) == {"tool": "echo", "arguments": {}}
    assert (request.method, request.path, view.call_id) == ("POST", "/v1/tool-calls", "c")
    assert not request.is_repeatable


def test_patience_covers_the_call_and_the_person() -> None:
    assert play(operations.call("t"), CALL)[0].patience_ms == MAX_CALL_TIMEOUT_MS
    assert play(operations.call("t", timeout_ms=10, wait_ms=5), CALL)[0].patience_ms == 15
    assert play(operations.call_status("c"), CALL)[0].patience_ms == 0


def test_a_token_the_server_does_not_show_is_an_error() -> None:
    operation = operations.create_token("agent:a")
    next(operation)
    with pytest.raises(BadAnswer):
        operation.send(Response(status=201, headers=(), body=b'{"ok":true,"data":{"token_id":"t"}}'))


def test_probes_and_metrics_raise_on_any_other_status() -> None:
    for operation, error in ((operations.health(), operations.NotReady), (operations.metrics(), BadAnswer)):
        next(operation)
        with pytest.raises(error):
            operation.send(Response(status=500, headers=(), body=b"x"))


def test_both_clients_offer_every_operation() -> None:
    offered = {name for name in vars(operations) if name in operations_by_name()}
    for client in (Client, AsyncClient):
        assert all(hasattr(client, name) for name in offered)
    assert {"call", "tools", "approve", "revoke_token", "metrics"} <= offered


def operations_by_name() -> set[str]:
    import inspect

    return {
        name
        for name, value in vars(operations).items()
        if inspect.isfunction(value) and value.__module__ == operations.__name__ and not name.startswith("_")
    }


def test_a_secret_is_one_segment_of_the_path_and_its_value_in_the_body_only() -> None:
    request, view = play(operations.put_secret("principal:user:team/ann/k", Secret("the value")), {"ref": "r"}, 201)
    assert (request.method, request.path) == ("PUT", "/v1/vault/secrets/principal%3Auser%3Ateam%2Fann%2Fk")
    assert json.loads(request.body) == {"value": "the value"} and view.ref == "r"
    assert play(operations.delete_secret("global/k"), {"ref": "r"})[0].method == "DELETE"


def test_secrets_are_listed_by_page_and_rotated_with_patience() -> None:
    request, page = play(operations.secrets("global", after="global/b"), {"secrets": [], "next": "global/c"})
    assert request.path == "/v1/vault/secrets?scope=global&after=global%2Fb" and page.next == "global/c"
    request, done = play(operations.rotate_vault("keyring"), {"key_id": "kek:1", "rewrapped": 3})
    assert request.patience_ms == operations.ROTATION_PATIENCE_MS and done.rewrapped == 3


def test_a_revealed_value_comes_as_a_secret_and_must_be_there() -> None:
    request, value = play(operations.reveal_secret("global/k", confirm="global/k"), {"ref": "global/k", "value": "v"})
    assert json.loads(request.body) == {"ref": "global/k", "confirm": "global/k"}
    assert value == Secret("v")
    operation = operations.reveal_secret("global/k", confirm="global/k")
    next(operation)
    with pytest.raises(BadAnswer):
        operation.send(Response(status=200, headers=(), body=b'{"ok": true, "data": {}}'))
