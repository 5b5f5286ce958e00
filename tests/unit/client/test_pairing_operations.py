import json

import pytest

from palyra.client import admin_operations as operations
from palyra.client.protocol import BadAnswer, Response

CODE = {"id": "c", "nameplate": "123", "code": "123-4567-8901", "addresses": ["h:1"], "new_field": 1}
PAIRING = {"id": "p", "state": "pending_approval", "comparison_code": "123456", "new_field": 1}


def exchange(operation, data):
    request = next(operation)
    answer = Response(status=200, headers=(), body=json.dumps({"ok": True, "data": data}).encode())
    with pytest.raises(StopIteration) as ended:
        operation.send(answer)
    return request, ended.value.value


def test_a_new_code_is_kept_apart_from_what_may_be_shown():
    request, made = exchange(operations.create_pairing_code("qr", "worker", ttl_seconds=60), CODE)
    assert (request.method, request.path) == ("POST", "/v1/pairing/codes")
    assert json.loads(request.body) == {"method": "qr", "kind": "worker", "ttl_seconds": 60}
    assert made.code.reveal() == "123-4567-8901" and "code" not in made.view.document
    assert "4567" not in repr(made) and made.view.document["new_field"] == 1


def test_a_code_that_is_not_shown_is_a_bad_answer():
    operation = operations.create_pairing_code()
    next(operation)
    with pytest.raises(BadAnswer):
        operation.send(Response(status=201, headers=(), body=b'{"ok":true,"data":{"id":"c"}}'))


@pytest.mark.parametrize(
    ("operation", "data", "method", "path"),
    [
        (operations.pairing_codes(), {"codes": [CODE]}, "GET", "/v1/pairing/codes"),
        (operations.withdraw_pairing_code("c/d"), CODE, "DELETE", "/v1/pairing/codes/c%2Fd"),
        (operations.pairings(), {"pairings": [PAIRING]}, "GET", "/v1/pairing/requests?state=pending_approval"),
        (operations.pairings(None), {"pairings": []}, "GET", "/v1/pairing/requests"),
        (operations.pairing("p"), PAIRING, "GET", "/v1/pairing/requests/p"),
        (operations.reject_pairing("p"), PAIRING, "POST", "/v1/pairing/requests/p/decision"),
    ],
)
def test_requests_go_where_they_should(operation, data, method, path):
    request, _ = exchange(operation, data)
    assert (request.method, request.path) == (method, path)


def test_an_approval_carries_what_was_compared():
    request, view = exchange(operations.approve_pairing("p", comparison_code="123456", reason="mine"), PAIRING)
    assert json.loads(request.body) == {"decision": "approve", "comparison_code": "123456", "reason": "mine"}
    assert view.comparison_code == "123456"
