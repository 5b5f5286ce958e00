"""What a person does: on record before and after, and once under one key."""

from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import console_user
from fakes.gateway_harness import GatewayHarness, open_harness

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


@pytest.mark.promise("P-console-guarded")
async def test_a_decision_is_on_record_before_and_after(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        got = await known.post(await waiting(harness), {"decision": "deny", "reason": "no"})
        assert (got.status, got.data["state"], got.data["decided_by"]) == (200, "denied", "user:operator")
        kinds = harness.kinds()
        at = kinds.index("console.action_requested")
        assert kinds[at : at + 3] == ["console.action_requested", "approval.denied", "console.action_done"]
        (asked,) = [payload for kind, payload in harness.events() if kind == "console.action_requested"]
        assert asked["action"] == "approval.decide" and asked["arguments"] == {"decision": "deny", "reason": "no"}


@pytest.mark.promise("P-console-guarded")
async def test_the_same_key_is_the_same_action(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        path = await waiting(harness)
        yes = await known.yes_to(path)
        first = await known.post(path, yes, idempotency_key="k1")
        again = await known.post(path, yes, idempotency_key="k1")
        assert (first.status, again.status) == (200, 200) and first.body == again.body
        assert again.headers["idempotent-replayed"] == "true"
        assert harness.kinds().count("console.action_requested") == 1
        other = await known.post(path, {"decision": "deny"}, idempotency_key="k1")
        assert (other.status, other.document["code"]) == (422, "console.key_reused")
        failed = await known.post(path, {"decision": "deny"}, idempotency_key="k2")
        again = await known.post(path, {"decision": "deny"}, idempotency_key="k2")
        assert failed.document == again.document and failed.document["code"] == "approval.already_decided"
        for bad in (" ", "x" * 129):
            got = await known.post(path, {"decision": "deny"}, idempotency_key=bad)
            assert got.document["code"] == "console.bad_idempotency_key"
