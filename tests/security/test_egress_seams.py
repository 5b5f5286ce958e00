"""The life of a call's grant, where budgets, the journal, policy and the proxy meet: nothing outlives the call, and
everything is charged and recorded."""

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from fakes.bound_host_harness import plan_of, profile_of, sandboxed, settings
from fakes.fetch_harness import answer
from fakes.gateway_harness import open_harness
from fakes.loopback import ScriptedServer, read_request
from palyra.egress import policy_judge
from palyra.egress.domain.events import Connected, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import HostNotAllowed, MalformedTraffic, NameUnresolved
from palyra.egress.domain.target import Target
from palyra.egress.proxy import run_authority
from palyra.egress.proxy.resolver import SystemResolver
from palyra.executors.network import journal
from palyra.pipeline.domain.budget import BudgetKind


async def test_a_program_in_the_background_is_charged_the_most_it_may_use(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        assert it.plan.usage.noted == {BudgetKind.EGRESS_BYTES: it.listener.most_bytes}
        await it.get()
        await it.listener.close()
        assert 0 < it.plan.usage.noted[BudgetKind.EGRESS_BYTES] < 1000


async def test_calls_that_never_open_their_door_leave_no_authority_behind(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(8080)) as harness:
        parts = harness.gateway.egress
        for number in range(3):
            plan = plan_of(harness, call_id=f"c{number}", tool="process.logs")
            profile, listener = parts.prepare_listener(plan, profile_of(harness, "api.test:8080"))
            assert profile.extra_files and listener is not None
        assert vars(parts.termination)["_authorities"] == {}


async def test_a_door_whose_closing_is_broken_off_still_ends_its_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sandboxed(tmp_path) as it:
        parts = it.harness.gateway.egress
        flush = parts.observer.flush

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(parts.observer, "flush", never)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await it.listener.close()
        monkeypatch.setattr(parts.observer, "flush", flush)
        assert vars(parts.grants)["_calls"] == {} and vars(parts.termination)["_authorities"] == {}


async def test_what_is_cut_with_the_door_is_on_record_before_the_call_ends_and_nothing_is_kept(tmp_path: Path) -> None:
    async with sandboxed(tmp_path, bindings=[]) as it:
        host = f"api.test:{it.port}"
        reader, writer = await asyncio.open_connection(*it.proxy)
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b"200" in await reader.readline()
        observer = it.harness.gateway.egress.observer
        await observer.flush()
        await it.listener.close()
        assert [kind for kind, _ in it.events()] == ["egress.connected", "egress.closed"]
        assert not vars(observer)["_counts"] and not vars(observer)["_kinds"]
        writer.close()


async def test_the_receipt_counts_all_refusals_and_the_grave_ones(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        for _ in range(70):
            await it.say(b"GET http://elsewhere.test/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n")
        usage = await it.listener.close()
        assert usage.refused == 70 and usage.violations == 70 and len(usage.refusals) == 64


async def test_a_fault_on_the_way_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More bound hosts than one run may have: what ends the connection is no refusal of the judge's."""
    monkeypatch.setattr(run_authority, "MAX_BOUND_HOSTS", 0)
    async with sandboxed(tmp_path) as it:
        host = f"api.test:{it.port}"
        hello = await asyncio.to_thread(_client_hello)
        await it.say(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), hello)
        await it.listener.close()
        assert [kind for kind, _ in it.events()] == ["egress.refused"]


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="api.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


async def test_a_change_of_policy_cuts_a_fetch_under_way(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    begun, released = threading.Event(), threading.Event()

    def half(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer(b"x" * 1000, length=1_000_000))
        begun.set()
        released.wait(30)
        with contextlib.suppress(OSError):
            connection.sendall(b"y" * 999_000)

    with ScriptedServer([half]) as server:
        async with open_harness(tmp_path, settings(server.port, bindings=[])) as harness:
            url = f"http://api.test:{server.port}/"
            call = asyncio.create_task(harness.call("http.fetch", {"url": url, "max_bytes": 1_000_000}))
            assert await asyncio.to_thread(begun.wait, 30)
            (tmp_path / "policies" / "own.cedar").write_text(
                '@id("no-network") forbid (principal, action == Action::"egress.connect", resource);'
            )
            await harness.gateway.policy.reload()
            released.set()
            record = await call
            assert record.error is not None and record.error["code"] == "egress.policy_changed"
            assert {"egress.refused", "egress.closed"} <= set(harness.kinds(call=record.call_id))
            assert harness.run(record.run_id).budget[BudgetKind.EGRESS_BYTES].used > 0


async def test_a_flood_hides_no_other_host_and_no_other_kind_of_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES_PER_GRANT", 10)
    async with open_harness(tmp_path) as harness:
        observer = harness.gateway.egress.observer
        grant = EgressGrant(grant_id="g", principal="agent:bot", run="r", call="c", tool="t", rules=())
        harmless, other = (Target.from_url(f"https://{name}.example/") for name in ("a", "b"))
        refusals = [HostNotAllowed("no", host="x")] * 100 + [MalformedTraffic("smuggled", host="a.example")]
        for target in [harmless] * 100 + [other]:
            observer.observe(grant, Connected(target=target, address="192.0.2.1", face="connect"))
        for refused in refusals:
            observer.observe(grant, Refused.of(refused, "http"))
        await observer.flush()
        reported = harness.events(call="c")
        assert "b.example" in [payload["target"]["host"] for kind, payload in reported if kind == "egress.connected"]
        codes = [payload["refusal"]["code"] for kind, payload in reported if kind == "egress.refused"]
        assert codes[-1] == "egress.malformed_traffic" and len(reported) < 30
        observer.forget("g")


async def test_a_door_tells_the_first_refusal_of_each_kind_however_many_came_before(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        listener = vars(it.listener)["_listener"]
        for number in range(1_100):
            listener.refused(HostNotAllowed("no", host=f"n{number}.test"), "dns")
        await it.say(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        await it.listener.close()
        codes = [payload["refusal"]["code"] for kind, payload in it.events() if kind == "egress.refused"]
        assert codes[-1] == "egress.malformed_traffic" and len(codes) == 1_001


@pytest.mark.parametrize("character", ['"', "\\", "a", "\x7e"])
async def test_no_request_can_make_an_entry_that_takes_others_with_it(tmp_path: Path, character: str) -> None:
    """Entries are written many at once: one that the journal refuses must not cost those of other calls."""
    async with sandboxed(tmp_path) as it:
        observer = it.harness.gateway.egress.observer
        innocent = EgressGrant(grant_id="g2", principal="agent:other", run="r2", call="c2", tool="t", rules=())
        there = Target.from_url("https://a.example/")
        got = await it.get("/" + character * 31_000)
        observer.observe(innocent, Connected(target=there, address="192.0.2.1", face="connect"))
        await it.listener.close()
        assert it.harness.kinds(call="c2") == ["egress.connected"]
        assert ("egress.credential_used" in it.harness.kinds(call="c1")) == got.startswith(b"HTTP/1.1 200")


async def test_a_call_fills_the_journal_with_uses_of_its_secret_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_judge, "MAX_CREDENTIAL_USES_PER_CALL", 3)
    async with sandboxed(tmp_path) as it:
        answers = [(await it.get()).split(b" ", 2)[1] for _ in range(5)]
        assert answers == [b"200"] * 3 + [b"403"] * 2
        assert it.harness.kinds(call="c1").count("vault.secret_used") == 3
        await it.listener.close()
        assert not vars(it.harness.gateway.egress.grants)["_uses"]


async def test_names_of_a_server_that_never_answers_do_not_keep_others_from_theirs(tmp_path: Path) -> None:
    """A call that may reach everything below one domain asks for more names there than there are threads."""
    released = threading.Event()

    def lookup(name: str) -> tuple[str, ...]:
        if name.endswith(".slow.example."):
            released.wait(30)
        return ("192.0.2.1",)

    resolver = SystemResolver({}, lookup=lookup, hosts_file=tmp_path / "none", timeout_seconds=20)
    slow = [asyncio.create_task(resolver.resolve(f"n{number}.slow.example")) for number in range(300)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await resolver.resolve("a.quick.example") == ("192.0.2.1",)
    finally:
        released.set()
    found = await asyncio.gather(*slow, return_exceptions=True)
    assert 0 < sum(isinstance(each, NameUnresolved) for each in found) < 200
    assert {each for each in found if not isinstance(each, BaseException)} == {("192.0.2.1",)}
    assert not vars(resolver)["_lines"] and not vars(resolver)["_under_way"]
    resolver.close()
