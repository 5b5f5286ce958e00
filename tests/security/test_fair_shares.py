"""One principal that takes all there is: calls, waits, runs and instances. The others and the operator go on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.mcp_clients import meta, over_http
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.executors.mcp_upstream.limits import MAX_SESSIONS
from palyra.executors.process import executor as process
from palyra.pipeline import reserve
from palyra.pipeline.store import run_tables
from palyra.server.http.app import create_app
from palyra.server.mcp.backend import McpCaller
from palyra.server.mcp.transports import SessionRuns

pytestmark = pytest.mark.promise("P-floods")

OPEN = {"tools": {"allowed": ["*"], "preapproved": ["*"]}}
SLEEP = {"tool": "sleep", "arguments": {"seconds": 60}}
ECHO = {"tool": "echo", "arguments": {"text": "x"}}


class Api:
    """The routes of a running gateway, and a token of a principal."""

    def __init__(self, harness: GatewayHarness, app: Any, token: str) -> None:
        self.harness = harness
        self._app = app
        self._token = token

    async def call(self, body: dict[str, Any], **more: Any) -> RawAnswer:
        return await ask(self._app, "POST", "/v1/tool-calls", token=self._token, body={**body, **more})

    async def get(self, path: str) -> RawAnswer:
        return await ask(self._app, "GET", path, token=self._token)

    async def delete(self, path: str) -> RawAnswer:
        return await ask(self._app, "DELETE", path, token=self._token)

    async def post(self, path: str, body: object) -> RawAnswer:
        return await ask(self._app, "POST", path, token=self._token, body=body)


async def api(harness: GatewayHarness, principal: str) -> Api:
    return Api(harness, create_app(harness.gateway.service), await make_token(harness, principal))


async def operators_api(harness: GatewayHarness) -> Api:
    return Api(harness, create_app(harness.gateway.service), await operator(harness))


@asynccontextmanager
async def flood(apis: Sequence[Api], body: dict[str, Any], count: int, **more: Any) -> AsyncIterator[list[RawAnswer]]:
    """Make ``count`` calls at once that do not end, by all of ``apis`` in turn. Yield the answers of the refused."""
    harness = apis[0].harness
    broker = harness.gateway.broker

    def count_staying() -> int:
        return broker.running() + len(broker._approvals.waiting)

    before = count_staying()
    calls = [asyncio.create_task(apis[each % len(apis)].call(body, **more)) for each in range(count)]

    def is_settled() -> bool:
        return count_staying() - before + sum(each.done() for each in calls) == count

    try:
        await eventually(is_settled)
        yield [each.result() for each in calls if each.done()]
    finally:
        for record in harness.gateway.store.events_since(0, 10_000, kind="call.requested"):
            await broker.cancel(record.call)
        await asyncio.gather(*calls, return_exceptions=True)


async def test_256_sleeping_calls_of_one_agent_lock_out_neither_the_others_nor_the_operator(tmp_path: Path) -> None:
    async with open_harness(tmp_path, OPEN) as harness:
        bot, other, boss = await api(harness, "agent:bot"), await api(harness, "agent:b"), await operators_api(harness)
        async with flood([bot], SLEEP, 256) as refused:
            assert harness.gateway.broker.running() == 64
            assert {answer.code for answer in refused} == {"call.share_used"} and len(refused) == 192
            assert "agent:bot has 64 calls" in refused[0].error["message"]
            assert (await other.call(ECHO)).status == 200
            assert (await boss.call(ECHO)).status == 200
            # The operator sees and ends what runs, also in the name of the agent that floods.
            running = harness.gateway.store.events_since(0, 10_000, kind="call.started")[0].call
            assert (await boss.get(f"/v1/tool-calls/{running}")).data["status"] == "running"
            assert (await boss.delete(f"/v1/tool-calls/{running}")).data["status"] == "cancelled"
            assert (await boss.call(ECHO, principal="agent:bot", channel="cli")).status == 200


async def test_two_tokens_of_one_agent_have_one_share(tmp_path: Path) -> None:
    async with open_harness(tmp_path, OPEN) as harness:
        first, second = await api(harness, "agent:bot"), await api(harness, "agent:bot")
        async with flood([first, second], SLEEP, 100) as refused:
            assert harness.gateway.broker.running() == 64 and len(refused) == 36


async def test_a_caller_that_leaves_its_calls_behind_still_holds_its_share(tmp_path: Path) -> None:
    """A connection that is closed ends no call: its place is not free."""
    settings = {"tools": {**OPEN["tools"], "max_concurrent_calls_per_principal": 3}}
    async with open_harness(tmp_path, settings) as harness:
        bot = await api(harness, "agent:bot")
        calls = [asyncio.create_task(bot.call(SLEEP)) for _ in range(3)]
        await eventually(lambda: harness.gateway.broker.running() == 3)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        assert (await bot.call(ECHO)).code == "call.share_used"
        for event in harness.gateway.store.events_since(0, 100, kind="call.started"):
            await harness.gateway.broker.cancel(event.call)
        assert (await bot.call(ECHO)).status == 200


async def test_many_agents_together_leave_the_operators_reserve(tmp_path: Path) -> None:
    settings = {"tools": {**OPEN["tools"], "max_concurrent_calls": 16, "max_concurrent_calls_per_principal": 6}}
    async with open_harness(tmp_path, settings) as harness:
        agents = [await api(harness, f"agent:{name}") for name in ("a", "b", "c")]
        boss = await operators_api(harness)
        async with flood(agents, SLEEP, 30) as refused:
            # A quarter of all is for operators, so the third agent does not have its whole share.
            assert harness.gateway.broker.running() == 12
            assert {answer.code for answer in refused} == {"call.too_many_at_once"}
            assert not any("agent:" in str(answer.error) for answer in refused)
            assert (await boss.call(ECHO)).status == 200
            # An agent does not name itself a person's terminal, and an MCP client's calls are not the operator's.
            assert (await agents[0].call(ECHO, channel="cli")).status == 429
            mcp = await harness.call("echo", {"text": "x"}, principal="agent:d", channel="mcp")
            assert mcp.error is not None and mcp.error["code"] == "call.too_many_at_once"
            async with flood([boss], SLEEP, 5) as more:
                assert [answer.code for answer in more] == ["call.too_many_at_once"]
                held = more[0].error["details"]["holders"]
                assert held == {"agent:a": 4, "agent:b": 4, "agent:c": 4, "user:operator": 4}


async def test_callers_that_wait_for_a_person_have_a_share_too(tmp_path: Path) -> None:
    """Identical calls wait for one request, so the bound of pending requests does not count them."""
    async with open_harness(tmp_path, {"tools": {"allowed": ["*"]}}) as harness:
        write = {"tool": "fs.write", "arguments": {"path": "a", "content": "b"}}
        bot, other = await api(harness, "agent:bot"), await api(harness, "agent:b")
        waiting = harness.gateway.broker._approvals.waiting
        async with flood([bot], write, 64, wait_ms=60_000), flood([bot], write, 64, wait_ms=60_000) as sent_back:
            assert len(waiting) == 64 and [answer.status for answer in sent_back] == [202] * 64
            assert (await bot.call(ECHO)).status == 200
            late = asyncio.create_task(other.call(write, wait_ms=60_000))
            await eventually(lambda: len(waiting) == 65)
            assert not late.done()
            for call_id in tuple(waiting):
                await harness.gateway.broker.cancel(call_id)
            assert (await late).status == 202


async def test_a_call_without_a_run_does_not_pass_the_cap_of_calls(tmp_path: Path) -> None:
    async with open_harness(tmp_path, OPEN) as harness:
        first, second = await api(harness, "agent:bot"), await api(harness, "agent:bot")
        other, boss = await api(harness, "agent:b"), await operators_api(harness)
        codes = []
        for start in range(0, 1_050, 50):
            tokens = [(first, second)[each % 2] for each in range(start, start + 50)]
            answers = await asyncio.gather(*(each.call(ECHO) for each in tokens))
            codes += [answer.status if answer.status == 200 else answer.code for answer in answers]
        assert codes.count(200) == 1_000 and codes.count("budget.exhausted") == 50
        spent = await first.call(ECHO)
        assert "palyra call --new-run" in spent.error["hint"]
        # Another agent has a run of its own, and a person in a terminal never meets a spent one.
        assert (await other.call(ECHO)).status == 200
        assert (await boss.call(ECHO, principal="agent:bot", channel="cli")).status == 200
        # The hint works.
        run_id = (await first.post("/v1/runs", {})).data["run_id"]
        assert (await first.call(ECHO, run_id=run_id)).status == 200


async def test_an_hour_later_there_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_harness(tmp_path, {**OPEN, "budget": {"calls": 2}}) as harness:
        bot = await api(harness, "agent:bot")
        assert [(await bot.call(ECHO)).status for _ in range(3)] == [200, 200, 429]
        monkeypatch.setattr(reserve, "DEFAULT_RUN_SECONDS", 0.0)
        assert (await bot.call(ECHO)).status == 200


async def test_new_runs_do_not_pass_the_cap_of_calls_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the route, by a name that the agent makes up, and by another token."""
    async with open_harness(tmp_path, {**OPEN, "budget": {"calls": 2, "runs_per_hour": 3}}) as harness:
        bot, again = await api(harness, "agent:bot"), await api(harness, "agent:bot")
        other, boss = await api(harness, "agent:b"), await operators_api(harness)
        assert (await bot.call(ECHO)).status == 200
        assert (await again.post("/v1/runs", {})).status == 201
        # An old time in a made-up id hides no run.
        assert (await bot.call(ECHO, run_id="00000000000000000000000001")).status == 200
        for refused in (
            await bot.post("/v1/runs", {}),
            await again.call(ECHO, run_id="00000000000000000000000002"),
        ):
            assert (refused.status, refused.code) == (429, "run.too_many") and "agent:bot" in refused.error["message"]
        assert "run.opened" not in harness.kinds(run="00000000000000000000000002")
        assert (await bot.call(ECHO)).status == 200
        assert (await other.post("/v1/runs", {})).status == 201
        # An operator opens one for it all the same.
        run_id = (await boss.post("/v1/runs", {"principal": "agent:bot"})).data["run_id"]
        assert (await bot.call(ECHO, run_id=run_id)).status == 200
        monkeypatch.setattr(run_tables, "COUNTED_MS", 0)
        assert (await bot.post("/v1/runs", {})).status == 201


