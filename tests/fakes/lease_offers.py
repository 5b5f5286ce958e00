"""Offers as a worker gets them."""

from palyra.fleet.agent.lease import LeaseOffer
from palyra.fleet.domain.workspace_scope import WorkerWorkspaceScope

OFFER = LeaseOffer(
    lease_id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
    fence=1,
    run_id="r",
    call_id="c",
    principal="agent:a",
    tool="echo",
    arguments={"text": "hi"},
    argument_digest="e7b995efa755c5ff3b84d2188b58cb4ae916a59470eb3761df8a814f11763500",
    scope=WorkerWorkspaceScope.parse("/srv/work", ("src",)),
    nonce="0" * 64,
    timeout_ms=60_000,
    max_output_bytes=1000,
)
