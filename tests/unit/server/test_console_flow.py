"""Login, visit, roles, writes, problems and the application around them, in one process."""

from pathlib import Path
from typing import Any

from fakes.console_user import console_user
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.server.console.app import CONTENT_POLICY

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


async def test_every_answer_has_the_headers_that_keep_others_out(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        for path in ("/", "/login", "/nothing", "/console/v1/approvals", "/static/x/app.js"):
            headers = (await known.get(path)).headers
            assert headers["content-security-policy"] == CONTENT_POLICY, path
            assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
        page = await known.page("/")
        assert "<script>" not in page and " style=" not in page and " onclick=" not in page
