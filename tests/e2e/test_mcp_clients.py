"""The official client against a real daemon, over both transports and both generations of the protocol."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult, EmptyResult, SetLevelRequest, SetLevelRequestParams

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually, eventually_sync
from fakes.mcp_clients import MODES, TRANSPORTS, connected, meta, over_stdio, words
from fakes.skill_harness import PUBLISHER, SKILL, archive
from fakes.wasm_skills import TOOL, status_module
from fakes.web_server import web_page
from palyra.canonical import canonical_json, digest_of
from palyra.server.mcp.client_view import to_client
from palyra.signing.ed25519 import Ed25519Signer

PAGE = b"<html><head><title>News</title></head><body><h1>Today</h1></body></html>"
BOTH = [(transport, mode) for transport in TRANSPORTS for mode in MODES]


class Harness:
    def __init__(self, place: Place, daemon: Daemon, port: int) -> None:
        self.place = place
        self.daemon = daemon
        self.port = port
        with daemon.client() as owner:
            self.tokens = {
                name: owner.create_token(f"agent:{name}").token.reveal() for name in ("bot", "other", "asked")
            }

        self._put_a_skill_in_use()

    def _put_a_skill_in_use(self) -> None:
        signer = Ed25519Signer.load_or_create(self.place.root / "acme.key")
        path = self.place.root / "adder.skill"
        path.write_bytes(archive("1.0.0", signer=signer, modules={"main.wasm": status_module("(i32.const 7)")}))
        for words_ in (
            ("trust", "add", PUBLISHER, str(self.place.root / "acme.pub")),
            ("install", str(path)),
        ):
            answer = self.place.palyra("skill", *words_, "--json")
            assert answer.status == 0, answer.stdout
        approved = self.place.palyra("skill", "approve", SKILL, "1.0.0", "--digest", answer.data["digest"], "--json")
        assert approved.status == 0, approved.stdout

    def connected(self, transport: str, mode: str, who: str = "bot", **options: Any) -> Any:
        return connected(transport, self.place, self.daemon, self.tokens[who], mode=mode, **options)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    root = tmp_path_factory.mktemp("mcp")
    with web_page(PAGE) as port:
        place = Place(
            root,
            f"""
