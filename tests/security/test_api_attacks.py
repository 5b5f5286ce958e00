"""Class *Console and API* of the threats, as far as there is an API: every trick is played on a running gateway."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.raw_http import ask, make_token, operator, send_raw
from palyra.client.protocol import ApiError
from palyra.identity.api_tokens import TokenScope
from palyra.ids import CallId, RunId
from palyra.journal.redaction import Redactor
from palyra.limits import MAX_HTTP_BODY_BYTES, MAX_JSON_DEPTH
from palyra.pipeline import intake
from palyra.server.http import envelope
from palyra.server.http.app import ROUTES, HostGuard, create_app

ECHO = {"tool": "echo", "arguments": {"text": "hi"}}
WRITE = {"tool": "fs.write", "arguments": {"path": "a.txt", "content": "hello"}}
HOSTS = frozenset(("localhost", "127.0.0.1"))


# On the wire, against a daemon process of its own.


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Place(tmp_path_factory.mktemp("daemon")).daemon() as running:
        yield running


@pytest.mark.promise("P-floods")
def test_an_agent_cannot_stop_a_daemon_whose_log_nobody_reads(tmp_path: Path) -> None:
    """Every call is a line of the log, and the pipe has room for some hundred of them."""
    with Place(tmp_path, '[log]\nlevel = "info"\n').daemon() as running:
        with running.client() as agent:
            for _ in range(600):
                with pytest.raises(ApiError):
                    agent.call("no.such.tool", {})
            assert agent.call("echo", {"text": "still there"}).result == {"text": "still there"}
        assert running.stop() == 0


def request(daemon: Daemon, line: bytes, *headers: bytes, body: bytes = b"", auth: bool = True) -> tuple[bytes, bytes]:
    """Status line and body of the one answer."""
    lines = [line, *headers, b"Connection: close"]
    if auth:
        lines.append(b"Authorization: Bearer " + daemon.token.encode())
    said = send_raw(daemon.url, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    assert said.count(b"HTTP/1.1 ") == 1, "one request has one answer"
    head, _, content = said.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], content


@pytest.mark.promise("P-api-local")
@pytest.mark.parametrize(
    "hosts",
    [
        (),
        (b"Host: evil.example",),
        (b"Host: localhost.evil.example",),
        (b"Host: localhost", b"Host: evil.example"),
        (b"Host: evil.example", b"Host: localhost"),
        (b"Host: localhost", b"Host: localhost"),
        (b"Host: localhost, evil.example",),
        (b"Host:",),
        (b"Host: 0.0.0.0",),
        (b"X-Forwarded-Host: localhost",),
        (b"Host: evil.example", b"X-Forwarded-Host: localhost"),
    ],
)
def test_a_page_elsewhere_cannot_reach_the_daemon_by_its_own_name(daemon: Daemon, hosts: tuple[bytes, ...]) -> None:
    status, body = request(daemon, b"GET /v1/status HTTP/1.1", *hosts)
    assert b" 421 " in status and json.loads(body)["error"]["code"] == "http.host_refused"


def test_the_names_that_pages_elsewhere_used_are_on_record_and_fill_no_journal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.daemon() as running:
        for number in range(20):
            request(running, b"GET /v1/status HTTP/1.1", b"Host: %d.evil.example" % number)
    events = place.palyra("journal", "tail", "--kind", "console.request_refused", "--json").data["events"]
    payloads = [each["payload"] for each in events]
    assert payloads == [
        {"code": "http.host_refused", "method": "GET", "path": "/v1/status", "site": "0.evil.example", "count": 1}
    ]


@pytest.mark.promise("P-api-local")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX : y",
        b"GET /v1/status HTTP/1.1\nHost: localhost",
        b"GET  /v1/status HTTP/1.1\r\nHost: localhost",
        b"GET /v1/status HTTP/9.9\r\nHost: localhost",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_framing_with_two_readings_is_refused_and_nothing_is_smuggled(daemon: Daemon, head: bytes) -> None:
    second = b"GET /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + daemon.token.encode()
    said = send_raw(daemon.url, head + b"\r\n\r\n0\r\n\r\n" + second + b"\r\n\r\n")
    assert b"HTTP/1.1 400" in said and b"token_id" not in said


@pytest.mark.parametrize(
    "path",
    [b"//v1/tokens", b"/v1//tokens", b"/v1/./tokens", b"/v1/tools/../tokens", b"/v1/tools/%2e%2e/tokens",
     b"/v1/tools/..%2ftokens", b"/healthz/../v1/tokens", b"/V1/tokens", b"/v1/tokens%00", b"/v1/tokens%20",
     b"/v1/tokens;x", b"/v1/tokens%3f", b"/%76%31/tokens/x/y"],
)  # fmt: skip
def test_no_second_spelling_of_a_path_reaches_a_route(daemon: Daemon, path: bytes) -> None:
    status, body = request(daemon, b"GET " + path + b" HTTP/1.1", b"Host: localhost")
    assert b" 404 " in status and b"token_id" not in body


@pytest.mark.parametrize("method", [b"PUT", b"PATCH", b"TRACE", b"OPTIONS", b"CONNECT", b"BREW", b"get"])
def test_no_other_method_does_anything(daemon: Daemon, method: bytes) -> None:
    status, body = request(daemon, method + b" /v1/tokens HTTP/1.1", b"Host: localhost")
    assert status.split()[1] in (b"400", b"404", b"405") and b"token_id" not in body
    assert b"Bearer" not in body.replace(b"Authorization: Bearer TOKEN", b""), "a request is not sent back"


def test_a_browser_gets_no_leave_to_read_or_to_send_with_a_token(daemon: Daemon) -> None:
    preflight = send_raw(
        daemon.url,
        b"OPTIONS /v1/tool-calls HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
        b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
        b"Connection: close\r\n\r\n",
    )
    assert b" 405 " in preflight and b"access-control" not in preflight.lower()
    plain = send_raw(
        daemon.url,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n",
    )
    assert b" 200 " in plain and b"access-control" not in plain.lower() and b"set-cookie" not in plain.lower()


def test_a_body_beyond_the_limit_is_cut_off_whether_or_not_it_says_its_length(daemon: Daemon) -> None:
    flood = b" " * (MAX_HTTP_BODY_BYTES + 1)
    length = b"Content-Length: %d" % len(flood)
    status, body = request(daemon, b"POST /v1/tool-calls HTTP/1.1", b"Host: localhost", length, body=flood)
    assert b" 413 " in status and json.loads(body)["error"]["code"] == "http.body_too_large"
    chunked = b"".join(b"10000\r\n" + b" " * 65536 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    status, _ = request(
        daemon, b"POST /v1/tool-calls HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: chunked", body=chunked
    )
    assert b" 413 " in status


def test_a_token_is_taken_from_its_header_only_and_only_from_the_first(daemon: Daemon) -> None:
    token = daemon.token.encode()
    for line, *headers in [
        [b"GET /v1/tools?token=" + token + b" HTTP/1.1", b"Host: localhost"],
        [b"GET /v1/tools?access_token=" + token + b" HTTP/1.1", b"Host: localhost"],
        [b"GET /v1/tools HTTP/1.1", b"Host: localhost", b"Cookie: token=" + token],
        [b"GET /v1/tools HTTP/1.1", b"Host: localhost", b"X-Api-Key: " + token],
        [b"GET /v1/tools HTTP/1.1", b"Host: localhost", b"Authorization: Basic " + token],
        [b"GET /v1/tools HTTP/1.1", b"Host: localhost", b"Authorization: Bearer x", b"Authorization: Bearer " + token],
    ]:
        status, body = request(daemon, line, *headers, auth=False)
        assert b" 401 " in status and json.loads(body)["error"]["code"] == "token.rejected"


def test_a_slow_or_vanishing_client_stops_nobody_else(daemon: Daemon) -> None:
    import socket
    from urllib.parse import urlsplit

    address = urlsplit(daemon.url)
    lingering = [socket.create_connection((address.hostname, address.port)) for _ in range(50)]
    try:
        for connection in lingering:
            connection.sendall(b"POST /v1/tool-calls HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        with daemon.client() as client:
            assert client.call("echo", {"text": "x"}).status == "succeeded"
    finally:
        for connection in lingering:
            connection.close()
    with daemon.client() as client:
        client.ready()


# Tokens.


@pytest.mark.promise("P-tokens")
async def test_guessing_tokens_tells_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), HOSTS)
        good = await make_token(harness)
        expired = await make_token(harness, ttl_ms=0)
        guesses = [
            good[:-1] + ("A" if good[-1] != "A" else "B"),
            good[:31] + "a" * 43,
            good.replace(good[4:30], "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            expired,
            good.swapcase(),
            "plr_" + "' OR 1=1 --",
            "é" * 10,
            "",
        ]
        answers = {(await ask(app, "GET", "/v1/tools", token=guess)).body for guess in guesses[:-2]}
        assert len(answers) == 1, "wrong, unknown, expired and malformed tokens get one and the same answer"
        for guess in guesses:
            assert (await ask(app, "GET", "/v1/tools", token=guess)).status == 401
        assert (await ask(app, "GET", "/v1/tools", token=good)).status == 200


@pytest.mark.promise("P-tokens")
async def test_without_a_good_token_nothing_runs_and_nothing_is_made(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), HOSTS)
        before = harness.kinds()
        for method, path, _ in ROUTES:
            for body in (ECHO, {"decision": "approve"}, {"principal": "user:operator", "scopes": ["operate"]}):
                filled = path.replace("{name}", "echo")
                for part in ("{call_id}", "{run_id}", "{approval_id}", "{token_id}"):
                    filled = filled.replace(part, str(CallId.new()))
                got = await ask(app, method, filled, body=body)
                assert (got.status, got.code) == (401, "token.rejected")
        assert harness.kinds() == [*before, "credential.rejected"]


@pytest.mark.promise("P-tokens")
async def test_an_agents_token_cannot_be_made_into_an_operators(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), HOSTS)
        agent = await make_token(harness)
        made = await ask(app, "POST", "/v1/tool-calls", token=agent, body=WRITE)
        approval_id = made.data["approval_id"]
        for method, path, body in [
            ("POST", "/v1/tokens", {"principal": "agent:bot", "scopes": ["operate"]}),
            ("POST", "/v1/tokens", {"principal": "agent:bot"}),
            ("GET", "/v1/tokens", {}),
            ("DELETE", f"/v1/tokens/{agent[4:30]}", {}),
            ("POST", f"/v1/approvals/{approval_id}/decision", {"decision": "approve"}),
            ("POST", f"/v1/approvals/{approval_id}/decision", {"decision": "approve", "as": "user:operator"}),
            ("POST", "/v1/tool-calls", {**ECHO, "principal": "user:operator"}),
            ("POST", "/v1/runs", {"principal": "user:operator"}),
        ]:
            got = await ask(app, method, path, token=agent, body=body)
            assert (got.status, got.code, got.headers["palyra-exit-code"]) == (403, "token.scope_missing", "3")
        assert "approval.approved" not in harness.kinds() and "call.started" not in harness.kinds()
        # A token with the scope but without policy's leave is no operator either.
        pretender = await make_token(harness, "agent:bot", TokenScope.CALL, TokenScope.OPERATE)
        got = await ask(app, "POST", "/v1/tokens", token=pretender, body={"principal": "user:operator"})
        assert (got.status, got.code) == (403, "action.denied")
        decision = {"decision": "approve"}
        got = await ask(app, "POST", f"/v1/approvals/{approval_id}/decision", token=pretender, body=decision)
        assert (got.status, got.code) == (403, "approval.self")


async def test_a_revoked_token_is_dead_at_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), HOSTS)
        boss, agent = await operator(harness), await make_token(harness)
        assert (await ask(app, "DELETE", f"/v1/tokens/{agent[4:30]}", token=boss)).status == 200
        for method, path, body in [
            ("POST", "/v1/tool-calls", ECHO),
            ("GET", "/v1/tools", {}),
            ("POST", "/v1/runs", {}),
        ]:
            assert (await ask(app, method, path, token=agent, body=body)).status == 401
        assert harness.kinds()[-2:] == ["credential.revoked", "credential.rejected"]


# Bodies.


@pytest.mark.promise("P-one-meaning")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "http.wrong_shape"),
        (b"{", "json.malformed"),
        (b"tool=echo", "json.malformed"),
        (b'{"tool":"echo","arguments":{"text":"a"},"tool":"fs.write"}', "json.duplicate_key"),
        (b'{"tool":"echo","arguments":{"text":"a","text":"b"}}', "json.duplicate_key"),
        (b'{"tool":"echo","\\u0074ool":"fs.write","arguments":{"text":"a"}}', "json.duplicate_key"),
        (b'{"tool":"sleep","arguments":{"seconds":1.0}}', "json.ambiguous_number"),
        (b'{"tool":"sleep","arguments":{"seconds":-0}}', "json.ambiguous_number"),
        (b'{"tool":"sleep","arguments":{"seconds":1e400}}', "json.ambiguous_number"),
        (b'{"tool":"sleep","arguments":{"seconds":Infinity}}', "json.ambiguous_number"),
        (b'{"tool":"echo","arguments":{"text":"\\ud800"}}', "json.malformed"),
        (b'{"tool":"echo","arguments":{"text":"\xc0\xaf"}}', "json.malformed"),
        (b'{"tool":"echo","arguments":' + b'{"a":' * MAX_JSON_DEPTH + b"1" + b"}" * MAX_JSON_DEPTH + b"}",
         "json.too_deep"),
        (b"[" * 500_000, "json.too_deep"),
        (b'{"tool":"echo","arguments":{"text":"a"}} {}', "json.malformed"),
        (b'{"tool":["echo"],"arguments":{"text":"a"}}', "http.wrong_shape"),
        (b'{"tool":null,"arguments":{"text":"a"}}', "http.wrong_shape"),
        (b'{"tool":"echo","arguments":{"text":"a"},"approved":true}', "http.wrong_shape"),
        (b'{"tool":"echo","arguments":{"text":"a"},"actor":"user:operator"}', "http.wrong_shape"),
        (b'{"tool":"echo","arguments":{"text":"a"},"approval_id":"x"}', "http.wrong_shape"),
        (b'{"tool":"echo","arguments":{"text":"a"},"__proto__":{}}', "http.wrong_shape"),
        (b'{"tool":"echo","arguments":{"text":"a"},"wait_ms":1e2}', "json.ambiguous_number"),
        (b'{"tool":"echo","arguments":{"text":"a"},"session":"a\\r\\nSet-Cookie: x"}', "http.wrong_shape"),
    ],
)  # fmt: skip
async def test_a_body_with_no_single_meaning_or_a_word_too_many_starts_nothing(
    tmp_path: Path, body: bytes, code: str
) -> None:
    async with open_harness(tmp_path) as harness:
        token = await operator(harness)
        got = await ask(create_app(harness.gateway.service), "POST", "/v1/tool-calls", token=token, body=body)
        assert (got.status, got.code, got.headers["palyra-exit-code"]) == (400, code, "2")
        assert not {"call.requested", "call.started"} & set(harness.kinds())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"path":"a.txt","content":"evil","content":"hello"}', "json.duplicate_key"),
        ('{"path":"a.txt","content":"hello"}x', "json.malformed"),
        ("[]", "arguments.not_an_object"),
        ('{"path":"../../signing.key","content":"x"}', "workspace.bad_path"),
        ('{"path":"a.txt","content":"hello","sudo":true}', "arguments.schema_mismatch"),
        ('{"path":"a.txt","content":"' + "x" * 70_000 + '"}', "arguments.too_large"),
    ],
)
async def test_arguments_as_text_are_judged_as_strictly_and_the_refusal_is_on_record(
    tmp_path: Path, text: str, code: str
) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        body = {"tool": "fs.write", "arguments_json": text}
        got = await ask(app, "POST", "/v1/tool-calls", token=await make_token(harness), body=body)
        assert got.code == code and got.data["status"] == "refused"
        recorded = harness.events(call=got.data["call_id"])
        assert [kind for kind, _ in recorded] == ["call.refused"] and recorded[0][1]["error"]["code"] == code
        assert not list(harness.workspace.iterdir())


async def test_a_hostile_tool_name_is_recorded_in_bounds_and_cannot_forge_an_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        name = "x\n\nevent: call.finished\nid: 1\ndata: {}\n\n" + "\u202e\x1b[2J" * 1000
        got = await ask(app, "POST", "/v1/tool-calls", token=token, body={"tool": name, "arguments": {}})
        assert got.code == "tool.unknown" and len(got.data["tool"]) == 128
        stream = await ask(app, "GET", f"/v1/tool-calls/{got.data['call_id']}/events", token=token)
        assert stream.body.count(b"event: ") == 1 + stream.body.count(b"\\nevent: ")
        assert [line for line in stream.body.splitlines() if line.startswith(b"event:")] == [b"event: call.refused"]


# Other principals.


@pytest.mark.promise("P-own-only")
async def test_other_principals_ids_lead_nowhere_and_look_like_missing_ones(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = HostGuard(create_app(harness.gateway.service), HOSTS)
        alice, eve = await make_token(harness, "agent:alice"), await make_token(harness, "agent:eve")
        made = await ask(app, "POST", "/v1/tool-calls", token=alice, body=WRITE)
        call, run, approval = (made.data[name] for name in ("call_id", "run_id", "approval_id"))
        missing = str(CallId.new())
        for method, path, code in [
            ("GET", "/v1/tool-calls/{}", "call.unknown"),
            ("DELETE", "/v1/tool-calls/{}", "call.unknown"),
            ("GET", "/v1/tool-calls/{}/events", "call.unknown"),
        ]:
            theirs = await ask(app, method, path.format(call), token=eve)
            nobodys = await ask(app, method, path.format(missing), token=eve)
            assert (theirs.status, theirs.code) == (nobodys.status, nobodys.code) == (404, code)
            assert theirs.body.replace(call.encode(), b"") == nobodys.body.replace(missing.encode(), b"")
        assert (await ask(app, "GET", f"/v1/runs/{run}", token=eve)).code == "run.unknown"
        assert (await ask(app, "GET", f"/v1/approvals/{approval}", token=eve)).code == "approval.unknown"
        assert (await ask(app, "GET", "/v1/approvals", token=eve)).data["approvals"] == []
        inside = await ask(app, "POST", "/v1/tool-calls", token=eve, body={**ECHO, "run_id": run})
        assert (inside.status, inside.code) == (404, "run.unknown")
        assert harness.kinds(run=run).count("call.requested") == 1, "nothing is written into somebody else's run"
        state = (await ask(app, "GET", f"/v1/approvals/{approval}", token=alice)).data["state"]
        assert state == "pending", "nobody else's cancel withdrew it"


async def test_ids_are_parsed_and_never_reach_sql_or_a_path(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = HostGuard(create_app(harness.gateway.service), HOSTS), await operator(harness)
        for hostile in ["' OR 1=1 --", "..", "%", "01arz3ndektsv4rrffq69g5fav", "8" * 26, "x" * 10_000, "\0", "०" * 26]:
            for path in ("/v1/tool-calls/{}", "/v1/tool-calls/{}/events", "/v1/runs/{}", "/v1/approvals/{}"):
                got = await ask(app, "GET", path.format(hostile), token=boss)
                assert got.code == "id.malformed" and len(got.body) < 600
            assert (await ask(app, "DELETE", f"/v1/tokens/{hostile}", token=boss)).code == "id.malformed"


# Channels and runs.


@pytest.mark.promise("P-tokens")
async def test_a_claim_to_another_door_gains_an_agent_nothing(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "door.cedar").write_text(
        '@id("no-api")\nforbid (principal, action == Action::"tool.execute", resource)'
        ' when { context.channel == Channel::"api" };\n'
    )
    async with open_harness(tmp_path) as harness:
        app, agent = create_app(harness.gateway.service), await make_token(harness)
        for channel in ("cli", "console", "mcp", "API", ""):
            got = await ask(app, "POST", "/v1/tool-calls", token=agent, body={**ECHO, "channel": channel})
            assert (got.status, got.code) == (403, "call.denied")
            assert got.data["decision"]["policies"] == ["no-api"]
        assert {payload["channel"] for _, payload in harness.events(kind="call.requested")} == {"api"}


@pytest.mark.promise("P-budget-own")
async def test_a_token_bound_to_a_run_stays_in_it_and_in_its_budget(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        mine, other = await harness.open_run(calls=2), await harness.open_run(calls=100)
        bound = await make_token(harness, run_id=mine)
        for run_id in (other, RunId.new(), ""):
            got = await ask(app, "POST", "/v1/tool-calls", token=bound, body={**ECHO, "run_id": str(run_id)})
            assert (got.status, got.code) == (403, "token.run_fixed")
        assert (await ask(app, "POST", "/v1/runs", token=bound, body={})).code == "token.run_fixed"
        answers = [await ask(app, "POST", "/v1/tool-calls", token=bound, body=ECHO) for _ in range(3)]
        assert [got.status for got in answers] == [200, 200, 429]
        assert answers[2].code == "budget.exhausted" and answers[2].headers["palyra-exit-code"] == "5"
        assert {got.data["run_id"] for got in answers} == {str(mine)}
        assert harness.kinds(run=other) == ["run.opened"]


async def test_a_token_bound_to_somebody_elses_run_gets_nothing_from_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.open_run("agent:alice")
        stray = await make_token(harness, "agent:eve", run_id=run)
        got = await ask(create_app(harness.gateway.service), "POST", "/v1/tool-calls", token=stray, body=ECHO)
        assert (got.status, got.code) == (404, "run.unknown") and harness.kinds(run=run) == ["run.opened"]


# Event streams.


@pytest.mark.parametrize("resume", [b"-1", b"1e3", b" 1", b"0x10", b"9" * 17, "٣".encode(), b"1,2", b"'"])
async def test_a_place_to_resume_that_is_none_is_refused(tmp_path: Path, resume: bytes) -> None:
    async with open_harness(tmp_path) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        made = await ask(app, "POST", "/v1/tool-calls", token=token, body=ECHO)
        path = f"/v1/tool-calls/{made.data['call_id']}/events"
        got = await ask(app, "GET", path, token=token, headers=[(b"last-event-id", resume)])
        assert (got.status, got.code) == (400, "http.wrong_shape")


async def test_resuming_anywhere_shows_only_the_calls_own_events_and_ends(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        await harness.call("echo", {"text": "not yours"}, principal="agent:other")
        made = await ask(app, "POST", "/v1/tool-calls", token=token, body=ECHO)
        await harness.call("echo", {"text": "not yours"}, principal="agent:other")
        path = f"/v1/tool-calls/{made.data['call_id']}/events"
        for resume in (b"0", b"1", b"3", b"999999999999999"):
            async with asyncio.timeout(30):
                got = await ask(app, "GET", path, token=token, headers=[(b"last-event-id", resume)])
            assert got.status == 200 and b"not yours" not in got.body
        assert got.body == b"", "a place in the future shows nothing"


async def test_a_stream_of_a_running_call_does_not_outlive_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        body: dict[str, Any] = {"tool": "sleep", "arguments": {"seconds": 600}, "timeout_ms": 600_000}
        calling = asyncio.create_task(ask(app, "POST", "/v1/tool-calls", token=token, body=body))
        await eventually(lambda: harness.kinds(kind="call.started"))
        call_id = harness.gateway.store.events_since(0, 100, kind="call.started")[0].call
        streams = [
            asyncio.create_task(ask(app, "GET", f"/v1/tool-calls/{call_id}/events", token=token)) for _ in range(20)
        ]
        await asyncio.sleep(0)
        await ask(app, "DELETE", f"/v1/tool-calls/{call_id}", token=token)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*streams)
        assert all(b"event: call.finished" in got.body for got in answers)
        assert (await calling).code == "call.cancelled"


@pytest.mark.promise("P-floods")
async def test_half_a_million_small_values_are_not_taken_in_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that sends brackets keeps nobody else waiting: neither while they are parsed, nor while they are made
    canonical, nor by what the journal would look through."""
    where: dict[str, list[bool]] = {"parse": [], "accept": [], "redact": []}

    def noting(name: str, function: Any) -> Any:
        def noted(*given: Any, **more: Any) -> Any:
            where[name].append(threading.current_thread() is threading.main_thread())
            return function(*given, **more)

        return noted

    monkeypatch.setattr(envelope, "parse_strict", noting("parse", envelope.parse_strict))
    monkeypatch.setattr(intake, "accept_arguments", noting("accept", intake.accept_arguments))
    monkeypatch.setattr(Redactor, "_value", noting("redact", Redactor._value))
    many = {"tool": "plugin.run", "arguments": {"skill_id": "a.b", "input": {"list": [[]] * 140_000}}}
    async with open_harness(tmp_path, {"tools": {"allowed": ["plugin.run", "echo"]}}) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        for _ in range(2):
            got = await ask(app, "POST", "/v1/tool-calls", token=token, body=many)
            assert got.code == "call.needs_approval"
        assert where["parse"] == where["accept"] == [False, False]
        assert len(where["redact"]) < 400
        said = dict(harness.events(call=got.data["call_id"]))["call.requested"]
        assert said["arguments"] == "[clipped: more values than an entry holds]"
        assert (await ask(app, "POST", "/v1/tool-calls", token=token, body=ECHO)).data["result"] == {"text": "hi"}
        assert where["parse"][-1] and where["accept"][-1]