async def test_mcp_sessions_and_http_together_open_no_more_runs(tmp_path: Path) -> None:
    settings = '[tools]\nallowed = ["*"]\npreapproved = ["*"]\n[budget]\nruns_per_hour = 2\ncalls = 2\n'
    place = Place(tmp_path / "place", settings)
    with place.daemon() as daemon:
        with daemon.client() as owner:
            token = owner.create_token("agent:bot").token.reveal()
        with daemon.client(token) as bot:
            bot.call("echo", {"text": "x"})
            runs, codes = set(), []
            for _ in range(3):
                # Each of these clients is a session of its own.
                async with over_http(daemon, token, mode="legacy") as client:
                    result = await client.call_tool("echo", {"text": "x"})
                    runs.add(meta(result, "run_id"))
                    codes.append("run.too_many" if "runs within an hour" in str(result.content) else "ran")
            assert codes == ["ran", "run.too_many", "run.too_many"] and len(runs) == 3
        # The operator's command line goes on.
        for _ in range(3):
            assert place.palyra("call", "echo", "--input", '{"text":"x"}', "--principal", "agent:bot").status == 0
        answer = place.palyra("call", "echo", "--input", '{"text":"x"}', "--new-run", "--json")
        assert answer.status == 0


async def test_programs_left_in_the_background_take_no_more_than_a_share(tmp_path: Path) -> None:
    """In one run, in more runs, and with programs that a call waits for: another agent's program still starts."""
    settings = {**OPEN, "sandbox": {"max_running": 4, "tier": "b", "egress": "none"}}
    async with open_harness(tmp_path, settings) as harness:
        more: dict[str, Any] = {"actor": "agent:bot", "channel": "api"}
        sleeping = {"command": "sleep", "args": ["50"]}
        runs = [await harness.open_run() for _ in range(2)]
        started = [await harness.call("process.start", sleeping, run_id=run, **more) for run in runs]
        assert [each.error for each in started] == [None, None]
        running = [asyncio.create_task(harness.call("process.run", sleeping, **more)) for _ in range(8)]
        other = await harness.call("process.run", {"command": "true"}, principal="agent:b", **more)
        assert other.result["exit_code"] == 0
        assert not any(each.done() for each in running)
        for event in harness.gateway.store.events_since(0, 10_000, kind="call.started"):
            await harness.gateway.broker.cancel(event.call)
        await asyncio.gather(*running)


