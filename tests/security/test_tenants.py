"""Class *One agent and another*: an agent tries to get at the files and stored values of an agent of another team."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.browsing import SETTINGS as BROWSING
from fakes.browsing import Agent, opened
from fakes.console_user import console_user
from fakes.daemon import Daemon, Place
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.mcp_clients import curious_server
from fakes.memory_browser import MemoryBrowser, put_into
from fakes.raw_http import ask, make_token, operator
from fakes.skill_harness import SKILL
from fakes.wasm_guests import ECHO, imported, text_at, wasm
from fakes.wasm_skills import TOOL, put_in_use, status_module
from fakes.worker_process import DAEMON_SETTINGS, join, worker_process
from palyra.client.protocol import ApiError
from palyra.errors import InvalidInput, PalyraError
from palyra.pipeline.domain.approval import ApprovalScope
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.http.app import create_app
from palyra.wasm.domain.host_interface import Status

pytestmark = pytest.mark.promise("P-own-only")

SECRET = "the notes of agent a"
A, B, CAPITAL = "agent:a", "agent:b", "agent:A"


class Tenants:
    """A gateway with a workspace of agent a and one of agent b, side by side, and a secret of a."""

    def __init__(self, harness: GatewayHarness, folder: Path) -> None:
        self.harness = harness
        self.a, self.b = folder / "a", folder / "b"
        self.secret = self.a / "secret.txt"

    async def call(self, tool: str, *, principal: str = B, **arguments: Any) -> CallRecord:
        return await self.harness.call(tool, arguments, principal=principal)

    def spellings(self) -> tuple[str, ...]:
        """Every way from b's folder to the secret: as a path, and over links that a program of b's may make."""
        for name, target in (("link", self.secret), ("folder", self.a), ("up", ".."), ("root", "/proc/self/root")):
            if not (self.b / name).is_symlink():
                (self.b / name).symlink_to(target)
        paths = (str(self.secret), "../a/secret.txt", "x/../../a/secret.txt", "link", "folder/secret.txt")
        return *paths, "up/a/secret.txt", f"root{self.secret}", f"/proc/self/cwd/../a/{self.secret.name}"

    def unharmed(self) -> bool:
        return [each.name for each in self.a.iterdir()] == ["secret.txt"] and self.secret.read_text() == SECRET


def settings_of(folder: Path, **more: Any) -> dict[str, Any]:
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "a" / "secret.txt").write_text(SECRET)
    workspaces = {name: {"root": str(folder / name), "who": [f"agent:{name}"]} for name in "ab"}
    return {"workspaces": workspaces, "tools": {"allowed": ["*"], "preapproved": ["*"]}, **more}


@asynccontextmanager
async def tenants(tmp_path: Path, **more: Any) -> AsyncIterator[Tenants]:
    async with open_harness(tmp_path, settings_of(tmp_path / "teams", **more)) as harness:
        yield Tenants(harness, tmp_path / "teams")


def words_of(record: CallRecord) -> str:
    return f"{record.result} {record.error}"


async def test_no_path_and_no_link_leads_the_file_tools_to_another_principals_files(tmp_path: Path) -> None:
    async with tenants(tmp_path) as both:
        mine = await both.call("fs.read", principal=A, path="secret.txt")
        assert mine.result["content"] == SECRET, mine.error
        for path in both.spellings():
            for tool, arguments in (
                ("fs.read", {}),
                ("fs.write", {"content": "x", "mode": "overwrite"}),
                ("fs.patch", {"patch": "@@ -1 +1 @@\n-x\n+y\n"}),
            ):
                record = await both.call(tool, path=path, **arguments)
                assert record.state is not CallState.SUCCEEDED and SECRET not in words_of(record), (tool, path, record)
        for path in ("folder", "up", "..", str(both.a), "up/a"):
            listed = await both.call("fs.list", path=path)
            assert listed.state is not CallState.SUCCEEDED and "secret.txt" not in words_of(listed), path
            written = await both.call("fs.write", path=f"{path}/new.txt", content="x", create_parents=True)
            assert written.state is not CallState.SUCCEEDED, path
        found = await both.call("fs.search", pattern="notes")
        assert SECRET not in words_of(found)
        own = await both.call("fs.write", path="own.txt", content="b's own")
        assert own.state is CallState.SUCCEEDED and (both.b / "own.txt").read_text() == "b's own"
        assert both.unharmed()


@pytest.mark.parametrize("tier", ["b", "c"])
async def test_no_program_of_one_principal_sees_the_files_of_another(tmp_path: Path, tier: str) -> None:
    async with tenants(tmp_path, sandbox={"tier": tier, "allow_interpreters": True}) as both:
        here = await both.call("process.run", principal=A, command="cat", args=["secret.txt"])
        assert here.result["stdout"] == SECRET, here.error
        there = await both.call("process.start", principal=A, command="sh", args=["-c", "exec 3<secret.txt; sleep 60"])
        assert there.result["state"] == "running", there.error
        for path in both.spellings():
            for command in (["cat", path], ["sh", "-c", f"cat '{path}'; echo x >> '{path}'"], ["cp", path, "got"]):
                record = await both.call("process.run", command=command[0], args=command[1:])
                assert SECRET not in words_of(record), (command, record)
        for arguments in (
            {"command": "ls", "cwd": str(both.a)},
            {"command": "ls", "cwd": "../a"},
            {"command": "ls", "cwd": "folder"},
            {"command": "sh", "args": ["-c", f"ls -R {both.a.parent}; cat /proc/*/cwd/secret.txt; touch {both.a}/new"]},
            {"command": "sh", "args": ["-c", f"ln {both.secret} hard; cat hard; mv {both.a} mine; cat mine/*"]},
        ):
            record = await both.call("process.run", **arguments)
            assert SECRET not in words_of(record) and "secret.txt\n" not in str((record.result or {}).get("stdout")), (
                record
            )
        # The words of a call are checked before it starts. A script says them where no check reads them.
        lines = (f"cat {path}; cp {path} got; echo x >> {path}; ls -R {both.a.parent}" for path in both.spellings())
        script = "\n".join(
            (*lines, f"cat /proc/*/root{both.secret} /proc/*/cwd/secret.txt /proc/*/fd/3; mv {both.a} mine; echo ran")
        )
        (both.b / "script.sh").write_text(script)
        record = await both.call("process.run", command="sh", args=["script.sh"])
        assert "ran" in record.result["stdout"] and SECRET not in words_of(record), record
        assert not (both.b / "got").exists() and not (both.b / "mine").exists() and both.unharmed()


async def test_a_handle_of_one_principal_is_no_handle_of_another(tmp_path: Path) -> None:
    async with tenants(tmp_path, sandbox={"tier": "c", "allow_interpreters": True}) as both:
        run = await both.harness.open_run(A)
        arguments = {"command": "sh", "args": ["-c", "cat secret.txt; sleep 60"]}
        started = await both.harness.call("process.start", arguments, principal=A, run_id=run)
        handle = {"handle": started.result["handle"]}
        for tool in ("process.logs", "process.stop"):
            stranger = await both.call(tool, **handle)
            assert stranger.error is not None and stranger.error["code"] == "process.unknown_handle", stranger
            borrowed = await both.harness.call(tool, handle, principal=B, run_id=run)
            assert borrowed.error is not None and borrowed.error["code"] == "run.unknown", borrowed
        logs = await both.harness.call("process.logs", handle, principal=A, run_id=run)
        assert logs.result["state"] == "running"


async def test_no_module_of_another_principals_workspace_runs(tmp_path: Path) -> None:
    """Also not for an operator, who works in a workspace like everybody else."""
    more = {"access": {"operators": [A, B]}, "wasm": {"workspace_modules": True}}
    async with tenants(tmp_path, **more) as both:
        both.secret.write_bytes(wasm(ECHO))
        ran = await both.call("plugin.run", principal=A, path="secret.txt", input={"a": 1})
        assert ran.result["output"] == {"a": 1}, ran.error
        for path in both.spellings():
            record = await both.call("plugin.run", path=path, input={"a": 1})
            assert record.state is not CallState.SUCCEEDED, (path, record.result)


@pytest.mark.promise("P-browser-approval")
async def test_a_browser_takes_and_leaves_files_in_its_principals_workspace_alone(tmp_path: Path) -> None:
    async with tenants(tmp_path, **BROWSING) as both:
        browser = MemoryBrowser()
        put_into(both.harness.gateway, browser)
        agent = await opened(both.harness, principal=B)
        for path in both.spellings():
            act = [{"action": "upload", "target": "e1", "paths": [path]}]
            taken = await agent.call("browser.act", approve=True, actions=act)
            assert taken.state is not CallState.SUCCEEDED, path
            saved = await agent.call("browser.downloads", approve=True, save=browser.records[0].id, path=path)
            assert saved.state is not CallState.SUCCEEDED, path
        assert browser.asked == [] and both.unharmed()
        await agent.done("browser.downloads", approve=True, save=browser.records[0].id, path="got.csv")
        assert (both.b / "got.csv").exists()
        stranger = Agent(both.harness, await both.harness.open_run(A), A)
        stranger.session = agent.session
        listed = await stranger.call("browser.downloads")
        assert listed.error is not None and listed.error["code"] == "browser.unknown_session"


GET = "(call $storage-get (i32.const 30000) (i32.const 8) (i32.const 1))"
PUT = "(call $storage-put (i32.const 30000) (i32.const 8) (i32.const 1) (i32.const 64) (i32.const 5))"
LIST = "(call $storage-list (i32.const 30000) (i32.const 8) (i32.const 0))"
STORING = "".join(
    imported(name, count) for name, count in (("storage-put", 5), ("storage-get", 3), ("storage-list", 3))
)


@pytest.mark.promise("P-skill-reach")
async def test_a_skill_keeps_values_for_each_principal_apart_and_gives_old_ones_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    free = {"tools": {"preapproved": ["skill.*"]}}
    roots = 'filesystem = { read_roots = ["r"], write_roots = ["r"] }\nquotas = { storage_bytes = 40 }'
    old = tmp_path / "state" / "skills" / SKILL / "data"
    ok, missing = f"{int(Status.OK):+05}", f"{int(Status.NOT_FOUND):+05}"

    async def attempt(harness: GatewayHarness, version: str, body: str, *who: str) -> list[str]:
        module = status_module(body, imports=STORING, data=text_at(8, "k") + text_at(64, "hello"))
        await put_in_use(harness, version, module=module, capabilities=roots)
        answers = [await harness.call(TOOL, {}, principal=principal) for principal in who or (A, CAPITAL, B)]
        return [str(answer.result["s"]) for answer in answers]

    async with open_harness(tmp_path, free) as harness:
        assert await attempt(harness, "1.0.0", PUT, A, CAPITAL) == [ok] * 2
        shared = "agent b reads no value of the others"
        assert await attempt(harness, "1.0.1", GET) == ["+0005", "+0005", missing], shared
        assert await attempt(harness, "1.0.2", PUT, B) == [ok]
        principals = tmp_path / "state" / "skills" / SKILL / "principals"
        assert sorted(each.name for each in principals.iterdir()) == ["agent==a", "agent=a", "agent=b"]
    # Values that an earlier version stored for everybody.
    (principals / "agent=a").rename(old)
    async with open_harness(tmp_path, free) as harness:
        assert await attempt(harness, "1.0.3", GET) == [missing, "+0005", "+0005"]
        assert await attempt(harness, "1.0.4", LIST) == ["+0002", "+0005", "+0005"]
        app, token = create_app(harness.gateway.service), await operator(harness)
        shown = await ask(app, "GET", f"/v1/skills/{SKILL}", token=token)
        assert shown.data["kept_folder"] == str(old) and caplog.text.count(f"{old} is kept and used by nobody") == 1
    # As docs/how-to/run-for-a-team.md says: the operator gives them to somebody.
    old.rename(principals / "agent=c")
    async with open_harness(tmp_path, free) as harness:
        assert await attempt(harness, "1.0.5", GET, A, "agent:c") == [missing, "+0005"]


@pytest.mark.promise("P-mcp-servers")
async def test_a_server_in_the_callers_workspace_sees_no_other_principals_workspace(tmp_path: Path) -> None:
    servers = {"servers": {"curious": curious_server(tmp_path / "home", workspace="caller")}}
    async with tenants(tmp_path, mcp=servers) as both:
        listing = await both.harness.gateway.mcp.servers.look("curious", actor="x")
        chosen = {"tryout": listing.definitions[0].digest}
        await both.harness.gateway.mcp.servers.approve("curious", chosen, by="user:me", actor="x")

        async def attempt(principal: str, what: str, where: str) -> str:
            return words_of(await both.call("curious.tryout", principal=principal, what=what, where=where))

        assert SECRET in await attempt(A, "read", "secret.txt")
        for path in both.spellings():
            assert SECRET not in await attempt(B, "read", path), path
            await attempt(B, "write", path)
        assert "written" in await attempt(B, "write", "note.txt")
        assert (both.b / "note.txt").exists() and both.unharmed()


async def test_a_principal_without_a_workspace_is_refused_where_the_operator_says_so(tmp_path: Path) -> None:
    async with tenants(tmp_path, workspace={"who": []}) as both:
        for tool, arguments in (("echo", {"text": "x"}), ("fs.list", {}), ("process.run", {"command": "ls"})):
            record = await both.call(tool, principal="agent:c", **arguments)
            assert record.error is not None and record.error["code"] == "workspace.none_assigned", record
            assert "workspace.who" in record.error["hint"] and "call.started" not in both.harness.kinds(
                call=record.call_id
            )
        assert (await both.call("fs.list")).state is CallState.SUCCEEDED
    async with tenants(tmp_path) as both:
        others = await both.call("fs.write", principal="agent:c", path="x", content="x")
        assert others.state is CallState.SUCCEEDED and (both.harness.workspace / "x").exists()


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize("scope", [ApprovalScope.ONCE, ApprovalScope.TIMEBOXED])
async def test_a_yes_for_one_workspace_is_no_yes_for_the_next(tmp_path: Path, scope: ApprovalScope) -> None:
    """The request shows the principal's own folder. A principal that is moved to another one is asked for again."""
    folder, write = tmp_path / "teams", {"path": "x.txt", "content": "x"}
    settings = settings_of(folder, tools={"allowed": ["*"]})
    async with open_harness(tmp_path, settings) as harness:
        asked = await harness.call("fs.write", write, principal=B)
        approval = await harness.approve(asked.approval_id, scope=scope)
        assert approval.binding.workspace == str(folder / "b")
        token = await operator(harness)
        shown = await ask(create_app(harness.gateway.service), "GET", f"/v1/approvals/{approval.id}", token=token)
        assert (shown.data["workspace"], shown.data["outdated"]) == (str(folder / "b"), "")
    settings["workspaces"]["a"]["who"], settings["workspaces"]["b"]["who"] = [A, B], ["agent:nobody"]
    async with open_harness(tmp_path, settings) as harness:
        again = await harness.call("fs.write", write, principal=B)
        assert again.state is CallState.NEEDS_APPROVAL and again.approval_id != approval.id
        token = await operator(harness)
        shown = await ask(create_app(harness.gateway.service), "GET", f"/v1/approvals/{approval.id}", token=token)
        assert f"calls work in {folder / 'a'} now" in shown.data["outdated"]
        assert not (folder / "a" / "x.txt").exists()


