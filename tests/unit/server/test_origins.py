from pathlib import Path

from fakes.gateway_harness import open_harness
from palyra.server.console.pages.approvals import RequestOrigin, find_origins


async def test_a_request_leads_to_the_call_and_the_run_that_asked(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        one = await harness.call("fs.write", {"path": "a.txt", "content": "x"})
        other = await harness.call("fs.write", {"path": "b.txt", "content": "x"}, actor="agent:bot")
        found = find_origins(harness.gateway.store, [str(one.approval_id), str(other.approval_id), "nobody's"])
        assert found == {
            one.approval_id: RequestOrigin(run=one.run_id, call=one.call_id, actor="user:operator"),
            other.approval_id: RequestOrigin(run=other.run_id, call=other.call_id, actor="agent:bot"),
        }
        assert find_origins(harness.gateway.store, []) == {}