async def test_more_runs_hold_no_more_programs_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_BACKGROUND_OF_PRINCIPAL", 3)
    settings = {**OPEN, "sandbox": {"tier": "b", "egress": "none"}}
    async with open_harness(tmp_path, settings) as harness:
        more: dict[str, Any] = {"actor": "agent:bot", "channel": "api"}
        sleeping = {"command": "sleep", "args": ["50"]}
        started = [
            await harness.call("process.start", sleeping, run_id=await harness.open_run(), **more) for _ in range(4)
        ]
        codes = [None if each.error is None else each.error["code"] for each in started]
        assert codes == [None, None, None, "process.too_many_background"]
        assert (await harness.call("process.start", sleeping, principal="agent:b", **more)).error is None


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ACCEPT = (b"accept", b"application/json, text/event-stream")
JSON = (b"content-type", b"application/json")


async def test_sessions_of_mcp_clients_are_shared_out(tmp_path: Path) -> None:
    """With two tokens, and with a header that names the protocol's version at once."""
    async with open_harness(tmp_path, OPEN) as harness:
        app = create_app(harness.gateway.service)
        first, second = await make_token(harness), await make_token(harness)
        other = await make_token(harness, "agent:b")

        async def initialize(token: str, *headers: tuple[bytes, bytes]) -> RawAnswer:
            return await ask(app, "POST", "/mcp", token=token, body=INITIALIZE, headers=[ACCEPT, JSON, *headers])

        answers = [await initialize((first, second)[each % 2]) for each in range(66)]
        assert [answer.status for answer in answers] == [200] * 64 + [429] * 2
        assert answers[-1].code == "mcp.too_many_sessions" and "agent:bot has 64" in answers[-1].error["message"]
        assert (await initialize(first, (b"mcp-protocol-version", b"2025-06-18"))).status == 429
        assert (await initialize(other)).status == 200