async def test_policy_sees_the_workspace_of_the_principal(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    rule = f'context.workspace == "{tmp_path / "teams" / "a"}"'
    (tmp_path / "policies" / "a.cedar").write_text(
        f'@id("not-in-a") forbid (principal, action == Action::"tool.execute", resource) when {{ {rule} }};'
    )
    async with tenants(tmp_path) as both:
        assert (await both.call("fs.list", principal=A)).state is CallState.DENIED
        assert (await both.call("fs.list", principal=B)).state is CallState.SUCCEEDED


async def test_status_names_the_folders_of_others_to_operators_alone(tmp_path: Path) -> None:
    async with tenants(tmp_path, workspace={"who": ["user:*"]}) as both:
        app = create_app(both.harness.gateway.service)
        own = await ask(app, "GET", "/v1/status", token=await make_token(both.harness, B))
        assert own.data["workspace"] == str(both.b) and str(both.a) not in str(own.data)
        every = await ask(app, "GET", "/v1/status", token=await operator(both.harness))
        assert [(each["name"], each["root"]) for each in every.data["workspaces"]] == [
            ("a", str(both.a)),
            ("b", str(both.b)),
        ]


async def test_the_console_shows_who_works_where(tmp_path: Path) -> None:
    async with tenants(tmp_path, workspace={"who": ["user:*"]}) as both:
        known = await console_user(both.harness)
        overview = await known.page("/")
        for name, root in (("a", both.a), ("b", both.b)):
            assert f"Workspace {name}" in overview and str(root) in overview and f"agent:{name}" in overview
        checks = (await known.post("/console/v1/doctor/examine")).data["checks"]
        (shown,) = [check["evidence"] for check in checks if check["name"] == "workspaces"]
        default = both.harness.workspace
        assert shown == f"a: {both.a} (agent:a); b: {both.b} (agent:b); user:*: {default}"
        explained = await known.get("/policy?principal=agent:c&tool=fs.write")
        assert explained.status < 500 and "No workspace is assigned to agent:c" in explained.body.decode()


def to_toml(settings: dict[str, Any]) -> str:
    from palyra.cli.commands.config import as_toml

    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {as_toml(value)}\n" for key, value in body.items())
        for section, body in settings.items()
    )


