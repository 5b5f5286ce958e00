"""The application without TLS: what reaches the service, and what does not."""

import asyncio
import json

import pytest

from palyra.devicelink.limits import MAX_PAIRING_BODY_BYTES
from palyra.devicelink.pairing import messages as wire
from palyra.nodes.pairing import listener
from palyra.nodes.pairing.listener import create_bootstrap_app
from palyra.nodes.pairing.rules import CodeBurned

BEGIN = b'{"version":1,"nameplate":"123","kind":"node"}'


class FakeService:
    def __init__(self, outcome):
        self.outcome, self.received = outcome, []

    async def begin(self, begin, address):
        self.received.append((begin, address))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


async def ask(app, chunks, *, method="POST", path=wire.BEGIN, client=("192.0.2.9", 5), more_will_come=False):
    sent, waiting = [], list(chunks)
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "client": client}

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        chunk = waiting.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting) or more_will_come}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(body or b"null")


ANSWER = wire.Answer(state="pending_approval")


async def test_a_message_reaches_the_service_with_the_address_it_came_from():
    service = FakeService(ANSWER)
    status, headers, document = await ask(create_bootstrap_app(service), [BEGIN[:10], BEGIN[10:]])
    assert (status, document["state"]) == (200, "pending_approval")
    assert headers[b"cache-control"] == b"no-store"
    ((begin, address),) = service.received
    assert (begin.nameplate, address) == ("123", "192.0.2.9")


async def test_a_refusal_has_the_shape_of_every_error():
    status, headers, document = await ask(create_bootstrap_app(FakeService(CodeBurned("void"))), [BEGIN])
    assert (status, document["ok"], document["error"]["code"]) == (403, False, "pairing.code_burned")
    assert b"connection" not in headers


async def test_a_bug_is_not_shown(caplog):
    status, _, document = await ask(create_bootstrap_app(FakeService(ZeroDivisionError("secret detail"))), [BEGIN])
    assert (status, document["error"]["code"]) == (500, "internal.bug")
    assert "secret detail" not in json.dumps(document) and "secret detail" in caplog.text


@pytest.mark.promise("P-floods")
async def test_a_body_is_read_up_to_its_bound_only():
    service = FakeService(ANSWER)
    chunks = [b"x" * 1_000] * (MAX_PAIRING_BODY_BYTES // 1_000 + 50)
    status, headers, document = await ask(create_bootstrap_app(service), chunks)
    assert (status, document["error"]["code"]) == (413, "pairing.body_too_large")
    assert headers[b"connection"] == b"close" and service.received == []


async def test_a_body_that_does_not_come_in_time_is_given_up(monkeypatch):
    monkeypatch.setattr(listener, "PAIRING_REQUEST_SECONDS", 0.05)
    status, headers, document = await ask(create_bootstrap_app(FakeService(ANSWER)), [b"{"], more_will_come=True)
    assert (status, document["error"]["code"]) == (408, "pairing.too_slow")
    assert headers[b"connection"] == b"close"


async def test_who_goes_away_gets_no_answer():
    status, _, _ = await ask(create_bootstrap_app(FakeService(ANSWER)), [None])
    assert status == 499


@pytest.mark.parametrize(
    ("method", "path"), [("GET", wire.BEGIN), ("POST", "/"), ("POST", wire.BEGIN + "/"), ("PUT", wire.WAIT)]
)
async def test_there_is_nothing_else(method, path):
    status, _, document = await ask(create_bootstrap_app(FakeService(ANSWER)), [BEGIN], method=method, path=path)
    assert (status, document["error"]["code"]) == (404, "pairing.no_such_call")
