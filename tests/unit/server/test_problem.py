"""Refusals as documents, and as pages."""

from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import ConsoleUser, console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.ids import CallId
from palyra.server.console.pages import calls

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


@pytest.mark.promise("P-console-guarded")
async def test_a_refused_action_is_on_record_too_and_is_a_problem(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        own = await known.post(await waiting(harness, principal="user:operator"), {"decision": "deny"})
        assert (own.status, own.document["code"]) == (403, "approval.self")
        (failed,) = [payload for kind, payload in harness.events() if kind == "console.action_failed"]
        assert failed["error"]["code"] == "approval.self"


async def test_an_unknown_page_is_a_page_and_an_unknown_document_a_problem(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        page = await known.get("/approvals/nonsense")
        assert page.status == 400 and b"id.malformed" in page.body and b"<html" in page.body
        assert (await known.get("/console/v1/nothing", accept="*/*")).document["code"] == "console.no_such_page"
        got = await known.send("PUT", "/console/v1/session", {})
        assert (got.status, got.document["code"]) == (405, "http.method_refused")


async def test_what_is_not_there_is_no_failure_and_a_fault_of_ours_promises_no_call_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        missing = await known.get(f"/calls/{CallId.new()}")
        assert missing.status == 404 and b"<h1>Not there</h1>" in missing.body
        monkeypatch.setattr(calls, "read_call", lambda *_: 1 / 0)
        broken = await known.get(f"/calls/{CallId.new()}")
        assert broken.status == 500 and b"That did not work" in broken.body
        assert b"log has the details" in broken.body and b"call id" not in broken.body


async def test_a_page_that_asks_by_itself_for_what_is_no_more_is_told_so_without_an_error(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        missing = await known.get(f"/calls/{CallId.new()}", palyra_live="1")
        assert (missing.status, missing.body) == (204, b"")
        assert (await known.get("/calls?state=odd", palyra_live="1")).status == 400
        stranger = ConsoleUser(harness)
        assert (await stranger.get(f"/calls/{CallId.new()}", palyra_live="1")).status == 303


async def test_queries_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        for path in ("/calls?state=odd", "/approvals?state=pending", "/calls?before=x", f"/calls?text={'x' * 300}"):
            assert (await known.get(path)).status == 400, path
