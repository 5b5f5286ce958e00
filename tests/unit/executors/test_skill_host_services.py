"""What skills do outside: requests with attached secrets, storage, messages; and what they cannot do."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.fetch_harness import answer
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.loopback import Script, ScriptedServer, read_request
from fakes.skill_harness import SKILL
from fakes.wasm_guests import ALLOC, PACK, imported, text_at, wasm
from fakes.wasm_skills import TOOL, put_in_use, status_module, text_module
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState
from palyra.secret import Secret
from palyra.skills.registry.lifecycle import WrongState
from palyra.skills.registry.records import UnknownSkill
from palyra.vault.reference import SecretRef
from palyra.wasm.domain.host_interface import Status

TOKEN = "tok-0123456789"
OWN = f"skill:{SKILL}/token"
HEAD = json.dumps({"method": "GET", "path": "/data?x=1", "headers": []})
HTTP = imported("http-send", 5) + imported("secret-attach", 6) + imported("secret-reveal", 1)
DATA = text_at(8, HEAD) + text_at(512, "Authorization") + text_at(544, "Bearer ")
ATTACH = """(drop (call $secret-attach (i32.const 20000) (i32.const {http})
    (i32.const 512) (i32.const 13) (i32.const 544) (i32.const 7)))"""
SEND = f"(call $http-send (i32.const {{http}}) (i32.const 8) (i32.const {len(HEAD)}) (i32.const 0) (i32.const 0))"


def sender(http: int = 10000, *, attach: bool = True) -> bytes:
    """Sends one request and answers with the status that the host function gave, or the length."""
    before = ATTACH.format(http=http) if attach else ""
    return status_module(f"(block (result i32) {before} {SEND.format(http=http)})", imports=HTTP, data=DATA)


def wishes(*hosts: str, more: str = "") -> str:
    return f'http_egress_allowlist = {json.dumps(hosts)}\nsecrets = ["token"]\n{more}'


class Web:
    """A server that repeats the secret, as careless ones do. ``received`` are the requests."""

    def __init__(self, script: Script | None = None) -> None:
        self.received: list[str] = []
        self.server = ScriptedServer([script or self._answer] * 4)

    def _answer(self, connection: socket.socket) -> None:
        if request := read_request(connection):
            self.received.append(request.decode("latin-1"))
            connection.sendall(answer(b"hello " + TOKEN.encode()))

    @property
    def port(self) -> int:
        return self.server.port


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    with web.server:
        yield web


def settings(web: Web) -> dict[str, Any]:
    hosts = [f"web.test:{web.port}", f"other.test:{web.port}"]
    return {
        "egress": {
            "allowed_hosts": hosts,
            "private_targets": hosts,
            "plain_targets": hosts,
            "static_hosts": {"web.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]},
        },
        "tools": {"preapproved": ["skill.*"]},
    }


async def keep(harness: GatewayHarness, ref: str = OWN, value: str = TOKEN) -> None:
    await harness.gateway.vault.put(SecretRef.parse(ref), Secret(value), actor="user:operator")


async def test_a_request_carries_the_secret_that_the_guest_never_sees(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await put_in_use(harness, module=sender(), capabilities=wishes(f"web.test:{web.port}"))
        record = await harness.call(TOOL, {})
        assert record.state.value == "succeeded" and record.result["s"].startswith("+"), (record.result, record.error)
        assert "GET /data?x=1 HTTP/1.1" in web.received[0] and f"Authorization: Bearer {TOKEN}" in web.received[0]
        kinds = harness.kinds(call=record.call_id)
        assert {"egress.connected", "vault.secret_used", "egress.credential_used", "egress.response_redacted"} <= set(
            kinds
        )
        layers = {line["layer"]: line["got"] for line in record.receipt}
        assert layers["credentials"] == f"{OWN} to web.test:{web.port}"
        assert harness.run(record.run_id).budget[BudgetKind.EGRESS_BYTES].used > 100


@pytest.mark.promise("P-skill-reach")
async def test_a_private_host_gets_no_secret_in_clear_unless_the_operator_says_so(tmp_path: Path) -> None:
    """It listens without TLS, on a port that says nothing: what it hears is the beginning of a handshake."""
    received: list[bytes] = []

    def listens(connection: socket.socket) -> None:
        received.append(connection.recv(65_536))

    web = Web(listens)
    with web.server:
        closed = settings(web)
        del closed["egress"]["plain_targets"]
        async with open_harness(tmp_path, closed) as harness:
            await keep(harness)
            await put_in_use(harness, module=sender(), capabilities=wishes(f"web.test:{web.port}"))
            record = await harness.call(TOOL, {})
            assert record.result["s"].startswith("-"), record.result
            assert "vault.secret_used" not in harness.kinds(call=record.call_id)
    assert received and all(TOKEN.encode() not in said and b"HTTP/1.1" not in said for said in received)
    assert received[0].startswith(b"\x16\x03"), "a record of a TLS handshake"


async def test_the_answer_comes_back_without_the_secret(web: Web, tmp_path: Path) -> None:
    # The last bytes of the answer are its body.
    body = f"""(block (result i32) {ATTACH.format(http=10000)} (local.set $n {SEND.format(http=10000)})
      (drop (call $result-read (i32.sub (local.get $n) (i32.const {6 + len(TOKEN)})) (i32.const 512)
        (i32.const {6 + len(TOKEN)})))
      (drop (call $storage-put (i32.const 30000) (i32.const 600) (i32.const 1) (i32.const 512)
        (i32.const {6 + len(TOKEN)})))
      (call $storage-get (i32.const 30000) (i32.const 600) (i32.const 1)))"""
    module = text_module(
        body,
        imports=HTTP + imported("storage-put", 5) + imported("storage-get", 3),
        data=DATA + text_at(600, "k"),
    )
    capabilities = wishes(f"web.test:{web.port}", more='filesystem = { write_roots = ["notes"] }')
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await put_in_use(harness, module=module, capabilities=capabilities)
        record = await harness.call(TOOL, {})
        assert record.result == {"t": "hello " + "*" * len(TOKEN)}, record.error


MIXED = "Tok-AbCd-0123456789"


@pytest.mark.parametrize("spelled", [MIXED, MIXED.lower(), MIXED.upper(), MIXED.title(), MIXED.encode().hex().upper()])
async def test_the_secret_does_not_come_back_as_the_name_of_a_header(spelled: str, tmp_path: Path) -> None:
    def repeats(connection: socket.socket) -> None:
        if read_request(connection):
            connection.sendall(f"HTTP/1.1 200 OK\r\nX-Echo-{spelled}: 1\r\nContent-Length: 0\r\n\r\n".encode())

    body = f"""(block (result i32) {ATTACH.format(http=10000)} (local.set $n {SEND.format(http=10000)})
      (drop (call $result-read (i32.const 0) (i32.const 1024) (local.get $n)))
      (drop (call $log (i32.const 1) (i32.const 1024) (local.get $n))) (i32.const -1))"""
    module = text_module(body, imports=HTTP + imported("log", 3), data=DATA)
    web = Web(repeats)
    with web.server:
        async with open_harness(tmp_path, settings(web)) as harness:
            await keep(harness, value=MIXED)
            await put_in_use(harness, module=module, capabilities=wishes(f"web.test:{web.port}"))
            record = await harness.call(TOOL, {})
            (said,) = [line["got"] for line in record.receipt if line["layer"] == "log"]
            assert "egress.response_redacted" in harness.kinds(call=record.call_id)
    assert f'"x-echo-{"*" * len(spelled)}"' in said


async def test_only_hosts_of_manifest_and_settings_are_reached(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        # Handle 10001 is nobody's: the manifest names one host.
        await put_in_use(harness, module=sender(10001, attach=False), capabilities=wishes(f"web.test:{web.port}"))
        assert (await harness.call(TOOL, {})).result == {"s": f"-{-Status.BAD_HANDLE:04}"}
        # The manifest asks for a host that the settings do not allow.
        await put_in_use(harness, "1.1.0", module=sender(attach=False), capabilities=wishes("elsewhere.test:8080"))
        record = await harness.call(TOOL, {})
        assert record.result == {"s": f"-{-Status.DENIED:04}"}
        assert "egress.refused" in harness.kinds(call=record.call_id)
    assert web.received == []


def sending(path: str, *, attach: bool = True) -> bytes:
    """Sends one request to what the path says, through the first handle, with the secret."""
    head = json.dumps({"method": "GET", "path": path, "headers": []})
    send = f"(call $http-send (i32.const 10000) (i32.const 8) (i32.const {len(head)}) (i32.const 0) (i32.const 0))"
    data = text_at(8, head) + text_at(512, "Authorization") + text_at(544, "Bearer ")
    before = ATTACH.format(http=10000) if attach else ""
    return status_module(f"(block (result i32) {before} {send})", imports=HTTP, data=data)


STARRED = 'wildcard_opt_in = ["http"]'


@pytest.mark.promise("P-skill-reach")
async def test_through_a_star_the_guest_names_the_host(web: Web, tmp_path: Path) -> None:
    hosts = [f"*.web.test:{web.port}", f"other.test:{web.port}"]
    addresses = {name: ["127.0.0.1"] for name in ("a.web.test", "b.web.test", "web.test", "other.test")}
    open_to = {"allowed_hosts": hosts, "private_targets": hosts, "plain_targets": hosts, "static_hosts": addresses}
    async with open_harness(tmp_path, {"egress": open_to, "tools": {"preapproved": ["skill.*"]}}) as harness:
        await keep(harness)
        starred = wishes(f"*.web.test:{web.port}", more=STARRED)
        await put_in_use(harness, module=sending("//a.web.test/data?x=1"), capabilities=starred)
        record = await harness.call(TOOL, {})
        assert record.result["s"].startswith("+"), (record.result, record.error)
        assert "GET /data?x=1 HTTP/1.1" in web.received[0] and f"Host: a.web.test:{web.port}" in web.received[0]
        assert f"Authorization: Bearer {TOKEN}" in web.received[0]
        layers = {line["layer"]: line["got"] for line in record.receipt}
        assert layers["credentials"] == f"{OWN} to a.web.test:{web.port}"
        misused = {
            "/data": Status.BAD_REQUEST,
            "//": Status.BAD_REQUEST,
            "//*.web.test/": Status.BAD_REQUEST,
            "//user@a.web.test/": Status.BAD_REQUEST,
            "//a.web.test?/": Status.BAD_REQUEST,
            # Another line's host, the name itself, another port, an address.
            f"//other.test:{web.port}/": Status.DENIED,
            "//web.test/": Status.DENIED,
            "//a.web.test:1/": Status.DENIED,
            f"//127.0.0.1:{web.port}/": Status.DENIED,
            "//a.web.test.evil.test/": Status.DENIED,
        }
        for number, (path, status) in enumerate(misused.items(), 1):
            module = sending(path, attach=False)
            more = wishes(f"*.web.test:{web.port}", f"other.test:{web.port}", more=STARRED)
            await put_in_use(harness, f"1.{number}.0", module=module, capabilities=more)
            assert (await harness.call(TOOL, {})).result == {"s": f"-{-status:04}"}, path
    assert len(web.received) == 1


@pytest.mark.promise("P-skill-reach")
async def test_a_star_reaches_no_further_than_the_settings(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(web) | {"tools": {"preapproved": ["skill.*"]}}) as harness:
        starred = wishes(f"*.web.test:{web.port}", more=STARRED)
        await put_in_use(harness, module=sending("//a.web.test/", attach=False), capabilities=starred)
        record = await harness.call(TOOL, {})
        assert record.result == {"s": f"-{-Status.DENIED:04}"}
        assert "egress.refused" in harness.kinds(call=record.call_id)
    assert web.received == []


@pytest.mark.promise("P-skill-reach")
async def test_through_a_star_the_guest_names_the_channel(tmp_path: Path) -> None:
    said = {"alerts\nhello": Status.OK, "No Channel\nhello": Status.BAD_REQUEST, "\nhello": Status.BAD_REQUEST}
    async with open_harness(tmp_path, {"tools": {"preapproved": ["skill.*"]}}) as harness:
        for number, (text, status) in enumerate(said.items()):
            body = f"(call $channel-send (i32.const 40000) (i32.const 8) (i32.const {len(text)}))"
            data = text_at(8, text)
            module = status_module(body, imports=imported("channel-send", 3), data=data)
            wanted = 'channels = ["*"]\nwildcard_opt_in = ["channels"]'
            await put_in_use(harness, f"1.{number}.0", module=module, capabilities=wanted)
            result = (await harness.call(TOOL, {})).result
            assert result == {"s": f"{'-' if status else '+'}{-status:04}"}, text
        sent = [payload for kind, payload in harness.events() if kind == "channel.message"]
        assert [(each["channel"], each["text"]) for each in sent] == [("alerts", "hello")]


async def test_policy_may_take_a_host_from_a_skill(web: Web, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(
        '@id("mine") forbid (principal, action == Action::"egress.connect", resource)'
        f' when {{ context has skill && context.skill == Skill::"{SKILL}" }};'
    )
    async with open_harness(tmp_path, settings(web)) as harness:
        await put_in_use(harness, module=sender(attach=False), capabilities=wishes(f"web.test:{web.port}"))
        assert (await harness.call(TOOL, {})).result == {"s": f"-{-Status.DENIED:04}"}
    assert web.received == []


@pytest.mark.promise("P-net-requests")
async def test_a_skill_sends_no_request_that_the_hosts_rules_do_not_cover(web: Web, tmp_path: Path) -> None:
    for number, (rule, allowed) in enumerate(
        (({"methods": ["POST"]}, False), ({"paths": ["/elsewhere"]}, False), ({"methods": ["GET"]}, True))
    ):
        given = settings(web)
        given["egress"]["request_rules"] = [{"hosts": [f"web.test:{web.port}"], "inspect": True, **rule}]
        folder = tmp_path / str(number)
        folder.mkdir()
        async with open_harness(folder, given) as harness:
            await put_in_use(harness, module=sender(attach=False), capabilities=wishes(f"web.test:{web.port}"))
            result = (await harness.call(TOOL, {})).result
            refused = [payload["refusal"]["code"] for kind, payload in harness.events() if kind == "egress.refused"]
        assert (result == {"s": f"-{-Status.DENIED:04}"}) is not allowed
        assert refused == ([] if allowed else ["egress.request_not_allowed"])
    assert len(web.received) == 1


FAIL = "(drop (call $fail (i32.const 700) (i32.const 7)))"


def failing(body: str, *, imports: str = HTTP, data: str = DATA) -> bytes:
    """Does what ``body`` does, and then says that it failed."""
    return status_module(
        f"(block (result i32) (drop {body}) {FAIL} (i32.const 0))",
        imports=imports + imported("fail", 2),
        data=data + text_at(700, "no luck"),
    )


async def refused_to(harness: GatewayHarness, version: str, module: bytes, capabilities: str) -> dict[str, Any]:
    """The error of a call in which the skill fails."""
    await put_in_use(harness, version, module=module, capabilities=capabilities)
    record = await harness.call(TOOL, {})
    assert record.error is not None and record.error["code"] == "wasm.failed" and record.error["message"] == "no luck"
    return record.error


@pytest.mark.promise("P-skill-reach")
async def test_a_skill_that_fails_tells_its_caller_what_it_was_refused(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        send = SEND.format(http=10000)
        error = await refused_to(harness, "1.0.0", failing(send), wishes("elsewhere.test:8080"))
        refused = {"service": "http", "code": "egress.host_not_allowed", "host": "elsewhere.test:8080"}
        assert error["details"]["refused"] == [refused]
        assert error["hint"].endswith(
            "before that Palyra refused it http to elsewhere.test:8080 (egress.host_not_allowed)"
        )
        # Whatever was allowed, and whatever went wrong without anybody's refusal, is not among it.
        error = await refused_to(harness, "1.1.0", failing(send), wishes(f"web.test:{web.port}"))
        assert "refused" not in error.get("details", {}) and "refused it" not in error["hint"]
        # The same again and again is told once.
        twice = f"(block (result i32) (drop {send}) {send})"
        error = await refused_to(harness, "1.2.0", failing(twice), wishes("elsewhere.test:8080"))
        assert error["details"]["refused"] == [refused]
        put = "(call $storage-put (i32.const 30000) (i32.const 600) (i32.const 1) (i32.const 8) (i32.const 1))"
        module = failing(put, imports=imported("storage-put", 5), data=text_at(600, "k"))
        error = await refused_to(harness, "1.3.0", module, 'filesystem = { read_roots = ["notes"] }')
        assert error["details"]["refused"] == [{"service": "storage", "code": "wasm.capability_denied"}]


@pytest.mark.promise("P-skill-reach")
async def test_a_refusal_names_the_host_behind_a_star_but_neither_secrets_nor_policies(
    web: Web, tmp_path: Path
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(
        '@id("mine") forbid (principal, action == Action::"vault.use", resource);'
    )
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await keep(harness, "global/other", "Tok-Of-Mixed-Case")
        for number, (named, shown) in enumerate(
            {"a.web.test": "a.web.test", "Tok-Of-Mixed-Case.web.test": "[redacted].web.test"}.items()
        ):
            head = json.dumps({"method": "GET", "path": f"//{named}/", "headers": []})
            send = SEND.format(http=10000).replace(str(len(HEAD)), str(len(head)))
            module = failing(send, data=text_at(8, head))
            error = await refused_to(harness, f"1.{number}.0", module, wishes("*.web.test", more=STARRED))
            assert [one["host"] for one in error["details"]["refused"]] == [shown]
        reveal = failing("(call $secret-reveal (i32.const 20000))")
        error = await refused_to(harness, "2.0.0", reveal, 'secrets = ["token"]\nreveal_secrets = ["token"]')
        assert error["details"]["refused"] == [{"service": "secret", "code": "vault.use_denied"}]
        assert OWN not in json.dumps(error) and "mine" not in json.dumps(error)


async def test_a_secret_is_read_only_with_a_grant_of_its_own(web: Web, tmp_path: Path) -> None:
    reveal = text_module("(call $secret-reveal (i32.const 20000))", imports=HTTP, data=DATA)
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await put_in_use(harness, module=reveal, capabilities='secrets = ["token"]')
        assert (await harness.call(TOOL, {})).result == {"s": f"-{-Status.DENIED:02}"}
        granted = 'secrets = ["token"]\nreveal_secrets = ["token"]'
        await put_in_use(harness, "1.1.0", module=reveal, capabilities=granted)
        record = await harness.call(TOOL, {})
        # The guest read it; what it returns is redacted on the way to the agent.
        assert record.state.value == "succeeded" and set(record.result) == {"t"} and TOKEN not in str(record.result)
        assert "vault.secret_used" in harness.kinds(call=record.call_id)


def saying(how: str) -> bytes:
    """Reads the secret and says it: in a log line, as the reason for its failure, or on its standard output."""
    printed = (
        '(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))'
        if how == "stdout"
        else ""
    )
    say = {
        "log": "(call $log (i32.const 1) (i32.const 65536) (local.get $n))",
        "fail": "(call $fail (i32.const 65536) (local.get $n))",
        "stdout": """(block (result i32) (i32.store (i32.const 16) (i32.const 65536))
          (i32.store (i32.const 20) (local.get $n))
          (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))""",
    }[how]
    return wasm(
        f"""(module {printed} {HTTP} {imported("result-read", 3)} {imported("log", 3)} {imported("fail", 2)}
      (memory (export "memory") 4 8) {ALLOC} {PACK} {text_at(2048, "{}")}
      (func (export "run") (param i32 i32 i32 i32) (result i64) (local $n i32)
        (local.set $n (call $secret-reveal (i32.const 20000)))
        (drop (call $result-read (i32.const 0) (i32.const 65536) (local.get $n)))
        (drop {say}) (call $pack (i32.const 2048) (i32.const 2))))"""
    )


@pytest.mark.parametrize("how", ["log", "fail", "stdout"])
@pytest.mark.parametrize(
    ("value", "leak"),
    [
        pytest.param(LONG := "".join(f"{number:04x}" for number in range(799)), LONG[:16], id="long"),
        pytest.param(LONG, LONG[3_000:3_016], id="end of long"),
        pytest.param(f"{TOKEN}\n", TOKEN, id="line feed"),
        pytest.param(f"tok\u200b-{TOKEN}", TOKEN, id="hidden character"),
    ],
)
async def test_what_a_guest_says_of_a_secret_it_read_is_redacted(
    how: str, value: str, leak: str, tmp_path: Path
) -> None:
    async with open_harness(tmp_path, {"tools": {"preapproved": ["skill.*"]}}) as harness:
        await keep(harness, value=value)
        granted = 'secrets = ["token"]\nreveal_secrets = ["token"]\nwasi = ["stdio"]'
        await put_in_use(harness, module=saying(how), capabilities=granted)
        record = await harness.call(TOOL, {})
        output = f"{record.result} {record.error} {record.receipt} {harness.events(call=record.call_id)}"
    assert "[redacted]" in output
    assert leak not in output


async def test_a_shared_secret_needs_a_persons_approval(web: Web, tmp_path: Path) -> None:
    capabilities = wishes(f"web.test:{web.port}").replace('"token"', '"global/token"')
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness, "global/token")
        await put_in_use(harness, module=sender(), capabilities=capabilities)
        assert (await harness.call(TOOL, {})).result == {"s": f"-{-Status.DENIED:04}"}
    assert web.received == []


def storing(body: str, *data: str) -> bytes:
    imports = "".join(
        imported(name, count)
        for name, count in (("storage-put", 5), ("storage-get", 3), ("storage-delete", 3), ("storage-list", 3))
    )
    return status_module(body, imports=imports, data="".join(data))


PUT = "(call $storage-put (i32.const {handle}) (i32.const 8) (i32.const {length}) (i32.const 64) (i32.const 5))"


async def test_storage_stays_beneath_its_root_and_quota(tmp_path: Path) -> None:
    free = {"tools": {"preapproved": ["skill.*"]}}
    value = text_at(64, "hello")
    roots = 'filesystem = { read_roots = ["a"], write_roots = ["b"] }\nquotas = { storage_bytes = 80 }'
    cases = (
        (PUT.format(handle=30001, length=1), "k", Status.OK),
        (PUT.format(handle=30000, length=1), "k", Status.DENIED),
        (PUT.format(handle=30002, length=1), "k", Status.BAD_HANDLE),
        (PUT.format(handle=30001, length=4), "../k", Status.BAD_REQUEST),
        (PUT.format(handle=30001, length=2), "/k", Status.BAD_REQUEST),
        (PUT.format(handle=30001, length=40), "k" * 40, Status.QUOTA),
        ("(call $storage-get (i32.const 30000) (i32.const 8) (i32.const 1))", "k", Status.NOT_FOUND),
        ("(call $storage-get (i32.const 30001) (i32.const 8) (i32.const 1))", "k", 5),
        ("(call $storage-delete (i32.const 30000) (i32.const 8) (i32.const 1))", "k", Status.DENIED),
        ("(call $storage-delete (i32.const 30001) (i32.const 8) (i32.const 1))", "k", Status.OK),
        ("(call $storage-get (i32.const 30001) (i32.const 8) (i32.const 1))", "k", Status.NOT_FOUND),
    )
    async with open_harness(tmp_path, free) as harness:
        for number, (body, name, expected) in enumerate(cases):
            module = storing(body, text_at(8, name), value)
            await put_in_use(harness, f"1.{number}.0", module=module, capabilities=roots)
            record = await harness.call(TOOL, {})
            assert record.result == {"s": f"{int(expected):+05}"}, (number, record.result, record.error)
    kept = tmp_path / "state" / "skills" / SKILL / "principals" / "agent=bot"
    assert list(kept.iterdir()) == [] and kept.stat().st_mode & 0o777 == 0o700


async def test_messages_reach_listeners_and_the_journal_once_a_person_said_yes(tmp_path: Path) -> None:
    module = status_module(
        "(call $channel-send (i32.const 40000) (i32.const 8) (i32.const 5))",
        imports=imported("channel-send", 3),
        data=text_at(8, "hello"),
    )
    async with open_harness(tmp_path) as harness:
        await put_in_use(harness, module=module, capabilities='channels = ["news"]')
        listening = harness.gateway.channels.listen("news")
        assert listening is not None
        with listening:
            asked = await harness.call(TOOL, {})
            assert asked.state is CallState.NEEDS_APPROVAL and "channel.message" not in harness.kinds()
            await harness.approve(asked.approval_id)
            record = await harness.call(TOOL, {})
            message = await asyncio.wait_for(anext(listening), 10)
        assert (message.text, message.skill, message.call) == ("hello", SKILL, record.call_id)
        assert record.result == {"s": "+0000"}
        sent = [payload for kind, payload in harness.events(call=record.call_id) if kind == "channel.message"]
        assert sent == [{"channel": "news", "skill": SKILL, "text": "hello"}]


async def test_redirects_are_the_guests_to_judge_and_quotas_end_the_asking(tmp_path: Path) -> None:
    def away(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")

    web = Web(away)
    twice = f"(block (result i32) (drop {SEND.format(http=10000)}) {SEND.format(http=10000)})"
    capabilities = f'http_egress_allowlist = ["web.test:{web.port}"]'
    with web.server:
        async with open_harness(tmp_path, settings(web)) as harness:
            module = status_module(twice, imports=HTTP, data=DATA)
            await put_in_use(harness, module=module, capabilities=capabilities + "\nquotas = { http_requests = 1 }")
            record = await harness.call(TOOL, {})
            assert record.result == {"s": f"-{-Status.QUOTA:04}"}
            hosts = [payload["target"]["host"] for kind, payload in harness.events() if kind == "egress.connected"]
            assert hosts == ["web.test"]
            used = next(line for line in record.receipt if line["layer"] == "host services")
            assert used["got"] == "1 requests"


@pytest.mark.parametrize(
    "head",
    [
        {"method": "GET", "path": "/", "headers": [["X-Key", "{{vault:global/token}}"]]},
        {"method": "GET", "path": "/", "headers": [["Host", "other.test"]]},
        {"method": "GET", "path": "/", "headers": [["X-Forwarded-Host", "other.test"]]},
        {"method": "GET", "path": "/", "headers": [["X-A", "1"], ["X-A", "2"]]},
        {"method": "GET", "path": "//other.test/", "headers": [["X-A", "a\r\nHost: other.test"]]},
        {"method": "TRACE", "path": "/", "headers": []},
    ],
)
async def test_a_request_that_would_say_more_than_was_judged_is_not_sent(
    web: Web, tmp_path: Path, head: dict[str, Any]
) -> None:
    text = json.dumps(head)
    send = f"(call $http-send (i32.const 10000) (i32.const 8) (i32.const {len(text)}) (i32.const 0) (i32.const 0))"
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness, "global/token")
        module = status_module(send, imports=HTTP, data=text_at(8, text))
        await put_in_use(harness, module=module, capabilities=f'http_egress_allowlist = ["web.test:{web.port}"]')
        assert (await harness.call(TOOL, {})).result == {"s": f"-{-Status.BAD_REQUEST:04}"}
    assert web.received == []


def attaching(header: str, prefix: str = "") -> bytes:
    """Sends one request with the secret as that header."""
    attach = f"""(drop (call $secret-attach (i32.const 20000) (i32.const 10000)
      (i32.const 512) (i32.const {len(header)}) (i32.const 600) (i32.const {len(prefix)})))"""
    body = f"(block (result i32) {attach} {SEND.format(http=10000)})"
    data = text_at(8, HEAD) + text_at(512, header) + text_at(600, prefix)
    return status_module(body, imports=HTTP, data=data)


@pytest.mark.parametrize(
    ("header", "prefix"),
    [
        ("X-Original-URL", "/admin?x="),
        ("X_Original_URL", "/admin?x="),
        ("X-HTTP-Method-Override", "DELETE;"),
        ("X-Forwarded-Host", "other.test, "),
        ("Forwarded", "host=other.test;secret="),
        ("Accept-Encoding", "gzip, "),
        ("Content-Encoding", ""),
        ("Range", "bytes=0-5,9-"),
        ("If-Range", ""),
        ("Transfer_Encoding", "chunked;"),
    ],
)
async def test_a_secret_is_attached_to_no_header_that_says_more_than_was_judged(
    web: Web, tmp_path: Path, header: str, prefix: str
) -> None:
    """The guest chooses the header and what stands before the secret: path, method and host are not its to say there
    either, nor is how the answer comes that has to be searched for the secret."""
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await put_in_use(harness, module=attaching(header, prefix), capabilities=wishes(f"web.test:{web.port}"))
        record = await harness.call(TOOL, {})
        assert record.result == {"s": f"-{-Status.BAD_REQUEST:04}"}
        assert "vault.secret_used" not in harness.kinds(call=record.call_id)
    assert web.received == []


@pytest.mark.promise("P-skill-reach")
@pytest.mark.parametrize("header", ["X-Amz-Meta-Note", "Cookie", "Authorization-Note", "X-Api-Key"])
async def test_a_secret_goes_to_no_header_that_was_not_approved(web: Web, tmp_path: Path, header: str) -> None:
    """A server that keeps what a header says would tell the guest the secret with a later request: which headers carry
    one is reviewed, and what was not is refused before anything is sent."""
    host = f"web.test:{web.port}"
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        await put_in_use(harness, module=attaching(header), capabilities=wishes(host))
        record = await harness.call(TOOL, {})
        assert record.result == {"s": f"-{-Status.DENIED:04}"}
        assert "vault.secret_used" not in harness.kinds(call=record.call_id)
        assert web.received == []
        approved = f'secret_headers = ["{header.lower()}"]'
        await put_in_use(harness, "1.1.0", module=attaching(header), capabilities=wishes(host, more=approved))
        assert (await harness.call(TOOL, {})).result["s"].startswith("+")
    assert f"{header}: {TOKEN}" in web.received[0]


@pytest.mark.promise("P-skill-reach")
async def test_what_a_removed_skill_stored_stays_until_it_is_purged(tmp_path: Path) -> None:
    module = storing(PUT.format(handle=30000, length=1), text_at(8, "k"), text_at(64, "hello"))
    roots = 'filesystem = { write_roots = ["notes"] }'
    async with open_harness(tmp_path, {"tools": {"preapproved": ["skill.*"]}}) as harness:
        skills, who = harness.gateway.skills, {"actor": "user:operator"}
        await put_in_use(harness, module=module, capabilities=roots)
        assert (await harness.call(TOOL, {})).result == {"s": "+0000"}
        folder = tmp_path / "state" / "skills" / SKILL / "principals" / "agent=bot"
        with pytest.raises(WrongState):
            await skills.purge(SKILL, **who)
        await skills.remove(SKILL, **who)
        assert list(folder.iterdir())
        erased = await skills.purge(SKILL, **who)
        assert erased.values == 1 and not folder.exists()
        events = [payload for kind, payload in harness.events() if kind == "skill.purged"]
        assert events == [{"skill_id": SKILL, "values": 1, "bytes": erased.bytes}]
        assert (await skills.details(SKILL)).history[0].kind == "skill.purged"
        assert (await skills.purge(SKILL, **who)).values == 0
        for nobody in ("nobody", "../vault", "acme.notes/../x"):
            with pytest.raises(UnknownSkill):
                await skills.purge(nobody, **who)


@pytest.mark.promise("P-skill-reach")
@pytest.mark.parametrize("purged", [True, False])
async def test_a_call_that_outlives_its_skill_stores_nothing_more(tmp_path: Path, purged: bool) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(connection: socket.socket) -> None:
        read_request(connection)
        asked.set()
        go_on.wait(60)
        connection.sendall(answer(b"at last"))

    put = "(call $storage-put (i32.const 30000) (i32.const 600) (i32.const 1) (i32.const 8) (i32.const 5))"
    module = status_module(
        f"(block (result i32) {put} (drop) (drop {SEND.format(http=10000)}) {put})",
        imports=HTTP + imported("storage-put", 5),
        data=DATA + text_at(600, "k"),
    )
    web, who = Web(slow), {"actor": "user:operator"}
    capabilities = wishes(f"web.test:{web.port}", more='filesystem = { write_roots = ["notes"] }')
    folder = tmp_path / "state" / "skills" / SKILL / "principals" / "agent=bot"
    with web.server:
        async with open_harness(tmp_path, settings(web)) as harness, asyncio.TaskGroup() as group:
            await put_in_use(harness, module=module, capabilities=capabilities)
            calling = group.create_task(harness.call(TOOL, {}))
            await asyncio.to_thread(asked.wait, 60)
            before = [each.read_bytes() for each in folder.iterdir()]
            await harness.gateway.skills.remove(SKILL, **who)
            if purged:
                assert (await harness.gateway.skills.purge(SKILL, **who)).values == 1
            go_on.set()
            assert (await calling).result == {"s": f"-{-Status.DENIED:04}"}
            assert ([each.read_bytes() for each in folder.iterdir()] == before) if not purged else not folder.exists()


async def test_one_skill_never_has_anothers_secret_or_storage(web: Web, tmp_path: Path) -> None:
    other = "acme.other"
    async with open_harness(tmp_path, settings(web)) as harness:
        await keep(harness)
        module = storing(PUT.format(handle=30000, length=1), text_at(8, "k"), text_at(64, "hello"))
        roots = 'filesystem = { write_roots = ["notes"] }'
        await put_in_use(harness, module=module, capabilities=roots)
        assert (await harness.call(TOOL, {})).result == {"s": "+0000"}
        get = "(call $storage-get (i32.const 30000) (i32.const 8) (i32.const 1))"
        reading = storing(get, text_at(8, "k"))
        await put_in_use(harness, module=reading, capabilities=roots, skill_id=other)
        record = await harness.call(f"skill.{other}.add", {})
        assert record.result == {"s": f"-{-Status.NOT_FOUND:04}"}
        await put_in_use(harness, "1.1.0", module=sender(), capabilities=wishes(f"web.test:{web.port}"), skill_id=other)
        # Its own secret of the same name is not there.
        record = await harness.call(f"skill.{other}.add", {})
        assert record.result["s"].startswith("-")
    assert web.received == []


async def test_what_a_skill_that_was_granted_nothing_says_is_redacted_too(tmp_path: Path) -> None:
    """It may have been handed a secret in its arguments."""
    data = text_at(8, f"got {TOKEN}")
    module = status_module(
        f"(call $log (i32.const 1) (i32.const 8) (i32.const {len(TOKEN) + 4}))", imports=imported("log", 3), data=data
    )
    async with open_harness(tmp_path) as harness:
        harness.gateway.redactor.register(Secret(TOKEN))
        await put_in_use(harness, module=module)
        record = await harness.call(TOOL, {})
        (logged,) = [line["got"] for line in record.receipt if line["layer"] == "log"]
        assert logged.endswith("got [redacted]")
