"""Tokens on the console."""

from pathlib import Path

import pytest

from fakes.console_user import console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.store.event import Event, NewEvent

SETTINGS = {"skills": {"builder_enabled": True}}


async def record(harness: GatewayHarness, kind: str, **payload: object) -> Event:
    event: Event = await harness.gateway.store.transact(
        lambda tx: tx.append(NewEvent(kind=kind, actor="test", principal="agent:bot", payload=dict(payload)))
    )
    return event


@pytest.mark.promise("P-console-guarded")
async def test_tokens_are_made_and_ended_by_admins(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        body = {"principal": "agent:coder", "label": "of the console", "ttl_seconds": 60}
        made = (await known.post("/console/v1/tokens", body, idempotency_key="k")).data
        assert made["message"].startswith("plr_")
        page = await known.page("/access")
        assert "agent:coder" in page and made["message"] not in page
        kept = harness.gateway.store.read("SELECT CAST(answer AS TEXT) FROM console_requests")
        assert made["message"] not in str(kept)
        gone = await known.post(f"/console/v1/tokens/{made['token_id']}/revoke")
        assert gone.data["revoked_at"] is not None
        assert "1 more have expired or were revoked" in await known.page("/access")
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("no-admins")\nforbid (principal, action == Action::"console.administer", resource);\n'
        )
        await harness.gateway.policy.reload()
        refused = await known.post("/console/v1/tokens", body)
        assert (refused.status, refused.document["code"]) == (403, "console.role_missing")
        assert "New token" not in await known.page("/access")
