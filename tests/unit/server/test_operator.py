"""``/v1/approvals``, ``/v1/tokens`` and ``/v1/status`` as a person meets them."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import ask, make_token, operator
from palyra.pipeline.domain.call import CallState
from palyra.server.http.app import create_app
from palyra.server.http.operator import MAX_REASON_CHARS

WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    assert record.approval_id is not None
    return f"/v1/approvals/{record.approval_id}"


async def test_a_request_shows_exactly_what_would_run(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        shown = (await ask(app, "GET", await waiting(harness), token=boss)).data
        assert shown["arguments"] == WRITE and shown["touches"]["paths"] == ["a.txt"]
        assert (shown["principal"], shown["tool"], shown["default"]) == ("agent:bot", "fs.write", "deny")
        assert shown["policies"] == ["baseline.sensitive-needs-approval"] and shown["workspace"] == str(
            harness.workspace
        )
        assert shown["meaning"].startswith("agent:bot may make exactly this fs.write call once")
        listed = (await ask(app, "GET", "/v1/approvals?state=pending", token=boss)).data["approvals"]
        assert listed == [shown]


async def test_a_decision_names_who_made_it_and_is_final(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        path = await waiting(harness)
        body = {"decision": "deny", "reason": "not on a Friday"}
        decided = (await ask(app, "POST", f"{path}/decision", token=boss, body=body)).data
        assert (decided["state"], decided["decided_by"], decided["reason"]) == (
            "denied",
            "user:operator",
            "not on a Friday",
        )
        again = await ask(app, "POST", f"{path}/decision", token=boss, body={"decision": "approve"})
        assert (again.status, again.code) == (409, "approval.already_decided")


async def test_a_digest_that_is_not_the_one_that_waits_is_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        path = await waiting(harness)
        body = {"decision": "approve", "argument_digest": "0" * 64}
        got = await ask(app, "POST", f"{path}/decision", token=boss, body=body)
        assert (got.status, got.code) == (409, "approval.changed_call")
        digest = (await ask(app, "GET", path, token=boss)).data["argument_digest"]
        body = {"decision": "approve", "argument_digest": digest}
        assert (await ask(app, "POST", f"{path}/decision", token=boss, body=body)).data["state"] == "approved"


async def test_a_yes_is_refused_that_a_change_of_policy_has_emptied(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.cedar").write_text("// stays: a folder that lost its files keeps what is in force\n")
    more = tmp_path / "policies" / "more.cedar"
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        path = await waiting(harness)
        more.write_text('@id("more") permit (principal == Agent::"other", action, resource == Tool::"echo");\n')
        await harness.gateway.policy.reload()
        assert "under other policies" in (await ask(app, "GET", path, token=boss)).data["outdated"]
        for scope in ("once", "timeboxed"):
            body = {"decision": "approve", "scope": scope}
            got = await ask(app, "POST", f"{path}/decision", token=boss, body=body)
            assert (got.status, got.code) == (409, "approval.outdated")
        listed = (await ask(app, "GET", "/v1/approvals?state=pending", token=boss)).data["approvals"]
        assert [bool(one["outdated"]) for one in listed] == [True]
        assert await waiting(harness) != path, "the same call asks anew"
        # The policies are as they were: so is what a yes covers.
        more.unlink()
        await harness.gateway.policy.reload()
        decided = await ask(app, "POST", f"{path}/decision", token=boss, body={"decision": "approve"})
        assert (decided.data["state"], decided.data["outdated"]) == ("approved", "")
        assert (await harness.call("fs.write", WRITE)).state is CallState.SUCCEEDED
        assert (await ask(app, "GET", path, token=boss)).data["outdated"] == "", "it is used up"


@pytest.mark.promise("P-limits", "P-approval-ends")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "http.wrong_shape"),
        ({"decision": "yes"}, "http.wrong_shape"),
        ({"decision": "approve", "scope": "always"}, "http.wrong_shape"),
        ({"decision": "approve", "forever": True}, "http.wrong_shape"),
        ({"decision": "approve", "ttl_seconds": 0}, "http.wrong_shape"),
        ({"decision": "approve", "ttl_seconds": 86_401}, "http.wrong_shape"),
        ({"decision": "approve", "reason": "x" * (MAX_REASON_CHARS + 1)}, "http.wrong_shape"),
        ({"decision": "approve", "scope": "session"}, "approval.scope_incomplete"),
        ({"decision": "approve", "scope": "pattern"}, "approval.scope_incomplete"),
        ({"decision": "approve", "pattern": {"path": "a.txt"}}, "approval.scope_incomplete"),
        ({"decision": "approve", "scope": "pattern", "pattern": {}}, "approval.invalid_pattern"),
        ({"decision": "approve", "scope": "pattern", "pattern": {"path": "b/*"}}, "approval.scope_incomplete"),
        ({"decision": "approve", "as": "root"}, "principal.malformed"),
    ],
)
async def test_decisions_that_are_none_leave_the_request_waiting(
    tmp_path: Path, body: dict[str, Any], code: str
) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        path = await waiting(harness)
        got = await ask(app, "POST", f"{path}/decision", token=boss, body=body)
        assert (got.status, got.code) == (400, code)
        assert (await ask(app, "GET", path, token=boss)).data["state"] == "pending"


async def test_a_yes_lasts_as_long_as_was_said(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        path = await waiting(harness)
        before = (await ask(app, "GET", path, token=boss)).data["expires_at"]
        body = {"decision": "approve", "scope": "timeboxed", "ttl_seconds": 86_400}
        decided = (await ask(app, "POST", f"{path}/decision", token=boss, body=body)).data
        assert decided["expires_at"] > before and "any arguments" in decided["meaning"]


async def test_an_unknown_state_or_id_is_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        for path, status, code in [
            ("/v1/approvals?state=maybe", 400, "http.wrong_shape"),
            ("/v1/approvals/x", 400, "id.malformed"),
            ("/v1/approvals/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404, "approval.unknown"),
        ]:
            got = await ask(app, "GET", path, token=boss)
            assert (got.status, got.code) == (status, code)


async def test_the_life_of_a_token(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        body = {"principal": "agent:new", "label": "test", "ttl_seconds": 60}
        made = await ask(app, "POST", "/v1/tokens", token=boss, body=body)
        assert made.status == 201 and made.data["scopes"] == ["call"] and made.data["expires_at"]
        new = made.data["token"]
        assert (await ask(app, "GET", "/v1/tools", token=new)).status == 200
        listed = await ask(app, "GET", "/v1/tokens", token=boss)
        assert {token["principal"] for token in listed.data["tokens"]} == {"user:operator", "agent:new"}
        assert new.encode() not in listed.body and b"sha256" not in listed.body
        ended = await ask(app, "DELETE", f"/v1/tokens/{made.data['token_id']}", token=boss)
        assert ended.data["revoked_at"]
        assert (await ask(app, "GET", "/v1/tools", token=new)).status == 401


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"principal": "root"},
        {"principal": "agent:x", "scopes": ["admin"]},
        {"principal": "agent:x", "scopes": "call"},
        {"principal": "agent:x", "ttl_seconds": 0},
        {"principal": "agent:x", "label": "x" * 129},
        {"principal": "agent:x", "run_id": "r"},
        {"principal": "agent:x", "secret": "mine"},
    ],
)
async def test_tokens_that_are_not_made(tmp_path: Path, body: dict[str, Any]) -> None:
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        assert (await ask(app, "POST", "/v1/tokens", token=boss, body=body)).status == 400
        assert len((await ask(app, "GET", "/v1/tokens", token=boss)).data["tokens"]) == 1


async def test_status_tells_the_policies_in_force_and_the_head(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        got = await ask(create_app(harness.gateway.service), "GET", "/v1/status", token=await make_token(harness))
        assert set(got.data) == {
            "version", "instance", "policy", "journal", "workspace", "running_calls", "pending_approvals",
            "nodes", "workers", "browser",
        }  # fmt: skip
        assert got.data["policy"]["bundle_digest"] == harness.gateway.policy.bundle_digest
        assert got.data["journal"]["degraded"] is None