@contextmanager
def daemon_of_two(tmp_path: Path, more: str = "") -> Iterator[tuple[Place, Daemon, dict[str, str]]]:
    settings = settings_of(tmp_path / "teams")
    del settings["tools"]
    place = Place(tmp_path / "place", to_toml(settings) + more)
    with place.daemon() as daemon:
        with daemon.client() as owner:
            tokens = {name: owner.create_token(f"agent:{name}").token.reveal() for name in "ab"}
        yield place, daemon, tokens


def test_only_an_operator_works_on_behalf_of_another_and_then_in_that_ones_workspace(tmp_path: Path) -> None:
    free = '[tools]\nallowed = ["*"]\npreapproved = ["*"]\n'
    with daemon_of_two(tmp_path, free) as (place, daemon, tokens):
        with daemon.client(tokens["b"]) as b:
            for tool, arguments in (("fs.read", {"path": "secret.txt"}), ("echo", {"text": "x"})):
                with pytest.raises(ApiError) as caught:
                    b.call(tool, arguments, principal=A)
                assert caught.value.remote_code == "token.scope_missing"
        read = place.palyra("call", "fs.read", "--input", '{"path":"secret.txt"}', "--principal", A, "--json")
        assert read.data["result"]["content"] == SECRET
        own = place.palyra("call", "fs.read", "--input", '{"path":"secret.txt"}', "--principal", B, "--json")
        assert own.error["code"] == "workspace.not_found"
        rule = f'context.workspace == "{tmp_path / "teams" / "a"}"'
        forbid = f'@id("not-in-a") forbid (principal, action == Action::"tool.execute", resource) when {{ {rule} }};'
        (place.policies / "a.cedar").write_text(forbid)
        explained = [
            place.palyra("policy", "explain", "--principal", who, "--tool", "fs.read", "--json").data["outcome"]
            for who in (A, B)
        ]
        assert explained == ["deny", "allow"]
        located = place.palyra("config", "path", "--json").data
        assert located["workspaces"] == {name: str(tmp_path / "teams" / name) for name in "ab"}
        examined = place.palyra("doctor", "--json").stdout
        assert f"a: {tmp_path / 'teams' / 'a'} (agent:a); b: {tmp_path / 'teams' / 'b'} (agent:b)" in examined


