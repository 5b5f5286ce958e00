"""http.fetch in a whole gateway, against a server on this machine."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.fetch_harness import Authority, answer, redirect
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.loopback import Script, ScriptedServer, read_request
from palyra.executors.fetch.spec import fetch_spec
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import ToolCapability
from palyra.secret import Secret
from palyra.vault.reference import SecretRef

TOKEN = "tok-0123456789"
FORBID = """
@id("mine.no-web")
forbid (principal, action == Action::"egress.connect", resource)
when { resource.name == "%s" };
"""


class Web:
    """A server whose every connection gets the next answer, or script. ``received`` are the requests."""

    def __init__(self, answers: Sequence[bytes | Script], context: Any = None) -> None:
        self.received: list[str] = []
        scripts = [self._script(each) if isinstance(each, bytes) else each for each in answers]
        self.server = ScriptedServer(scripts, context)

    def _script(self, reply: bytes) -> Any:
        def script(connection: socket.socket) -> None:
            if request := read_request(connection):
                self.received.append(request.decode("latin-1"))
                connection.sendall(reply.replace(b"PORT", str(self.port).encode()))

        return script

    @property
    def port(self) -> int:
        return self.server.port

    def url(self, path: str = "/", host: str = "web.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def settings(self, **egress: Any) -> dict[str, Any]:
        hosts = [f"web.test:{self.port}", f"other.test:{self.port}"]
        return {
            "egress": {
                "allowed_hosts": hosts,
                "private_targets": hosts,
                "static_hosts": {"web.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]},
                **egress,
            },
            "tools": {"preapproved": ["http.fetch"]},
        }

    def __enter__(self) -> "Web":
        self.server.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.__exit__(*exception)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web([answer(b"hello")] * 4) as web:
        yield web


async def test_a_fetch_is_judged_made_charged_and_recorded(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, web.settings()) as harness:
        record = await harness.call("http.fetch", {"url": web.url("/x")})
        assert record.state.value == "succeeded" and record.result["text"] == "hello"
        account = harness.run(record.run_id).budget[BudgetKind.EGRESS_BYTES]
        assert account.reserved == 0 and 0 < account.used < 1000
        entries = harness.events(call=record.call_id)
        assert [kind for kind, _ in entries][2:] == [
            "call.started",
            "egress.connected",
            "egress.closed",
            "call.finished",
        ]
        assert entries[3][1]["address"] == "127.0.0.1" and entries[3][1]["target"]["host"] == "web.test"


async def test_it_asks_a_person_and_shows_what_it_touches(web: Web, tmp_path: Path) -> None:
    settings = web.settings() | {"tools": {}}
    async with open_harness(tmp_path, settings) as harness:
        asked = await harness.call("http.fetch", {"url": web.url()})
        assert asked.state.value == "needs_approval" and web.received == []
        approval = await harness.approve(asked.approval_id)
        assert approval.touches["hosts"] == [f"web.test:{web.port}"]
        assert (await harness.call("http.fetch", {"url": web.url()})).state.value == "succeeded"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://elsewhere.test/", "egress.host_not_allowed"),
        ("http://web.test/", "egress.host_not_allowed"),
        ("http://169.254.169.254/", "egress.host_not_allowed"),
        ("file:///etc/passwd", "egress.scheme_not_allowed"),
        ("http://0x7f.1/", "egress.odd_target"),
        ("nonsense", "fetch.bad_url"),
    ],
)
async def test_what_cannot_be_reached_is_refused_before_anybody_is_asked(
    web: Web, tmp_path: Path, url: str, code: str
) -> None:
    async with open_harness(tmp_path, web.settings() | {"tools": {}}) as harness:
        record = await harness.call("http.fetch", {"url": url})
        assert record.state.value == "refused" and record.error is not None and record.error["code"] == code
        assert harness.kinds(call=record.call_id) == ["call.refused"]


async def test_nothing_is_reachable_by_default(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"tools": {"preapproved": ["http.fetch"]}}) as harness:
        record = await harness.call("http.fetch", {"url": f"http://127.0.0.1:{web.port}/"})
        assert record.error is not None and record.error["code"] == "egress.host_not_allowed"


async def test_an_allowed_name_on_this_machine_needs_a_private_target(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, web.settings(private_targets=[])) as harness:
        record = await harness.call("http.fetch", {"url": web.url()})
        assert record.state.value == "failed" and record.error is not None
        assert record.error["code"] == "egress.address_forbidden" and web.received == []
        assert "egress.refused" in harness.kinds(call=record.call_id)


async def test_a_policy_takes_hosts_away_also_from_redirects(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(FORBID % "other.test")
    with Web([*redirect("http://other.test:PORT/")] * 2) as web:
        async with open_harness(tmp_path, web.settings()) as harness:
            record = await harness.call("http.fetch", {"url": web.url()})
            assert record.state.value == "failed" and record.error is not None
            assert record.error["code"] == "egress.host_not_allowed" and "mine.no-web" in str(record.error)
            direct = await harness.call("http.fetch", {"url": web.url(host="other.test")})
            assert direct.state.value == "failed" and len(web.received) == 1


async def test_an_approval_does_not_reach_beyond_what_was_seen(tmp_path: Path) -> None:
    """A policy wants a person's yes for one host: a redirect there from a host that got it is refused."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(
        '@id("mine.ask") forbid (principal, action == Action::"egress.connect", resource)'
        ' when { resource.name like "*.test" } unless { context.approved };'
    )
    with Web([answer(b"seen"), *redirect("http://other.test:PORT/"), answer(b"unseen")]) as web:
        async with open_harness(tmp_path, web.settings() | {"tools": {}}) as harness:
            for path in ("/1", "/2"):
                asked = await harness.call("http.fetch", {"url": web.url(path)})
                await harness.approve(asked.approval_id)
            seen = await harness.call("http.fetch", {"url": web.url("/1")})
            unseen = await harness.call("http.fetch", {"url": web.url("/2")})
            assert seen.state.value == "succeeded" and unseen.state.value == "failed" and len(web.received) == 2


