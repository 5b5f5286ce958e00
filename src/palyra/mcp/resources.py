"""What a client may read: the timeline of a run, a call, and the parts of it, as JSON documents."""

from collections.abc import Iterable
from typing import Any

import msgspec

from palyra.clock import rfc3339
from palyra.mcp.limits import MAX_TIMELINE_CALLS
from palyra.mcp.ports import Desk, Visitor
from palyra.mcp.resource_uri import (
    CALL_TEMPLATE,
    PART_TEMPLATE,
    RUN_TEMPLATE,
    RunAddress,
    parse_resource,
    uri_of_call,
    uri_of_run,
)
from palyra.tools.record import CallRecord

_JSON = "application/json"
_encode = msgspec.json.Encoder(order="deterministic").encode


def resource_templates() -> list[dict[str, Any]]:
    return [
        {
            "uriTemplate": RUN_TEMPLATE,
            "name": "run",
            "title": "Timeline of a run",
            "description": "Every call of a run of yours, the newest first: tool, decision, how it ended.",
            "mimeType": _JSON,
        },
        {
            "uriTemplate": CALL_TEMPLATE,
            "name": "call",
            "title": "One call",
            "description": "A call of yours as it was recorded, with its decision, receipt and attestation.",
            "mimeType": _JSON,
        },
        {
            "uriTemplate": PART_TEMPLATE,
            "name": "call-part",
            "title": "What a call left",
            "description": "The result, receipt (what was enforced) or attestation (the signed statement) of a call.",
            "mimeType": _JSON,
        },
    ]


def listed_resources(run_id: str, calls: Iterable[CallRecord]) -> list[dict[str, Any]]:
    """The session's own run, and its newest calls."""
    found = [{"uri": uri_of_run(run_id), "name": f"run {run_id}", "title": "This session's run", "mimeType": _JSON}]
    found += [
        {
            "uri": uri_of_call(call.call_id),
            "name": f"call {call.call_id}",
            "title": f"{call.tool} {call.state.value}",
            "mimeType": _JSON,
        }
        for call in calls
    ]
    return found


def timeline(run_id: str, calls: list[CallRecord]) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "calls": [
            {
                "call": uri_of_call(call.call_id),
                "tool": call.tool,
                "status": call.state.value,
                "created_at": rfc3339(call.created_ms),
                "ended_at": None if call.ended_ms is None else rfc3339(call.ended_ms),
                "outcome": (call.decision or {}).get("outcome"),
                "policies": (call.decision or {}).get("policies", []),
                "approval_id": call.approval_id,
                "error": (call.error or {}).get("code"),
            }
            for call in calls
        ],
        "complete": len(calls) < MAX_TIMELINE_CALLS,
    }


async def read_contents(desk: Desk, visitor: Visitor, uri: str) -> str:
    address = parse_resource(uri)
    if isinstance(address, RunAddress):
        calls = await desk.calls_of_run(visitor, address.run_id, MAX_TIMELINE_CALLS)
        return _encode(timeline(str(address.run_id), calls)).decode()
    view = (await desk.call_record(visitor, address.call_id)).view()
    return _encode(view if address.part is None else view[address.part.value]).decode()
