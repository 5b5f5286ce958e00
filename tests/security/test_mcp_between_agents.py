"""One agent and another at the same upstream MCP server: folders, memory, secrets and hosts of its processes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.mcp_clients import curious_server, over_http, words
from fakes.web_server import web_page
from palyra.executors.mcp_upstream import executor
from palyra.executors.mcp_upstream.limits import MAX_SERVER_TOOLS
from palyra.ids import Principal
from palyra.secret import Secret
from palyra.vault.reference import SecretRef

pytestmark = pytest.mark.promise("P-mcp-servers")

SECRET = "s3cr3t-value-0123456789"
PAGE = b"<html><body>Nothing happened.</body></html>"
NOT_FOR_THE_CLI = '@id("not-for-the-cli") forbid (principal, action == Action::"{}", resource) when {{ {} }};'
FROM_THE_CLI = 'context.channel == Channel::"cli"'


def toml(name: str, described: dict[str, Any]) -> str:
    lines = "\n".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in described.items())
    return f"[mcp.servers.{name}]\n{lines}\n"


@contextmanager
def running(place: Place) -> Iterator[tuple[Daemon, dict[str, str]]]:
    with place.daemon() as daemon:
        with daemon.client() as owner:
            tokens = {name: owner.create_token(f"agent:{name}").token.reveal() for name in ("a", "b")}
        for command in ("look", "approve"):
            answer = place.palyra("mcp", command, "curious", "--json")
            assert answer.status == 0, answer.stdout
        yield daemon, tokens


async def test_an_agent_reads_no_note_and_no_memory_of_another_agents_server(tmp_path: Path) -> None:
    tools = '[tools]\nallowed = ["curious.*"]\npreapproved = ["curious.*"]\n'
    place = Place(tmp_path / "place", tools + toml("curious", curious_server(tmp_path / "home")))
    # Made before principals had folders of their own: nobody can tell whose notes these are.
    old = place.state / "mcp" / "curious"
    old.mkdir(parents=True, mode=0o700)
    (old / "old.txt").write_text("a note of somebody")
    place.state.chmod(0o700)
    with running(place) as (daemon, tokens):

        async def attempt(who: str, what: str, where: str = "") -> str:
            async with over_http(daemon, tokens[who], mode="legacy") as client:
                return words(await client.call_tool("curious_tryout", {"what": what, "where": where}))

        assert await attempt("a", "write", "note.txt") == "written"
        assert await attempt("a", "write", "/tmp/note.txt") == "written"
        assert await attempt("a", "read", "note.txt") == "here I am"
        folder = place.state / "mcp-principals" / "curious" / "agent=a"
        for path in ("note.txt", "/tmp/note.txt", str(folder / "note.txt"), "../agent=a/note.txt", "old.txt"):
            assert "FileNotFoundError" in await attempt("b", "read", path), path
            assert "here I am" in await attempt("a", "read", "note.txt")
        assert [await attempt(who, "count") for who in ("a", "a", "b")] == ["1", "2", "1"]
        # Another session of the same agent is the same principal.
        assert "FileNotFoundError" in await attempt("a", "read", "old.txt")
        shown = place.palyra("mcp", "show", "curious", "--json").data
        assert shown["isolation"] == "principal" and shown["kept_folder"] == str(old)
        assert (old / "old.txt").read_text() == "a note of somebody"


async def test_agents_share_a_folder_only_where_the_operator_says_so(tmp_path: Path) -> None:
    tools = '[tools]\nallowed = ["curious.*"]\npreapproved = ["curious.*"]\n'
    place = Place(tmp_path / "place", tools + toml("curious", curious_server(tmp_path / "home", isolation="shared")))
    with running(place) as (daemon, tokens):
        async with over_http(daemon, tokens["a"], mode="legacy") as a, over_http(daemon, tokens["b"]) as b:
            await a.call_tool("curious_tryout", {"what": "write", "where": "note.txt"})
            assert words(await b.call_tool("curious_tryout", {"what": "read", "where": "note.txt"})) == "here I am"
        assert (place.state / "mcp" / "curious" / "note.txt").exists()
    refused = tmp_path / "refused"
    place = Place(refused, toml("curious", curious_server(tmp_path / "home", workspace=str(tmp_path))))
    answer = place.palyra("call", "echo", "--json")
    assert answer.error["code"] == "config.invalid_value"
    assert 'isolation = "shared"' in answer.error["hint"]


@asynccontextmanager
async def gateway(tmp_path: Path, *policies: str, port: int = 0, **more: Any) -> AsyncIterator[GatewayHarness]:
    """Run a gateway with the server reviewed, and a secret that agents may use."""
    (tmp_path / "policies").mkdir()
    write_policies(tmp_path, *policies)
    described = curious_server(tmp_path / "home", **more)
    settings: dict[str, Any] = {
        "mcp": {"servers": {"curious": described}},
        "tools": {"allowed": ["*"], "preapproved": ["*"]},
        "egress": {
            "allowed_hosts": [f"news.test:{port or 1}"],
            "private_targets": [f"news.test:{port or 1}"],
            "static_hosts": {"news.test": ["127.0.0.1"]},
        },
    }
    async with open_harness(tmp_path, settings) as harness:
        servers = harness.gateway.mcp.servers
        listing = await servers.look("curious", actor="x")
        await servers.approve("curious", {"tryout": listing.definitions[0].digest}, by="user:me", actor="x")
        for ref in ("global/key", "principal:agent:a/key"):
            await harness.gateway.vault.put(SecretRef.parse(ref), Secret(SECRET), actor="user:me")
        yield harness


def write_policies(tmp_path: Path, *policies: str) -> None:
    (tmp_path / "policies" / "own.cedar").write_text("\n".join(policies))


async def attempt(harness: GatewayHarness, what: str, where: str = "", **more: Any) -> Any:
    fields: dict[str, Any] = {"principal": "agent:a", "channel": "mcp", **more}
    return await harness.call("curious.tryout", {"what": what, "where": where}, **fields)


def text(call: Any) -> str:
    return str(call.result["content"][0]["text"]) if call.result else str(call.error)


async def test_a_secret_is_decided_for_every_call_and_not_for_the_first_alone(tmp_path: Path) -> None:
    forbid = NOT_FOR_THE_CLI.format("vault.use", FROM_THE_CLI)
    async with gateway(tmp_path, forbid, secrets={"KEY": "principal:agent:a/key"}) as harness:
        run = await harness.open_run("agent:a")
        allowed = await attempt(harness, "variable", "KEY", run_id=run)
        assert hashlib.sha256(SECRET.encode()).hexdigest() in text(allowed)
        refused = await attempt(harness, "variable", "KEY", run_id=run, channel="cli")
        assert refused.error is not None and refused.error["code"] == "vault.use_denied", text(refused)
        again = await attempt(harness, "variable", "KEY", run_id=run)
        kinds = [harness.kinds(call=call.call_id) for call in (allowed, refused, again)]
        assert ["vault.secret_used" in each for each in kinds] == [True, False, True], kinds
        assert "vault.use_denied" in kinds[1]


async def test_an_approval_of_one_call_gives_its_secret_to_no_other_call(tmp_path: Path) -> None:
    """A person approved that this call uses the secret. The process that holds it does not answer the next one."""
    ask = NOT_FOR_THE_CLI.format("tool.execute", 'context.channel == Channel::"mcp" && !context.approved')
    async with gateway(tmp_path, ask, secrets={"KEY": "global/key"}) as harness:
        run = await harness.open_run("agent:a")
        waiting = await attempt(harness, "variable", "KEY", run_id=run)
        await harness.approve(waiting.approval_id)
        approved = await attempt(harness, "variable", "KEY", run_id=run)
        assert hashlib.sha256(SECRET.encode()).hexdigest() in text(approved)
        unapproved = await attempt(harness, "variable", "KEY", run_id=run, channel="cli")
        assert unapproved.error is not None and unapproved.error["code"] == "vault.use_needs_approval", text(unapproved)


async def test_a_new_policy_ends_the_process_that_holds_a_secret(tmp_path: Path) -> None:
    async with gateway(tmp_path, secrets={"KEY": "principal:agent:a/key"}) as harness:
        assert text(await attempt(harness, "count")) == "1"
        assert text(await attempt(harness, "count")) == "2"
        pid = server_processes(tmp_path)
        assert pid
        write_policies(tmp_path, NOT_FOR_THE_CLI.format("vault.use", "true"))
        await eventually(lambda: not server_processes(tmp_path))
        refused = await attempt(harness, "count")
        assert refused.error is not None and refused.error["code"] == "vault.use_denied"


def server_processes(tmp_path: Path) -> list[int]:
    program = str(tmp_path / "home" / "server.py").encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().endswith(b"\0" + program + b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def test_a_changed_secret_is_given_to_a_new_process(tmp_path: Path) -> None:
    async with gateway(tmp_path, secrets={"KEY": "principal:agent:a/key"}) as harness:
        assert text(await attempt(harness, "count")) == "1"
        ref = SecretRef.parse("principal:agent:a/key")
        await harness.gateway.vault.put(ref, Secret("another-value-42"), actor="user:me")
        assert hashlib.sha256(b"another-value-42").hexdigest() in text(await attempt(harness, "variable", "KEY"))
        assert text(await attempt(harness, "count")) == "1"


async def test_hosts_are_decided_for_every_call(tmp_path: Path) -> None:
    forbid = NOT_FOR_THE_CLI.format("egress.connect", FROM_THE_CLI)
    with web_page(PAGE) as port:
        where = f"news.test:{port}"
        async with gateway(tmp_path, forbid, port=port, hosts=[where]) as harness:
            run = await harness.open_run("agent:a")
            allowed = await attempt(harness, "connect", where, run_id=run)
            assert "200 OK" in text(allowed)
            refused = await attempt(harness, "connect", where, run_id=run, channel="cli")
            assert refused.error is not None and refused.error["code"] == "mcp.host_denied", text(refused)
            later_run = await attempt(harness, "connect", where)
            for call in (allowed, later_run):
                events = dict(harness.events(call=call.call_id))
                assert events["mcp.hosts_decided"]["hosts"] == {where: "allow"}
                assert {"egress.connected", "egress.closed"} <= events.keys(), events.keys()
            decided = dict(harness.events(call=refused.call_id))["mcp.hosts_decided"]
            assert decided["hosts"] == {where: "deny"} and decided["policies"] == ["not-for-the-cli"]
            assert "egress.connected" not in harness.kinds(call=refused.call_id)


async def test_no_connection_outlives_the_call_that_opened_it(tmp_path: Path) -> None:
    with web_page(PAGE) as port:
        where = f"news.test:{port}"
        async with gateway(tmp_path, port=port, hosts=[where]) as harness:
            run = await harness.open_run("agent:a", egress_bytes=100_000)
            first = await attempt(harness, "keep", where, run_id=run)
            assert text(first) == "kept"
            reused = await attempt(harness, "reuse", where, run_id=run)
            assert "200 OK" not in text(reused), text(reused)
            # What is left behind after the answer reaches nothing, and the record names the call that left it.
            left = await attempt(harness, "later", where, run_id=run)
            assert text(left) == "later"
            folder = tmp_path / "state" / "mcp-principals" / "curious" / Principal.parse("agent:a").folder
            (folder / "go").write_bytes(b"now")
            outcome = await eventually(lambda: (folder / "outcome").exists() and (folder / "outcome").read_text())
            assert outcome.startswith("refused"), outcome
            await eventually(lambda: "egress.refused" in harness.kinds(call=left.call_id))


async def test_a_folder_of_a_run_is_removed_whatever_its_server_left_in_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, isolation="run") as harness:
        run = await harness.open_run("agent:a")
        assert text(await attempt(harness, "nest", "3000", run_id=run)) == "nested"
        await end_instances(harness)
        runs = tmp_path / "state" / "scratch" / "mcp-runs"
        await eventually(lambda: not list(runs.iterdir()))


async def test_the_next_instance_of_a_run_keeps_its_folder_while_the_last_one_is_removed(tmp_path: Path) -> None:
    async with gateway(tmp_path, isolation="run") as harness:
        run = await harness.open_run("agent:a")
        assert text(await attempt(harness, "fill", "5000", run_id=run)) == "filled"
        await end_instances(harness)
        assert text(await attempt(harness, "write", "note.txt", run_id=run)) == "written"
        runs = tmp_path / "state" / "scratch" / "mcp-runs"
        await eventually(lambda: len(list(runs.iterdir())) == 1)
        assert text(await attempt(harness, "read", "note.txt", run_id=run)) == "here I am"
        assert "FileNotFoundError" in text(await attempt(harness, "read", "0", run_id=run))


@pytest.mark.promise("P-floods")
async def test_a_server_with_other_tools_at_each_call_fills_neither_memory_nor_journal(tmp_path: Path) -> None:
    async with gateway(tmp_path) as harness:
        (tmp_path / "home" / "more.txt").write_text("100")
        for _ in range(5):
            assert (await attempt(harness, "count")).error is None
        _, pins = harness.gateway.mcp.servers.server("curious")
        assert len(pins) == MAX_SERVER_TOOLS
        assert harness.kinds().count("mcp.tool_found") == MAX_SERVER_TOOLS
        # The operator still gets to see what it lists now.
        listing = await harness.gateway.mcp.servers.look("curious", actor="user:me")
        assert {each.tool for each in listing.definitions} <= pins_of(harness)


def pins_of(harness: GatewayHarness) -> set[str]:
    return set(harness.gateway.mcp.servers.server("curious")[1])


async def end_instances(harness: GatewayHarness) -> None:
    for instance in tuple(harness.gateway.mcp.servers._instances.values()):
        await instance.close()


async def test_a_policy_that_changes_nothing_for_a_call_does_not_cut_its_connections(tmp_path: Path) -> None:
    with web_page(PAGE) as port:
        where = f"news.test:{port}"
        async with gateway(tmp_path, port=port, hosts=[where]) as harness:
            call, go = await begin_and_wait(harness, tmp_path, where)
            before = harness.gateway.policy.bundle_digest
            write_policies(tmp_path, '@id("else") forbid (principal == User::"nobody", action, resource);')
            await eventually(lambda: harness.gateway.policy.bundle_digest != before)
            await asyncio.to_thread(go.write_bytes, b"now")
            assert "200 OK" in text(await call)


@pytest.mark.parametrize("revoked", ["policy", "secret"])
async def test_what_is_revoked_while_a_call_waits_is_not_given_to_it(tmp_path: Path, revoked: str) -> None:
    """It was decided before, and waits for the turn of another call."""
    key = "principal:agent:a/key"
    async with gateway(tmp_path, hosts=["news.test:1"], secrets={"KEY": key}) as harness:
        first, go = await begin_and_wait(harness, tmp_path)
        second = asyncio.create_task(attempt(harness, "variable", "KEY"))
        await eventually(lambda: harness.kinds().count("vault.secret_used") >= 2)
        if revoked == "policy":
            write_policies(tmp_path, NOT_FOR_THE_CLI.format("vault.use", "true"))
            await eventually(lambda: not server_processes(tmp_path))
        else:
            await harness.gateway.vault.delete(SecretRef.parse(key), actor="user:me")
            await asyncio.to_thread(go.write_bytes, b"now")
        await first
        refused = await second
        assert refused.error is not None and refused.error["code"].startswith("vault."), text(refused)


async def begin_and_wait(harness: GatewayHarness, tmp_path: Path, where: str = "") -> tuple["asyncio.Task[Any]", Path]:
    """Begin a call that waits until somebody writes to the pipe that is returned; it then connects."""
    call = asyncio.create_task(attempt(harness, "wait", where))
    go = tmp_path / "state" / "mcp-principals" / "curious" / Principal.parse("agent:a").folder / "go"
    await eventually(go.exists)
    return call, go


async def test_two_calls_at_once_use_the_hosts_one_after_the_other(tmp_path: Path) -> None:
    with web_page(PAGE) as port:
        where = f"news.test:{port}"
        async with gateway(tmp_path, port=port, hosts=[where]) as harness:
            calls = await asyncio.gather(*(attempt(harness, "connect", where) for _ in range(3)))
            assert len(server_processes(tmp_path)) == 1
            for call in calls:
                assert "200 OK" in text(call)
                assert harness.kinds(call=call.call_id).count("egress.connected") == 1


@pytest.mark.promise("P-floods")
async def test_instances_of_servers_are_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without a run share an instance. Those of many runs take a share, and an idle one makes room."""
    monkeypatch.setattr(executor, "MAX_INSTANCES", 4)
    monkeypatch.setattr(executor, "MAX_INSTANCES_OF_PRINCIPAL", 2)
    monkeypatch.setattr(executor, "INSTANCES_FOR_OPERATORS", 1)
    async with gateway(tmp_path, isolation="run") as harness:
        instances = harness.gateway.mcp.servers._instances
        assert [text(await attempt(harness, "count")) for _ in range(3)] == ["1", "2", "3"]
        assert len(instances) == 1
        for _ in range(3):
            await attempt(harness, "count", run_id=await harness.open_run("agent:a"))
        assert len(instances) == 2
        busy = [
            asyncio.create_task(
                attempt(harness, "sleep", "60", run_id=await harness.open_run("agent:a"), timeout_ms=50_000)
            )
            for _ in range(2)
        ]
        await eventually(lambda: sum(not each.is_idle and each.is_started for each in instances.values()) == 2)
        refused = await attempt(harness, "count", run_id=await harness.open_run("agent:a"))
        assert refused.error is not None and refused.error["code"] == "mcp.too_many_instances"
        assert "agent:a has 2 instances" in refused.error["message"]
        assert text(await attempt(harness, "count", principal="agent:b")) == "1"
        # All but the operators' place is taken, and the idle one of another agent makes room.
        assert text(await attempt(harness, "count", principal="agent:c")) == "1"
        assert {each.started_for for each in instances.values()} == {"agent:a", "agent:c"}
        busy.append(asyncio.create_task(attempt(harness, "sleep", "60", principal="agent:c", timeout_ms=50_000)))
        await eventually(lambda: all(not each.is_idle for each in instances.values()))
        full = await attempt(harness, "count", principal="agent:b")
        assert full.error is not None and full.error["code"] == "mcp.too_many_instances"
        assert text(await attempt(harness, "count", principal="user:operator", channel="cli")) == "1"
        for event in harness.gateway.store.events_since(0, 10_000, kind="call.started"):
            await harness.gateway.broker.cancel(event.call)
        await asyncio.gather(*busy)


@pytest.mark.promise("P-files-protected")
async def test_what_a_server_plants_in_the_callers_workspace_is_moved_aside_when_it_ends(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    settings = f'[workspace]\nroot = "{workspace}"\n[tools]\nallowed = ["curious.*"]\npreapproved = ["curious.*"]\n'
    place = Place(tmp_path / "place", settings + toml("curious", curious_server(tmp_path / "home", workspace="caller")))
    with running(place) as (daemon, tokens):
        async with over_http(daemon, tokens["a"], mode="legacy") as client:
            for path in ("CLAUDE.md", "note.txt"):
                answer = words(await client.call_tool("curious_tryout", {"what": "write", "where": path}))
                assert answer == "written", answer
    assert sorted(each.name for each in workspace.iterdir()) == ["note.txt"]
    (event,) = place.palyra("journal", "tail", "--kind", "call.planted", "--json").data["events"]
    assert event["payload"]["names"][0]["name"] == "CLAUDE.md"
    assert Path(event["payload"]["names"][0]["moved_to"]).read_text() == "here I am"