async def test_the_runs_budget_bounds_a_fetch(tmp_path: Path) -> None:
    with Web([answer(b"x" * 100_000)] * 2) as web:
        async with open_harness(tmp_path, web.settings()) as harness:
            run = await harness.open_run(egress_bytes=20_000)
            cut = await harness.call("http.fetch", {"url": web.url()}, run_id=run)
            assert cut.state.value == "failed" and cut.error is not None
            assert cut.error["code"] == "egress.byte_budget_spent" and cut.result["truncated"]
            assert harness.run(str(run)).budget[BudgetKind.EGRESS_BYTES].left == 0
            again = await harness.call("http.fetch", {"url": web.url()}, run_id=run)
            assert again.error is not None and again.error["code"] == "budget.exhausted" and len(web.received) == 1


async def test_the_settings_bound_a_fetch_too(tmp_path: Path) -> None:
    with Web([answer(b"x" * 100_000)]) as web:
        async with open_harness(tmp_path, web.settings(max_call_bytes=10_000)) as harness:
            cut = await harness.call("http.fetch", {"url": web.url()})
            assert cut.error is not None and cut.error["code"] == "egress.byte_budget_spent"


async def test_a_cancelled_fetch_is_charged_what_it_moved(tmp_path: Path) -> None:
    begun, released = threading.Event(), threading.Event()

    def half(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer(b"x" * 30_000, length=1_000_000))
        begun.set()
        released.wait(30)

    with Web([half]) as web:
        async with open_harness(tmp_path, web.settings()) as harness:
            call = asyncio.create_task(harness.call("http.fetch", {"url": web.url()}))
            assert await asyncio.to_thread(begun.wait, 30)
            (started,) = [each for each in harness.gateway.store.events_since(0, 1000) if each.kind == "call.started"]
            await harness.gateway.broker.cancel(started.call)
            released.set()
            record = await call
            assert record.state.value == "cancelled"
            assert harness.run(record.run_id).budget[BudgetKind.EGRESS_BYTES].used > 0
            assert "egress.closed" in harness.kinds(call=record.call_id)


