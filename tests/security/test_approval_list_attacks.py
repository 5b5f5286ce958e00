"""Class *Approvals and budgets*: an agent hides another's request, asks again after a no, or answers for a person."""

import re
from pathlib import Path

import pytest

from fakes.console_user import console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.canonical import digest_of
from palyra.limits import MAX_PENDING_APPROVALS_PER_PRINCIPAL
from palyra.pipeline.domain.approval import ApprovalEvent, ApprovalScope
from palyra.pipeline.domain.call import CallState


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
