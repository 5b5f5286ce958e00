"""Class *Approvals and budgets*: an agent hides another's request, asks again after a no, or answers for a person."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.console_user import console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import ask, operator
from palyra.canonical import digest_of
from palyra.client.operations import approvals
from palyra.client.protocol import ClientLimits, Operation, Response
from palyra.ids import ApprovalId
from palyra.limits import MAX_PENDING_APPROVALS_PER_PRINCIPAL
from palyra.pipeline.domain.approval import ApprovalEvent, ApprovalScope
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.approval_tables import MAX_LISTED_APPROVALS, read_approval, request_approval
from palyra.server.http.app import create_app
from palyra.store.port import Transaction


@pytest.mark.promise("P-approval-shown")
async def test_an_answer_without_what_was_shown_is_refused_by_the_console(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        asked = await harness.call("fs.write", {"path": "a*.txt", "content": "x"})
        path = f"/console/v1/approvals/{asked.approval_id}/decision"
        digest = digest_of({"path": "a*.txt", "content": "x"})
        shown = {"decision": "approve", "argument_digest": digest}
        wide = {"scope": "pattern", "pattern": {"path": "**"}}
        said = (await known.post(path.replace("decision", "meaning"), wide)).data["meaning"]
        narrow = {"scope": "pattern", "pattern": {"path": "a\\*.txt"}}
        for body, code in (
            ({"decision": "approve"}, "approval.not_shown"),
            ({**shown, "argument_digest": "0" * 64}, "approval.changed_call"),
            ({**shown, **wide}, "approval.not_shown"),
            ({**shown, **narrow, "meaning": said}, "approval.not_shown"),
            ({**shown, "scope": "timeboxed", "meaning": said}, "approval.not_shown"),
        ):
            got = await known.post(path, body)
            assert (got.status, got.document["code"]) == (409, code), body
        assert (await known.post(path, {**shown, **wide, "meaning": said})).status == 200
        assert harness.kinds().count("approval.approved") == 1


@pytest.mark.promise("P-approval-shown")
async def test_sixty_four_requests_of_one_agent_hide_no_other(tmp_path: Path) -> None:
    """Those of the loud one are older and newer than the one of the other."""
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        most = MAX_PENDING_APPROVALS_PER_PRINCIPAL
        loud = [await write(harness, "agent:loud", f"{number}.txt") for number in range(most // 2)]
        quiet = await write(harness, "agent:quiet", "quiet.txt")
        loud += [await write(harness, "agent:loud", f"{number}.txt") for number in range(most // 2, most)]
        page = await known.page("/approvals")
        assert f"everybody's {most + 1}" in page and f"agent:loud {most}" in page and "agent:quiet 1" in page
        cards = re.findall(r'class="card request" data-key="(\w+)"', page)
        assert cards == [*loud[:3], quiet]
        assert f"{most - 3} more of agent:loud" in page
        first = await known.page("/approvals?who=agent:loud")
        assert re.findall(r'class="card request" data-key="(\w+)"', first) == loud[:50]
        (rest,) = re.findall(r'rel="next" href="([^"]+)"', first)
        second = await known.page(rest.replace("&amp;", "&"))
        assert re.findall(r'class="card request" data-key="(\w+)"', second) == loud[50:]
        overview = await known.page("/")
        assert f'href="/approvals/{quiet}"' in overview and f'href="/approvals/{loud[0]}"' in overview
        listed = (await known.data("/console/v1/approvals?state=pending"))["approvals"]
        assert [one["id"] for one in listed] == [*loud[: most // 2], quiet, *loud[most // 2 : 49]]


@pytest.mark.promise("P-approval-shown")
async def test_all_that_waits_is_listed_oldest_first_over_all_pages(tmp_path: Path) -> None:
    """By the API page after page, and by the client in one list. The command line lists what the client does."""
    async with open_harness(tmp_path) as harness:
        first = await write(harness, "agent:first", "a.txt")
        known = read_approval(harness.gateway.store, first)
        flood = [
            msgspec.structs.replace(
                known,
                id=str(ApprovalId.new()),
                binding=msgspec.structs.replace(known.binding, principal=f"agent:n{number % 9}"),
            )
            for number in range(MAX_LISTED_APPROVALS + 9)
        ]

        def ask_all(tx: Transaction) -> None:
            for each in flood:
                request_approval(tx, each, actor="test", run="", call="")

        await harness.gateway.store.transact(ask_all)
        last = await write(harness, "agent:last", "a.txt")
        token = await operator(harness)
        wanted = [first, *sorted(each.id for each in flood), last]
        app = create_app(harness.gateway.service)
        page = (await ask(app, "GET", "/v1/approvals?state=pending", token=token)).data
        rest = (await ask(app, "GET", f"/v1/approvals?state=pending&after={page['next']}", token=token)).data
        assert [one["id"] for one in (*page["approvals"], *rest["approvals"])] == wanted and rest["next"] is None
        newest = (await ask(app, "GET", "/v1/approvals", token=token)).data
        assert newest["approvals"][0]["id"] == last and newest["next"] == newest["approvals"][-1]["id"]
        listed = await drive(approvals(), app, token)
        assert [one.id for one in listed] == wanted


@pytest.mark.promise("P-approval-shown")
async def test_giant_requests_of_one_agent_do_not_break_the_list(tmp_path: Path) -> None:
    """Sixty-four of 60 KiB are more than a client reads at once, most of all when each character is an escape."""
    async with open_harness(tmp_path) as harness:
        for number in range(MAX_PENDING_APPROVALS_PER_PRINCIPAL):
            giant = {"path": f"{number}.txt", "content": "\x01" * 10_000}
            assert (await harness.call("fs.write", giant, principal="agent:loud")).state is CallState.NEEDS_APPROVAL
        last = await write(harness, "agent:quiet", "a.txt")
        token, app = await operator(harness), create_app(harness.gateway.service)
        listed = await drive(approvals(), app, token)
        assert len(listed) == MAX_PENDING_APPROVALS_PER_PRINCIPAL + 1 and listed[-1].id == last


async def drive(operation: Operation[Any], app: Any, token: str) -> Any:
    """Send what the operation asks for to the app, as a client does."""
    request = next(operation)
    while True:
        got = await ask(app, request.method, request.path, token=token)
        assert len(got.body) <= ClientLimits().max_response_bytes
        try:
            request = operation.send(Response(status=got.status, headers=(), body=got.body))
        except StopIteration as done:
            return done.value


async def write(harness: GatewayHarness, principal: str, path: str) -> str:
    asked = await harness.call("fs.write", {"path": path, "content": "x"}, principal=principal)
    assert asked.state is CallState.NEEDS_APPROVAL and asked.approval_id is not None
    return asked.approval_id


@pytest.mark.promise("P-approval-answer")
async def test_who_was_told_no_is_not_asked_the_same_again_at_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        no = await write(harness, "agent:bot", "a.txt")
        await harness.decide(no, ApprovalEvent.DENY, "user:alice", reason="never")
        for session in ("", "another"):
            again = await harness.call("fs.write", {"path": "a.txt", "content": "x"}, session=session)
            assert again.state is CallState.DENIED and again.error is not None
            assert again.error["code"] == "approval.denied_before" and "never" in again.error["message"]
            assert "denied_again_seconds" in again.error["hint"]
        assert harness.kinds().count("approval.requested") == 1 and harness.kinds().count("call.refused") == 2
        # Another call, and another's call, are other questions.
        await write(harness, "agent:bot", "b.txt")
        await write(harness, "agent:other", "a.txt")
        # A person may still allow it: an approval that covers the call comes before the no.
        wide = await write(harness, "agent:bot", "c.txt")
        await harness.approve(wide, scope=ApprovalScope.TIMEBOXED)
        assert (await harness.call("fs.write", {"path": "a.txt", "content": "x"})).state is CallState.SUCCEEDED


async def test_the_time_of_a_no_can_be_turned_off(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"denied_again_seconds": 0}}) as harness:
        no = await write(harness, "agent:bot", "a.txt")
        await harness.decide(no, ApprovalEvent.DENY, "user:alice")
        assert await write(harness, "agent:bot", "a.txt") != no