async def test_obligations_it_is_held_to(web: Web, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.cedar").write_text(
        '@id("mine.small") @obligation_max_output_bytes("2000") @obligation_egress("strict")'
        ' permit (principal, action == Action::"tool.execute", resource == Tool::"http.fetch");'
    )
    async with open_harness(tmp_path, web.settings()) as harness:
        record = await harness.call("http.fetch", {"url": web.url()})
        assert record.state.value == "succeeded", record.error


async def put(harness: GatewayHarness, ref: str = "global/t") -> None:
    await harness.gateway.vault.put(SecretRef.parse(ref), Secret(TOKEN), actor="user:operator")


def bindings(web: Web, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "header_name": "Authorization",
            "secret_ref": "global/t",
            "prefix": "Bearer ",
            "hosts": [f"web.test:{web.port}"],
        }
        | more
    ]


async def test_a_bound_secret_goes_out_with_an_approved_call_and_is_nowhere_else(tmp_path: Path) -> None:
    with Web([answer(f"you sent {TOKEN}".encode())]) as web:
        settings = web.settings(bindings=bindings(web)) | {"tools": {}}
        async with open_harness(tmp_path, settings) as harness:
            await put(harness)
            asked = await harness.call("http.fetch", {"url": web.url()})
            approval = await harness.approve(asked.approval_id)
            assert approval.touches["secrets"] == ["global/t"]
            record = await harness.call("http.fetch", {"url": web.url()})
            assert record.state.value == "succeeded", record.error
            assert f"Authorization: Bearer {TOKEN}" in web.received[0]
            kinds = harness.kinds(call=record.call_id)
            assert "vault.secret_used" in kinds and "egress.credential_used" in kinds
            assert "egress.response_redacted" in kinds
            assert TOKEN not in str(record) and TOKEN not in str(harness.events())


async def test_a_shared_secret_needs_the_approval(web: Web, tmp_path: Path) -> None:
    async with open_harness(tmp_path, web.settings(bindings=bindings(web))) as harness:
        await put(harness)
        record = await harness.call("http.fetch", {"url": web.url()})
        assert record.error is not None and record.error["code"] == "egress.credential_not_allowed"
        assert web.received == []


@pytest.mark.parametrize("required", [True, False])
async def test_a_missing_secret(web: Web, tmp_path: Path, required: bool) -> None:
    settings = web.settings(bindings=bindings(web, secret_ref="principal:agent:bot/t", required=required))
    async with open_harness(tmp_path, settings) as harness:
        await put(harness, "global/unrelated")
        record = await harness.call("http.fetch", {"url": web.url()})
        assert (record.state.value == "failed") == required and bool(web.received) != required
        if record.error is not None:
            assert record.error["code"] == "egress.credential_missing"
            assert record.error["details"]["host"] == "web.test"


async def test_tls_with_an_authority_of_the_settings(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Web([answer(b"secured")], authority.server_context("web.test")) as web:
        async with open_harness(tmp_path, web.settings(ca_file=str(authority.ca_file))) as harness:
            record = await harness.call("http.fetch", {"url": web.url(scheme="https")})
            assert record.result["text"] == "secured"
            assert any(line["layer"] == "tls" for line in record.receipt)


def test_the_spec_says_what_it_can_touch() -> None:
    spec = fetch_spec(None)
    assert spec.metadata.capabilities == {ToolCapability.NETWORK} and spec.metadata.sensitive
    assert spec.touches({"url": "https://a.test/"}).hosts == ("a.test",)
    assert spec.reserves({"url": "https://a.test/"})[BudgetKind.EGRESS_BYTES] > 0
    named = spec.touches({"url": "https://a.test/", "headers": {"X": "{{vault:global/t}}"}})
    assert named.secrets == ("global/t",)