def test_a_call_on_a_worker_takes_the_callers_workspace_and_no_other(tmp_path: Path) -> None:
    with daemon_of_two(tmp_path, DAEMON_SETTINGS) as (place, daemon, tokens):
        machine = Place(tmp_path / "machine")
        join(place, machine)
        with worker_process(machine) as worker:
            worker.says("connected and attested")
            with daemon.client(tokens["a"]) as a, daemon.client(tokens["b"]) as b:
                run = {"command": "cat", "args": ["secret.txt"]}
                there = a.call("process.run", run, tier="worker")
                assert there.result["stdout"] == SECRET
                both = Tenants.__new__(Tenants)
                both.a, both.b = tmp_path / "teams" / "a", tmp_path / "teams" / "b"
                both.secret = both.a / "secret.txt"
                for path in both.spellings():
                    for tool, arguments in (
                        ("process.run", {"command": "cat", "args": [path]}),
                        ("fs.read", {"path": path}),
                        ("fs.write", {"path": path, "content": "x", "mode": "overwrite"}),
                    ):
                        try:
                            made = b.call(tool, arguments, tier="worker").document
                        except PalyraError as error:
                            made = {"error": error.message}
                        assert SECRET not in str(made), (tool, path, made)
                b.call("fs.write", {"path": "own.txt", "content": "b's own"}, tier="worker")
                copied = b.call("process.run", {"command": "cp", "args": ["own.txt", "copy.txt"]}, tier="worker")
                assert copied.result["exit_code"] == 0 and (both.b / "copy.txt").read_text() == "b's own"
                assert both.unharmed()


