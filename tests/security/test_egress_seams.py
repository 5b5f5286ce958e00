"""Attacks between the parts of the way out: where approvals, secrets, budgets, the journal and the proxy meet."""

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography import x509

from fakes.fetch_scene import Authority, answer, redirect
from fakes.house import House, open_house
from fakes.loopback import Script, ScriptedServer, read_request
from palyra.daemons import egress_journal, policed_egress
from palyra.daemons.egress_parts import BUNDLE_PATH, SandboxDoor
from palyra.daemons.policed_egress import CallOfGrant, GrantedSecrets, GrantsInUse, connect_request
from palyra.egress import run_ca
from palyra.egress.events import Connected, Refused
from palyra.egress.grant import EgressGrant
from palyra.egress.injection import inject, needles_of, plan_injection
from palyra.egress.refusal import CredentialNotAllowed, HostNotAllowed, MalformedTraffic, NameUnresolved
from palyra.egress.resolver import SystemResolver
from palyra.egress.response_scan import ResponseScan, spellings
from palyra.egress.rules import parse_rules
from palyra.egress.target import Target
from palyra.identity.principal import Principal
from palyra.policy.entities import Entity, EntityRef
from palyra.policy.request import APPROVED
from palyra.sandbox.profile import SandboxProfile, SandboxTier
from palyra.secret import Secret
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan
from palyra.tools.spec import ToolTier
from palyra.vault.ref import SecretRef
from palyra.vault.use import SecretUse

TOKEN = "tok-0123456789abcdef"
OWN = "principal:agent:bot/t"
PLACEHOLDER = "{{vault:principal:agent:bot/t}}"
Reply = Callable[[bytes], bytes]


