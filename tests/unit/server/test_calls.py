"""``/v1/tool-calls``, ``/v1/runs`` and ``/v1/tools`` as an agent meets them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS, MAX_CONTEXT_VALUE_CHARS
from palyra.server.http.app import create_app

ECHO = {"tool": "echo", "arguments": {"text": "hi"}}
WRITE = {"tool": "fs.write", "arguments": {"path": "a.txt", "content": "hello"}}


def events_of(got: RawAnswer) -> list[tuple[str, int, Any]]:
    found = []
    for block in got.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], int(fields["id"]), json.loads(fields["data"])))
    return found


async def test_a_good_call_answers_with_everything_the_contract_names(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        got = await ask(app, "POST", "/v1/tool-calls", token=await make_token(harness), body=ECHO)
        assert got.status == 200 and got.headers["palyra-exit-code"] == "0"
        assert set(got.data) == {
            "call_id", "run_id", "tool", "principal", "status", "decision", "result", "receipt", "attestation",
            "created_at", "started_at", "ended_at", "duration_ms", "argument_digest",
        }  # fmt: skip
        assert (got.data["principal"], got.data["status"], got.data["result"]) == (
            "agent:bot",
            "succeeded",
            {"text": "hi"},
        )


async def test_a_call_that_needs_a_person_says_so_with_the_approval(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        got = await ask(app, "POST", "/v1/tool-calls", token=await make_token(harness), body=WRITE)
        assert (got.status, got.headers["palyra-exit-code"], got.code) == (202, "4", "call.needs_approval")
        details = got.error["details"]
        assert details["approval_id"] == got.data["approval_id"] and details["call_id"] == got.data["call_id"]
        assert details["default"] == "deny"


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "change",
    [
        {"arguments": None},
        {"arguments": {"text": "a"}, "arguments_json": "{}"},
        {"arguments": [1]},
        {"arguments": "text"},
        {"tool": 1},
        {"wait_ms": -1},
        {"wait_ms": MAX_APPROVAL_WAIT_MS + 1},
        {"wait_ms": True},
        {"timeout_ms": 0},
        {"timeout_ms": MAX_CALL_TIMEOUT_MS + 1},
        {"timeout_ms": "5"},
        {"session": "a b"},
        {"session": "x" * (MAX_CONTEXT_VALUE_CHARS + 1)},
        {"device": "\x1b[31m"},
        {"channel": "c\0"},
        {"approved": True},
        {"run": "x"},
    ],
)
async def test_what_the_request_may_not_say(tmp_path: Path, change: dict[str, Any]) -> None:
    async with open_harness(tmp_path) as harness:
        body = {key: value for key, value in {**ECHO, **change}.items() if value is not None}
        token = await make_token(harness)
        got = await ask(create_app(harness.gateway.service), "POST", "/v1/tool-calls", token=token, body=body)
        assert (got.status, got.code) == (400, "http.wrong_shape")
        assert "call.started" not in harness.kinds()


async def test_an_agents_word_for_its_door_is_not_believed(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        for token, channel in [(await make_token(harness), "api"), (await operator(harness), "console")]:
            got = await ask(app, "POST", "/v1/tool-calls", token=token, body={**ECHO, "channel": "console"})
            requested = harness.events(call=got.data["call_id"], kind="call.requested")[0][1]
            assert requested["channel"] == channel


async def test_a_token_without_the_scope_makes_no_calls_and_no_runs(tmp_path: Path) -> None:
    from palyra.identity.api_tokens import TokenScope

    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        token = await make_token(harness, "user:operator", TokenScope.OPERATE)
        for path, body in [("/v1/tool-calls", ECHO), ("/v1/runs", {})]:
            got = await ask(app, "POST", path, token=token, body=body)
            assert (got.status, got.code) == (403, "token.scope_missing")


async def test_events_go_from_the_first_to_the_last_and_resume(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        token = await make_token(harness)
        made = await ask(app, "POST", "/v1/tool-calls", token=token, body=ECHO)
        path = f"/v1/tool-calls/{made.data['call_id']}/events"
        got = await ask(app, "GET", path, token=token)
        assert got.headers["content-type"].startswith("text/event-stream")
        assert got.headers["cache-control"] == "no-store"
        whole = events_of(got)
        assert [kind for kind, _, _ in whole] == ["call.requested", "call.decided", "call.started", "call.finished"]
        resumed = await ask(app, "GET", path, token=token, headers=[(b"last-event-id", str(whole[1][1]).encode())])
        assert events_of(resumed) == whole[2:]


async def test_cancelling_ends_a_running_call_and_leaves_an_ended_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        token = await make_token(harness)
        body = {"tool": "sleep", "arguments": {"seconds": 600}, "timeout_ms": 600_000}
        calling = asyncio.create_task(ask(app, "POST", "/v1/tool-calls", token=token, body=body))
        await eventually(lambda: harness.kinds(kind="call.started"))
        call_id = harness.gateway.store.events_since(0, 100, kind="call.started")[0].call
        ended = await ask(app, "DELETE", f"/v1/tool-calls/{call_id}", token=token)
        assert ended.data["status"] == "cancelled"
        first = await calling
        assert (first.status, first.code) == (409, "call.cancelled")
        again = await ask(app, "DELETE", f"/v1/tool-calls/{call_id}", token=token)
        assert again.data == ended.data


async def test_cancelling_withdraws_what_waits_for_a_person(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        token, boss = await make_token(harness), await operator(harness)
        made = await ask(app, "POST", "/v1/tool-calls", token=token, body=WRITE)
        await ask(app, "DELETE", f"/v1/tool-calls/{made.data['call_id']}", token=token)
        approval = f"/v1/approvals/{made.data['approval_id']}"
        assert (await ask(app, "GET", approval, token=token)).data["state"] == "withdrawn"
        late = await ask(app, "POST", f"{approval}/decision", token=boss, body={"decision": "approve"})
        assert (late.status, late.code) == (409, "approval.already_decided")


@pytest.mark.promise("P-budget-own")
async def test_a_run_is_capped_by_the_settings_unless_an_operator_asks(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"budget": {"calls": 5}}) as harness:
        app = create_app(harness.gateway.service)
        for token, cap in [(await make_token(harness), 5), (await operator(harness), 50)]:
            got = await ask(app, "POST", "/v1/runs", token=token, body={"budget": {"calls": 50}})
            assert got.status == 201 and got.data["budget"]["calls"] == {
                "cap": cap,
                "reserved": 0,
                "used": 0,
                "left": cap,
            }


@pytest.mark.parametrize("budget", [{"money": 1}, {"calls": -1}, {"calls": "5"}, {"calls": 2**53}, [1], {"calls": 1.5}])
async def test_budgets_that_are_none(tmp_path: Path, budget: Any) -> None:
    async with open_harness(tmp_path) as harness:
        token = await operator(harness)
        got = await ask(create_app(harness.gateway.service), "POST", "/v1/runs", token=token, body={"budget": budget})
        assert got.status == 400 and got.code in ("http.wrong_shape", "json.ambiguous_number")


async def test_tools_are_described_with_their_schemas(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        token = await make_token(harness)
        listed = (await ask(app, "GET", "/v1/tools", token=token)).data["tools"]
        assert [tool["name"] for tool in listed] == sorted(tool["name"] for tool in listed)
        shown = (await ask(app, "GET", "/v1/tools/fs.write", token=token)).data
        assert shown["sensitive"] is True and shown["capabilities"] == ["filesystem_write"]
        assert shown["input_schema"]["type"] == "object" and shown["output_schema"]["type"] == "object"
        got = await ask(app, "GET", "/v1/tools/no.such", token=token)
        assert (got.status, got.code) == (403, "tool.unknown")