def test_a_client_that_names_sessions_without_end_pushes_out_its_own() -> None:
    runs = SessionRuns(lambda: 0.0)
    victim = McpCaller(principal="agent:b", actor="agent:b", token_id="B")
    mine = runs.run_of(victim, "s")
    flooding = McpCaller(principal="agent:bot", actor="agent:bot", token_id="A")
    for number in range(MAX_SESSIONS * 2):
        runs.run_of(flooding, str(number))
    assert runs.run_of(victim, "s") == mine and len(runs) <= MAX_SESSIONS + 1


async def test_streams_of_events_are_shared_out(tmp_path: Path) -> None:
    async with open_harness(tmp_path, OPEN) as harness:
        bot, boss = await api(harness, "agent:bot"), await operators_api(harness)
        async with flood([bot], SLEEP, 1):
            call_id = harness.gateway.store.events_since(0, 100, kind="call.started")[0].call
            path = f"/v1/tool-calls/{call_id}/events"
            streams = [asyncio.create_task(bot.get(path)) for _ in range(70)]
            open_streams = harness.gateway.service.streams
            places = harness.gateway.service.places
            await eventually(lambda: len(open_streams) + sum(each.done() for each in streams) == 70)
            assert len(open_streams) == 64
            assert {each.result().code for each in streams if each.done()} == {"http.too_many_streams"}
            seen = asyncio.create_task(boss.get(path))
            await eventually(lambda: len(open_streams) == 65)
        assert b"call.finished" in (await seen).body
        await asyncio.gather(*streams)
        assert not places


async def test_calls_that_are_refused_without_end_fill_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown tools, wrong arguments, calls that policy denies: each is an entry, and there is no budget for them."""
    async with open_harness(tmp_path, {"tools": {"allowed": ["echo"]}}) as harness:
        bot, again, other = [await api(harness, f"agent:{name}") for name in ("bot", "bot", "b")]
        bodies = [
            {"tool": "nonsense"},
            {"tool": "echo", "arguments": {"no": 1}},
            {"tool": "sleep", "arguments": {"seconds": 1}},
        ]
        codes = []
        for _ in range(14):
            calls = [bot.call({"arguments": {}, **bodies[each % 3]}) for each in range(50)]
            codes += [answer.code for answer in await asyncio.gather(*calls)]
        assert codes.count("call.refused_too_often") == 100
        before = harness.gateway.store.head()
        assert (await again.call(ECHO)).code == "call.refused_too_often"
        assert harness.gateway.store.head() == before
        assert (await other.call(ECHO)).status == 200
        assert (await (await operators_api(harness)).call(ECHO, principal="agent:bot", channel="cli")).status == 200
        monkeypatch.setattr(reserve, "REFUSALS_COUNTED_SECONDS", 0.0)
        assert (await bot.call(ECHO)).status == 200