def settings(port: int, **egress: Any) -> dict[str, Any]:
    hosts = [f"api.test:{port}", f"other.test:{port}"]
    return {
        "egress": {
            "allowed_hosts": hosts,
            "private_targets": hosts,
            "static_hosts": {"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]},
            "bindings": [binding(port)],
            **egress,
        },
        "sandbox": {"allowed_hosts": hosts},
        "tools": {"preapproved": ["http.fetch"]},
    }


def binding(port: int, **more: Any) -> dict[str, Any]:
    bound = {"header_name": "Authorization", "secret_ref": OWN, "prefix": "Bearer ", "hosts": [f"api.test:{port}"]}
    return bound | more


async def put(house: House, ref: str = OWN, value: str = TOKEN) -> None:
    await house.gateway.vault.put(SecretRef.parse(ref), Secret(value), actor="user:operator")


class Sandboxed:
    """A call's door with its proxy port where a test can reach it, and a server that says what it is told to."""

    def __init__(self, house: House, door: SandboxDoor, plan: ExecutionPlan, proxy: Any, port: int) -> None:
        self.house, self.door, self.plan, self.proxy, self.port = house, door, plan, proxy, port
        self.heard: list[bytes] = []
        self.replies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heard.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.replies.pop(0) if self.replies else b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
                if b"until-close" in self.heard[-1]:
                    break
        writer.close()

    async def say(self, *pieces: bytes) -> bytes:
        """Everything that comes back through the proxy port for these bytes."""
        reader, writer = await asyncio.open_connection(*self.proxy)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof()
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while data := await asyncio.wait_for(reader.read(65536), 20):
                heard += data
        writer.close()
        return heard

    async def get(self, path: str = "/", headers: str = "", method: str = "GET") -> bytes:
        host = f"api.test:{self.port}"
        return await self.say(f"{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return self.house.events(call=self.plan.call_id)


@asynccontextmanager
async def sandboxed(tmp_path: Path, **egress: Any) -> AsyncIterator[Sandboxed]:
    it: Sandboxed
    server = await asyncio.start_server(lambda reader, writer: it.serve(reader, writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_house(tmp_path, settings(port, **egress)) as house:
        await put(house)
        plan = plan_of(house)
        profile, door = house.gateway.egress.sandbox_door(plan, profile_of(house, f"api.test:{port}"))
        assert door is not None
        listening = socket.create_server(("127.0.0.1", 0))
        it = Sandboxed(house, door, plan, listening.getsockname(), port)
        sockets: Any = [SimpleNamespace(plan=SimpleNamespace(kind=SimpleNamespace(value="proxy")), socket=listening)]
        await door.opened(profile, sockets)
        try:
            yield it
        finally:
            await door.close()


def plan_of(house: House, **more: Any) -> ExecutionPlan:
    given: dict[str, Any] = {"call_id": "c1", "run_id": "r1", "tool": "process.run", "arguments": {}} | more
    return ExecutionPlan(
        workspace=str(house.workspace),
        timeout_ms=1000,
        max_output_bytes=1000,
        tier=ToolTier.C,
        principal="agent:bot",
        channel="cli",
        **given,
    )


def profile_of(house: House, *hosts: str) -> SandboxProfile:
    return SandboxProfile(workspace_root=str(house.workspace), tier=SandboxTier.C, allowed_egress_hosts=hosts)


# Approvals: what a person was shown, and nothing else.


async def test_an_approval_does_not_bring_in_a_secret_through_a_redirect_on_the_same_host(tmp_path: Path) -> None:
    heard: list[bytes] = []

    def says(said: bytes) -> Script:
        def script(connection: socket.socket) -> None:
            heard.append(read_request(connection))
            connection.sendall(said)

        return script

    with ScriptedServer([says(*redirect("/private/x")), says(answer(b"done"))]) as server:
        bound = binding(server.port, secret_ref="global/t", path_prefix="/private")
        tree = settings(server.port, bindings=[bound]) | {"tools": {}}
        async with open_house(tmp_path, tree) as house:
            await put(house, "global/t")
            arguments = {"url": f"http://api.test:{server.port}/public"}
            asked = await house.call("http.fetch", arguments)
            approval = await house.approve(asked.approval_id)
            assert approval.touches["secrets"] == []
            record = await house.call("http.fetch", arguments)
            assert record.error is not None and record.error["code"] == "egress.credential_not_allowed"
            assert TOKEN.encode() not in b"".join(heard) and "vault.use_denied" in house.kinds(call=record.call_id)


class Vault:
    def __init__(self) -> None:
        self.uses: list[SecretUse] = []

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret:
        self.uses.append(use)
        return Secret(TOKEN)


async def test_to_policy_an_approval_reaches_only_what_the_approver_was_shown(tmp_path: Path) -> None:
    tool = Entity(uid=EntityRef("Tool", "process.run"), attrs={"capabilities": [], "sensitive": True, "tier": "c"})
    call = CallOfGrant(
        principal=Principal.parse("agent:bot"),
        channel="cli",
        tool=tool,
        approved=True,
        hosts=("a.example", "*.c.example:8443"),
        secrets=("global/shown",),
    )
    rules = parse_rules(("a.example", "b.example", "*.c.example:8443"))
    grant = EgressGrant(grant_id="g", principal="agent:bot", run="r", call="c", tool="process.run", rules=rules)
    grants, vault = GrantsInUse(), Vault()
    grants.enter("g", call)
    there = Target.from_url("https://a.example/")
    for ref in ("global/shown", "global/unseen"):
        await GrantedSecrets(vault, grants).reveal(grant, ref, there)
    assert [use.approved for use in vault.uses] == [True, False]
    async with open_house(tmp_path) as house:
        directory = house.gateway.directory
        found = {
            url: connect_request(directory, call, grant, Target.from_url(url)).context[APPROVED]
            for url in ("https://a.example/", "https://b.example/", "https://x.c.example:8443/", "https://c.example/")
        }
    assert list(found.values()) == [True, False, True, False]


async def test_an_approved_program_does_not_get_a_shared_secret_nobody_was_asked_about(tmp_path: Path) -> None:
    async with open_house(tmp_path, settings(8080, bindings=[binding(8080, secret_ref="global/t")])) as house:
        parts = house.gateway.egress
        await put(house, "global/t")
        plan = plan_of(house, approved=True)
        grant = parts.grant_for(plan, ("api.test:8080",))
        parts.enter(plan, grant)
        shown = house.gateway.catalog.entry(plan.tool).spec.touches(plan.arguments).secrets
        target = Target.from_url("http://api.test:8080/")
        revealed = ""
        with contextlib.suppress(CredentialNotAllowed):
            revealed = (await parts.secrets.reveal(grant, "global/t", target)).reveal()
        assert (revealed == TOKEN) == ("global/t" in shown)
        parts.leave(grant)


# The grant's life: nothing outlives the call, and everything is charged and recorded.


async def test_a_program_in_the_background_is_charged_the_most_it_may_use(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        assert it.plan.usage.noted == {BudgetKind.EGRESS_BYTES: it.door.most_bytes}
        await it.get()
        await it.door.close()
        assert 0 < it.plan.usage.noted[BudgetKind.EGRESS_BYTES] < 1000


async def test_calls_that_never_open_their_door_leave_no_authority_behind(tmp_path: Path) -> None:
    async with open_house(tmp_path, settings(8080)) as house:
        parts = house.gateway.egress
        for number in range(3):
            plan = plan_of(house, call_id=f"c{number}", tool="process.logs")
            profile, door = parts.sandbox_door(plan, profile_of(house, "api.test:8080"))
            assert profile.extra_files and door is not None
        assert vars(parts.termination)["_authorities"] == {}


async def test_a_door_whose_closing_is_broken_off_still_ends_its_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sandboxed(tmp_path) as it:
        parts = it.house.gateway.egress
        flush = parts.observer.flush

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(parts.observer, "flush", never)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await it.door.close()
        monkeypatch.setattr(parts.observer, "flush", flush)
        assert vars(parts.grants)["_calls"] == {} and vars(parts.termination)["_authorities"] == {}


async def test_what_is_cut_with_the_door_is_on_record_before_the_call_ends_and_nothing_is_kept(tmp_path: Path) -> None:
    async with sandboxed(tmp_path, bindings=[]) as it:
        host = f"api.test:{it.port}"
        reader, writer = await asyncio.open_connection(*it.proxy)
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b"200" in await reader.readline()
        observer = it.house.gateway.egress.observer
        await observer.flush()
        await it.door.close()
        assert [kind for kind, _ in it.events()] == ["egress.connected", "egress.closed"]
        assert not vars(observer)["_counts"] and not vars(observer)["_kinds"]
        writer.close()


async def test_the_receipt_counts_all_refusals_and_the_grave_ones(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        for _ in range(70):
            await it.say(b"GET http://elsewhere.test/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n")
        usage = await it.door.close()
        assert usage.refused == 70 and usage.violations == 70 and len(usage.refusals) == 64


async def test_a_fault_on_the_way_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More bound hosts than one run may have: what ends the connection is no refusal of the judge's."""
    monkeypatch.setattr(run_ca, "MAX_BOUND_HOSTS", 0)
    async with sandboxed(tmp_path) as it:
        host = f"api.test:{it.port}"
        hello = await asyncio.to_thread(_client_hello)
        await it.say(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), hello)
        await it.door.close()
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
        async with open_house(tmp_path, settings(server.port, bindings=[])) as house:
            url = f"http://api.test:{server.port}/"
            call = asyncio.create_task(house.call("http.fetch", {"url": url, "max_bytes": 1_000_000}))
            assert await asyncio.to_thread(begun.wait, 30)
            (tmp_path / "policies" / "own.cedar").write_text(
                '@id("no-network") forbid (principal, action == Action::"egress.connect", resource);'
            )
            await house.gateway.policy.reload()
            released.set()
            record = await call
            assert record.error is not None and record.error["code"] == "egress.policy_changed"
            assert {"egress.refused", "egress.closed"} <= set(house.kinds(call=record.call_id))
            assert house.run(record.run_id).budget[BudgetKind.EGRESS_BYTES].used > 0


async def test_a_flood_hides_no_other_host_and_no_other_kind_of_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_journal, "MAX_ENTRIES_PER_GRANT", 10)
    async with open_house(tmp_path) as house:
        observer = house.gateway.egress.observer
        grant = EgressGrant(grant_id="g", principal="agent:bot", run="r", call="c", tool="t", rules=())
        harmless, other = (Target.from_url(f"https://{name}.example/") for name in ("a", "b"))
        refusals = [HostNotAllowed("no", host="x")] * 100 + [MalformedTraffic("smuggled", host="a.example")]
        for target in [harmless] * 100 + [other]:
            observer.happened(grant, Connected(target=target, address="192.0.2.1", face="connect"))
        for refused in refusals:
            observer.happened(grant, Refused.of(refused, "http"))
        await observer.flush()
        told = house.events(call="c")
        assert "b.example" in [payload["target"]["host"] for kind, payload in told if kind == "egress.connected"]
        codes = [payload["refusal"]["code"] for kind, payload in told if kind == "egress.refused"]
        assert codes[-1] == "egress.malformed_traffic" and len(told) < 30
        observer.forget("g")


async def test_a_door_tells_the_first_refusal_of_each_kind_however_many_came_before(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        door = vars(it.door)["_door"]
        for number in range(1_100):
            door.refused(HostNotAllowed("no", host=f"n{number}.test"), "dns")
        await it.say(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        await it.door.close()
        codes = [payload["refusal"]["code"] for kind, payload in it.events() if kind == "egress.refused"]
        assert codes[-1] == "egress.malformed_traffic" and len(codes) == 1_001


# What comes back.


@pytest.mark.parametrize("wanted", ["auto", "raw_base64"])
async def test_a_fetch_brings_nothing_back_that_could_not_be_searched(tmp_path: Path, wanted: str) -> None:
    packed = b"\x0b\x02\x80" + TOKEN[::-1].encode()

    def script(connection: socket.socket) -> None:
        read_request(connection)
        length = str(len(packed)).encode()
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: " + length + b"\r\n\r\n" + packed
        )

    with ScriptedServer([script]) as server:
        async with open_house(tmp_path, settings(server.port)) as house:
            await put(house)
            record = await house.call("http.fetch", {"url": f"http://api.test:{server.port}/", "format": wanted})
            assert record.error is not None and record.error["code"] == "fetch.unknown_encoding"
            assert base64.b64encode(packed).decode() not in str(record)


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_secret_that_begins_with_another_is_overwritten_whole_wherever_it_is_cut(cut: int) -> None:
    short, long = b"token-1", b"token-1-and-its-secret-rest"
    reader = ResponseScan((long, short))
    text = b"<" + long + b">"
    got = reader.receive(text[:cut]) + reader.receive(text[cut:]) + reader.finish()
    assert got == b"<" + b"*" * len(long) + b">" and reader.times == 1


def test_secrets_that_overlap_are_both_overwritten() -> None:
    reader = ResponseScan((b"secret-abc-123", b"123-xyz-secret"))
    text = b"secret-abc-123-xyz-secret"
    assert b"".join([*(reader.receive(bytes([byte])) for byte in text), reader.finish()]) == b"*" * len(text)


@pytest.mark.parametrize(
    "written", ["Basic  {{vault:%s}}", "bAsIc\t{{vault:%s}}", "Basic {{vault:%s}} ", "{{vault:%s}}"]
)
def test_the_tools_spelling_of_basic_does_not_hide_the_password(written: str) -> None:
    value = base64.b64encode(b"admin:correct-horse").decode()
    grant = EgressGrant(
        grant_id="g", principal="agent:bot", run="r", call="c", tool="t", rules=(),
        bindings=(msgspec.convert(binding(443, hosts=["api.test"], prefix=""), _binding_type()),),
    )  # fmt: skip
    headers = (("Authorization", written % OWN),)
    plan = plan_injection(grant, Target.from_url("https://api.test/"), "GET", "/", headers)
    values = {OWN: Secret(value)}
    assert value in dict(inject(plan, values))["Authorization"]
    assert b"correct-horse" not in ResponseScan(needles_of(plan, values)).whole(b"you are admin:correct-horse")


def _binding_type() -> Any:
    from palyra.egress.credential import CredentialBindingPlan

    return CredentialBindingPlan


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_reply_in_another_charset_does_not_hide_the_secret(codec: str) -> None:
    said = f"you sent {TOKEN}".encode(codec)
    assert TOKEN not in ResponseScan(spellings(TOKEN)).whole(said).decode(codec)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("reply", "method"),
    [
        (OK + b"X-%b: 1\r\nContent-Length: 0\r\n\r\n", "GET"),
        (OK + b"X-Seen: %b\r\nContent-Length: 5\r\n\r\n", "HEAD"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "GET"),
        (b"HTTP/1.1 304 %b\r\nETag: \"%b\"\r\n\r\n", "GET"),
        (b"HTTP/1.1 204 No\r\nX-Seen: %b\r\n\r\n", "GET"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Trailer: %b\r\n\r\n", "GET"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3;a=%b\r\nabc\r\n0\r\n\r\n", "GET"),
        (b"HTTP/1.0 200 OK\r\n\r\n%b", "GET"),
        (OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Seen: %b\r\nContent-Length: 0\r\n\r\n", "GET"),
        (OK + b"Content-Length: 5\r\n\r\nhello%b", "GET"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\nX-Seen: %b\r\n\r\nhello", "GET"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n%b", "GET"),
        (b"%b\r\n\r\n", "GET"),
    ],
)  # fmt: skip
async def test_no_part_of_a_reply_gives_the_secret_back(tmp_path: Path, reply: bytes, method: str) -> None:
    async with sandboxed(tmp_path) as it:
        it.replies = [reply.replace(b"%b", TOKEN.encode())]
        asks = "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n" if method == "GET" else ""
        got = await it.get("/until-close", asks, method)
        assert f"Authorization: Bearer {TOKEN}".encode() in it.heard[0]
        assert got.startswith(b"HTTP/1.1 ") and TOKEN.encode() not in got


# What goes out.


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Bearer mine\r\n",
        "AUTHORIZATION: Bearer mine\r\nauthorization: Bearer mine\r\n",
        "Authorization:Bearer mine\r\n",
        "Connection: X-Other\r\nauthorization:\tBearer mine\r\n",
    ],
)
async def test_the_tools_own_credential_never_goes_along(tmp_path: Path, headers: str) -> None:
    async with sandboxed(tmp_path) as it:
        await it.get("/", headers)
        assert b"mine" not in it.heard[0] and it.heard[0].lower().count(b"authorization:") == 1


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization : Bearer mine\r\n",
        "X: y\r\n Authorization: Bearer mine\r\n",
        "Connection: authorization\r\n",
        f"X-Other: {PLACEHOLDER}\r\n",
        "Authorization: {{vault:global/other}}\r\n",
        f"Authorization: {PLACEHOLDER} {{{{vault:global/other}}}}\r\n",
    ],
)
async def test_heads_that_two_servers_read_differently_and_foreign_placeholders_go_nowhere(
    tmp_path: Path, headers: str
) -> None:
    async with sandboxed(tmp_path) as it:
        got = await it.get("/", headers)
        assert got.split(b" ", 2)[1] in (b"400", b"403") and it.heard == []


async def test_a_request_behind_another_goes_nowhere_through_a_bound_host(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        host = f"api.test:{it.port}"
        first = f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        await it.say(f"{first}GET http://other.test:{it.port}/ HTTP/1.1\r\nHost: other.test:{it.port}\r\n\r\n".encode())
        assert len(it.heard) == 1
        await it.say(
            f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
            f"GET /a HTTP/1.1\r\nHost: {host}\r\n\r\nGET /b HTTP/1.1\r\nHost: other.test:{it.port}\r\n\r\n".encode(),
        )
        assert [head.split(b" ")[1] for head in it.heard] == [b"/", b"/a"]


@pytest.mark.parametrize(
    "path",
    [f"/repos/acme{rest}" for rest in ("/../x", "/%2e%2e/x", "/..;/x", "//x", "/%2Fx", "\\x")],
)
async def test_paths_that_can_be_read_as_others_get_no_secret(tmp_path: Path, path: str) -> None:
    async with sandboxed(tmp_path) as it:
        bound = msgspec.structs.replace(vars(it.door)["_grant"].bindings[0], path_prefix="/repos/acme")
        it.house.gateway.egress.proxy.reconsider(lambda grant: msgspec.structs.replace(grant, bindings=(bound,)))
        got = await it.get(path)
        assert got.split(b" ", 2)[1] in (b"400", b"403") and it.heard == []
        for outside in ("/repos", "/repos/acmex", "/REPOS/acme", "/?/repos/acme"):
            await it.get(outside)
        assert len(it.heard) == 4 and TOKEN.encode() not in b"".join(it.heard)


def test_an_authority_for_names_vouches_for_no_address() -> None:
    import datetime

    authority = run_ca.RunAuthority("r", ("api.test", ".below.test"), now=datetime.datetime.now(datetime.UTC))
    certificate = x509.load_pem_x509_certificate(authority.pem())
    constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    excluded = [str(each.value) for each in constraints.excluded_subtrees or ()]
    assert excluded == ["0.0.0.0/0", "::/0"]


@pytest.mark.parametrize("character", ['"', "\\", "a", "\x7e"])
async def test_no_request_can_make_an_entry_that_takes_others_with_it(tmp_path: Path, character: str) -> None:
    """Entries are written many at once: one that the journal refuses must not cost those of other calls."""
    async with sandboxed(tmp_path) as it:
        observer = it.house.gateway.egress.observer
        innocent = EgressGrant(grant_id="g2", principal="agent:other", run="r2", call="c2", tool="t", rules=())
        there = Target.from_url("https://a.example/")
        got = await it.get("/" + character * 31_000)
        observer.happened(innocent, Connected(target=there, address="192.0.2.1", face="connect"))
        await it.door.close()
        assert it.house.kinds(call="c2") == ["egress.connected"]
        assert ("egress.credential_used" in it.house.kinds(call="c1")) == got.startswith(b"HTTP/1.1 200")


async def test_a_call_fills_the_journal_with_uses_of_its_secret_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policed_egress, "MAX_CREDENTIAL_USES_PER_CALL", 3)
    async with sandboxed(tmp_path) as it:
        answers = [(await it.get()).split(b" ", 2)[1] for _ in range(5)]
        assert answers == [b"200"] * 3 + [b"403"] * 2
        assert it.house.kinds(call="c1").count("vault.secret_used") == 3
        await it.door.close()
        assert not vars(it.house.gateway.egress.grants)["_uses"]


async def test_an_answer_that_somebody_on_the_way_cut_off_does_not_look_whole(tmp_path: Path) -> None:
    """TLS tells a client so; a proxy that ends TLS in between must not lose it."""
    authority = Authority(tmp_path)

    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(OK + b"Connection: close\r\n\r\nthe order is cancelled")
        socket.socket(fileno=connection.detach()).close()

    with ScriptedServer([cut], authority.server_context("api.test")) as server:
        tree = settings(server.port, ca_file=str(authority.ca_file))
        async with open_house(tmp_path, tree) as house:
            await put(house)
            plan = plan_of(house)
            profile, door = house.gateway.egress.sandbox_door(plan, profile_of(house, f"api.test:{server.port}"))
            assert door is not None
            listening = socket.create_server(("127.0.0.1", 0))
            kind = SimpleNamespace(kind=SimpleNamespace(value="proxy"))
            sockets: Any = [SimpleNamespace(plan=kind, socket=listening)]
            await door.opened(profile, sockets)
            bundle = dict(profile.extra_files)[BUNDLE_PATH].decode()
            with pytest.raises((OSError, ssl.SSLError)):
                await asyncio.to_thread(_read_all, listening.getsockname(), server.port, bundle)
            await door.close()
            assert "egress.refused" in house.kinds(call="c1")


def _read_all(proxy: Any, port: int, bundle: str) -> bytes:
    """Raises where TLS does not say that the answer is at its end."""
    host = f"api.test:{port}"
    with socket.create_connection(proxy, timeout=20) as plain:
        plain.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert plain.recv(1000).startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cadata=bundle)
        with context.wrap_socket(plain, server_hostname="api.test", suppress_ragged_eofs=False) as secured:
            secured.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            heard = b""
            while data := secured.recv(65536):
                heard += data
            return heard


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


@pytest.mark.parametrize("wanted", ["auto", "raw_base64", "text"])
async def test_a_budget_that_ends_in_the_middle_of_a_secret_gives_no_half_of_it(tmp_path: Path, wanted: str) -> None:
    """Whoever opens a run chooses its budget, and with it the byte at which a reply that repeats the key breaks off."""
    said = answer(b"you sent " + TOKEN.encode(), length=1000)
    sent: list[bytes] = []

    def script(connection: socket.socket) -> None:
        sent.append(read_request(connection))
        connection.sendall(said)
        connection.recv(1)

    with ScriptedServer([script, script]) as server:
        async with open_house(tmp_path, settings(server.port)) as house:
            await put(house)
            arguments = {"url": f"http://api.test:{server.port}/", "format": wanted, "timeout_ms": 1500}
            run = await house.open_run(egress_bytes=100_000)
            await house.call("http.fetch", arguments, run_id=run)
            run = await house.open_run(egress_bytes=len(sent[0]) + len(said) - 1)
            record = await house.call("http.fetch", arguments, run_id=run)
            assert record.result is not None and record.result["truncated"]
            got = record.result.get("text") or base64.b64decode(record.result["base64"]).decode()
            assert got.startswith("you sent") and TOKEN[:4] not in got