[tools]
preapproved = ["process.run", "http.fetch", "fs.read"]
[mcp]
deciders = {{ "agent:asked" = "user:operator" }}
[egress]
allowed_hosts = ["news.test:{port}"]
private_targets = ["news.test:{port}"]
static_hosts = {{ "news.test" = ["127.0.0.1"] }}
""",
        )
        (place.policies / "no-lists.cedar").write_text(
            '@id("no-lists")\nforbid (principal == Agent::"bot", action == Action::"tool.execute", '
            'resource == Tool::"fs.list");'
        )
        with place.daemon() as daemon:
            yield Harness(place, daemon, port)


@pytest.mark.promise("P-mcp-client")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_an_agent_lists_and_calls_tools(harness: Harness, transport: str, mode: str) -> None:
    async with harness.connected(transport, mode) as client:
        assert "Denied" in (client.instructions or "")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"echo", "process_run", "http_fetch", "fs_read"} <= tools.keys()
        assert tools["fs_read"].annotations.read_only_hint and not tools["process_run"].annotations.read_only_hint
        assert tools["http_fetch"].annotations.open_world_hint and not tools["echo"].annotations.open_world_hint

        ran = await client.call_tool("process_run", {"command": "echo", "args": ["from the sandbox"]})
        assert not ran.is_error and ran.structured_content["stdout"] == "from the sandbox\n"
        assert ran.structured_content["tier"] == "c"

        fetched = await client.call_tool("http_fetch", {"url": f"http://news.test:{harness.port}/"})
        assert not fetched.is_error and "Today" in words(fetched)
        skilled = await client.call_tool(to_client(TOOL), {})
        assert skilled.structured_content == {"s": "+0007"}, words(skilled)
        # Calls of a session share its run.
        assert meta(ran, "run_id") == meta(fetched, "run_id")


@pytest.mark.promise("P-default-deny")
@pytest.mark.parametrize(("transport", "mode"), [("stdio", "auto"), ("http", "legacy")])
async def test_a_denial_says_what_would_be_allowed(harness: Harness, transport: str, mode: str) -> None:
    async with harness.connected(transport, mode) as client:
        assert "fs_list" not in {tool.name for tool in (await client.list_tools()).tools}
        denied = await client.call_tool("fs_list", {})
        assert denied.is_error and meta(denied, "error")["code"] == "call.denied"
        said = words(denied)
        assert "no-lists" in said and "echo, " in said.partition("You may use: ")[2]
        # A host that nobody allowed: the message names the setting that would allow it.
        away = await client.call_tool("http_fetch", {"url": "http://elsewhere.test/"})
        assert away.is_error and "egress" in words(away)


@pytest.mark.promise("P-approval-once")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_the_same_call_runs_once_a_person_has_approved_it(harness: Harness, transport: str, mode: str) -> None:
    asked = {"path": f"{transport}-{mode}.txt", "content": "hello"}
    async with harness.connected(transport, mode) as client:
        waiting = await client.call_tool("fs_write", asked)
        approval = meta(waiting, "approval_id")
        assert waiting.is_error and f"palyra approvals approve {approval}" in words(waiting)
        assert "exactly the same arguments" in words(waiting) and f"{harness.daemon.url}/approvals" in words(waiting)
        with harness.daemon.client() as owner:
            owner.approve(approval)
        written = await client.call_tool("fs_write", asked)
        assert not written.is_error, words(written)
        # Once is once.
        assert meta(await client.call_tool("fs_write", asked), "status") == "needs_approval"


@pytest.mark.promise("P-approval-person")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_the_user_of_a_client_is_asked_where_policy_lets_them_decide(
    harness: Harness, transport: str, mode: str
) -> None:
    shown: list[str] = []
    answer = {"decision": "approve"}

    async def ask(_context: Any, params: Any) -> ElicitResult:
        shown.append(params.message)
        return ElicitResult(action="accept", content=dict(answer))

    asked = {"path": f"asked-{transport}-{mode}.txt", "content": "hello"}
    async with harness.connected(transport, mode, "asked", elicitation_callback=ask) as client:
        written = await client.call_tool("fs_write", asked)
        assert not written.is_error, words(written)
        assert "agent:asked wants to call fs.write" in shown[0] and asked["path"] in shown[0]
        answer["decision"] = "deny"
        refused = await client.call_tool("fs_write", {**asked, "content": "more"})
        assert refused.is_error and len(shown) == 2
    # Nobody stands behind this one's client: the same question is not put there.
    async with harness.connected(transport, mode, "bot", elicitation_callback=ask) as client:
        waiting = await client.call_tool("fs_write", asked)
        assert meta(waiting, "status") == "needs_approval" and len(shown) == 2


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_the_question_is_the_call_whole_and_no_value_writes_a_line_of_it(
    harness: Harness, transport: str, mode: str
) -> None:
    shown: list[Any] = []

    async def ask(_context: Any, params: Any) -> ElicitResult:
        shown.append(params)
        return ElicitResult(action="accept", content={"decision": "approve"})

    fake = "notes.txt\narguments    {}\ndigest       0\npolicy asks  nothing"
    call = {"path": f"{transport}-{mode} {fake}", "content": f"{fake}\u202e\u200b\U000e0041\u2028\x85" + "z" * 15_000}
    async with harness.connected(transport, mode, "asked", elicitation_callback=ask) as client:
        await client.call_tool("fs_write", call)
        (asked,) = shown
        assert re.fullmatch(r"[\x20-\x7e\n]*", asked.message), ascii(asked.message)
        first, *lines = asked.message.split("\n")
        assert first == "agent:asked wants to call fs.write. Let it?"
        labels = [re.split(r"  +", line)[0] for line in lines if not line.startswith(" ")]
        assert sorted(set(labels)) == sorted(labels) and {"arguments", "digest", "would touch"} <= set(labels)
        start = labels.index("arguments")
        begins = [number for number, line in enumerate(lines) if not line.startswith(" ")]
        block = lines[begins[start] : begins[start + 1]]
        read = json.loads("\n".join(line.removeprefix("arguments") for line in block))
        assert canonical_json(read) == canonical_json(call)
        assert digest_of(call) in asked.message and digest_of(call) in json.dumps(asked.requested_schema)
        # What does not fit the form gets no yes there: the same answer decides nothing.
        long = await client.call_tool("fs_write", {**call, "content": "z" * 30_000})
        assert long.is_error and meta(long, "status") == "needs_approval" and len(shown) == 2
        assert shown[1].requested_schema["properties"]["decision"]["enum"] == ["deny"]
        assert "palyra approvals approve" in shown[1].message and "zzz" not in shown[1].message


@pytest.mark.promise("P-call-ends")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_cancelling_a_call_ends_its_process(harness: Harness, transport: str, mode: str) -> None:
    marker = f"{4000 + len(transport) * 10 + len(mode)}"
    steps: list[str] = []
    running = anyio.Event()

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        steps.append(message or "")
        if "call.started" in (message or ""):
            running.set()

    async with harness.connected(transport, mode) as client:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                await client.call_tool(
                    "process_run", {"command": "sleep", "args": [marker]}, progress_callback=progress
                )

            group.start_soon(call)
            with anyio.fail_after(60):
                await running.wait()
                await eventually(lambda: sleeping(marker))
            group.cancel_scope.cancel()
        with anyio.fail_after(60):
            await eventually(lambda: not sleeping(marker))
        assert not (await client.call_tool("echo", {"text": "still here"})).is_error
    assert any("process_run" in step for step in steps)


def sleeping(marker: str) -> bool:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == b"sleep\0" + marker.encode() + b"\0":
                return True
    return False


@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_what_happened_is_readable_as_resources(harness: Harness, transport: str, mode: str) -> None:
    async with harness.connected(transport, mode) as client:
        said = await client.call_tool("echo", {"text": "for the record"})
        run, call = meta(said, "run_id"), meta(said, "call_id")
        listed = {resource.uri for resource in (await client.list_resources()).resources}
        assert {f"palyra://runs/{run}", f"palyra://calls/{call}"} <= set(map(str, listed))
        templates = (await client.list_resource_templates()).resource_templates
        assert "palyra://runs/{run_id}" in {template.uri_template for template in templates}
        timeline = json.loads((await client.read_resource(f"palyra://runs/{run}")).contents[0].text)
        assert timeline["calls"][0]["call"] == f"palyra://calls/{call}"
        statement = json.loads((await client.read_resource(f"palyra://calls/{call}/attestation")).contents[0].text)
        assert statement["signatures"]


@pytest.mark.promise("P-mcp-client")
@pytest.mark.parametrize(("transport", "mode"), BOTH)
async def test_a_client_that_wants_log_messages_hears_each_step_of_its_calls(
    harness: Harness, transport: str, mode: str
) -> None:
    heard: list[Any] = []

    async def log(params: Any) -> None:
        heard.append(params)

    async with harness.connected(transport, mode, logging_callback=log) as client:
        await client.call_tool("echo", {"text": "nobody asked"})
        assert heard == []
        asked: dict[str, Any] = {}
        if mode == "legacy":
            await client.session.send_request(SetLevelRequest(params=SetLevelRequestParams(level="info")), EmptyResult)
        else:
            asked = {"meta": {"io.modelcontextprotocol/logLevel": "info"}}
        said = await client.call_tool("echo", {"text": "hi"}, **asked)
        with anyio.fail_after(60):
            await eventually(lambda: len(heard) >= 4)
        assert [each.data["event"] for each in heard][:4] == [
            "call.requested",
            "call.decided",
            "call.started",
            "call.finished",
        ]
        assert {each.data["call_id"] for each in heard} == {meta(said, "call_id")}


async def test_the_owner_speaks_for_an_agent_and_the_journal_says_so(harness: Harness) -> None:
    async with over_stdio(harness.place, "--principal", "agent:claude") as client:
        said = await client.call_tool("echo", {"text": "hi"})
    with harness.daemon.client() as owner:
        call = owner.call_status(meta(said, "call_id"))
    assert call.principal == "agent:claude"


def test_palyra_mcp_starts_a_daemon_where_none_runs(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def talk() -> None:
        async with over_stdio(place) as client:
            assert not (await client.call_tool("echo", {"text": "hi"})).is_error

    async def talk_at_once() -> None:
        """Two clients that each find no daemon: one is started, and both use it."""
        async with anyio.create_task_group() as group:
            group.start_soon(talk)
            group.start_soon(talk)

    asyncio.run(talk_at_once())
    started = json.loads((place.state / "daemon.json").read_text())
    assert place.palyra("tools", "list", "--json").status == 0
    # It would leave by itself; the test does not wait for that.
    os.kill(started["pid"], signal.SIGTERM)
    eventually_sync(lambda: not (place.state / "daemon.json").exists())