def overlapping(tmp_path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Settings that would have two principals share a file, with the code that they are refused with."""
    (tmp_path / "one" / "inside").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "to-one").symlink_to("one")
    (tmp_path / "two" / "away").symlink_to(tmp_path / "three")
    (tmp_path / "three").mkdir()

    shared, ones = {"command": "/usr/bin/python3"}, str(tmp_path / "one")

    def roots(first: str, second: str, **more: Any) -> dict[str, Any]:
        named = {"x": first, "y": second}
        tables = {name: {"root": str(tmp_path / path), "who": [f"agent:{name}"]} for name, path in named.items()}
        return {"workspaces": tables, **more}

    return {
        "the same": (roots("one", "one"), "workspace.overlap"),
        "inside": (roots("one", "one/inside"), "workspace.overlap"),
        "around": (roots("one/inside", "one"), "workspace.overlap"),
        "over a link": (roots("to-one", "one/inside"), "workspace.overlap"),
        "with dots": (roots("one", "two/../one/inside"), "workspace.overlap"),
        "over a link that the other may change": (roots("two", "two/away"), "workspace.overlap"),
        "the default": (roots("one", "two", workspace={"root": str(tmp_path / "two")}), "workspace.overlap"),
        "around the default": (
            roots("one/inside", "two", workspace={"root": ones}),
            "workspace.overlap",
        ),
        "read by all programs": (
            roots("one/inside", "two", sandbox={"tool_roots": [ones]}),
            "workspace.overlap",
        ),
        "holding what all programs run": (
            roots("one", "two", sandbox={"tool_roots": [f"{ones}/inside"]}),
            "workspace.overlap",
        ),
        "the system's": (roots("/usr/share", "two"), "workspace.overlap"),
        "a server's folder for all": (
            roots("one", "two", mcp={"servers": {"s": {**shared, "workspace": ones, "read_only": True}}}),
            "workspace.overlap",
        ),
        "holding the program of a server for all": (
            roots("one", "two", mcp={"servers": {"s": {**shared, "tool_roots": [f"{ones}/inside"]}}}),
            "workspace.overlap",
        ),
        "missing": (roots("one", "four"), "workspace.bad_root"),
        "the state": (roots("one", "state"), "workspace.holds_palyra"),
        "in the state": (roots("one", "state/instances"), "workspace.holds_palyra"),
        "holding the state": (roots("one", "."), "workspace.holds_palyra"),
    }


async def test_folders_that_two_principals_would_share_are_refused_at_the_start(tmp_path: Path) -> None:
    for name, (settings, code) in overlapping(tmp_path).items():
        with pytest.raises(InvalidInput) as caught:
            async with open_harness(tmp_path, settings):
                pass
        assert caught.value.code == code and caught.value.hint, (name, caught.value)
    apart = {"workspaces": {name: {"root": str(tmp_path / name), "who": [f"agent:{name}"]} for name in ("one", "two")}}
    async with open_harness(tmp_path, apart) as harness:
        assert len(harness.gateway.broker.config.workspaces.named) == 2


def test_the_person_who_starts_it_is_told_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    tables = {name: {"root": str(tmp_path / "one"), "who": [f"agent:{name}"]} for name in "xy"}
    place = Place(tmp_path / "place", to_toml({"workspaces": tables}))
    for command in (("up", "--port", "0", "--no-browser", "--json"), ("call", "echo", "--json")):
        refused = place.palyra(*command).error
        assert refused["code"] == "workspace.overlap" and "workspaces.x" in refused["message"], refused
        assert (
            refused["hint"]
            == "give each workspace a folder of its own: none may be another one, or lie in it, also through links"
        )
    doctor = place.palyra("doctor", "--json")
    assert doctor.status != 0 and "workspaces.x" in doctor.stdout
    tables["y"] = {"root": str(tmp_path / "two"), "who": ["agent:*"]}
    tables["x"]["who"] = ["agent:web-*"]
    place.config.write_text(to_toml({"workspaces": tables}))
    refused = place.palyra("call", "echo", "--json").error
    assert refused["code"] == "config.invalid_value" and "agent:web-* and agent:*" in refused["message"]
