"""The resources that a client may read: the timeline of a run, a call, and the parts of a call, as JSON."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.clock import rfc3339
from palyra.errors import InvalidInput
from palyra.executors.mcp_upstream.limits import MAX_TIMELINE_CALLS
from palyra.ids import CallId, RunId
from palyra.pipeline.domain.call import CallRecord
from palyra.server.mcp.backend import McpBackend, McpCaller

SCHEME: Final = "palyra://"
RUN_TEMPLATE: Final = "palyra://runs/{run_id}"
CALL_TEMPLATE: Final = "palyra://calls/{call_id}"
PART_TEMPLATE: Final = "palyra://calls/{call_id}/{part}"


class UnknownResource(InvalidInput):
    code = "mcp.unknown_resource"
    hint = f"there are {RUN_TEMPLATE}, {CALL_TEMPLATE} and {PART_TEMPLATE} with result, receipt or attestation"
    http_status = 404


class CallPart(StrEnum):
    RESULT = "result"
    RECEIPT = "receipt"
    ATTESTATION = "attestation"


class RunAddress(msgspec.Struct, frozen=True):
    run_id: RunId


class CallAddress(msgspec.Struct, frozen=True):
    call_id: CallId
    part: CallPart | None = None


def parse_resource(uri: str) -> RunAddress | CallAddress:
    match uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else ():
        case ["runs", raw]:
            return RunAddress(RunId.parse(raw))
        case ["calls", raw]:
            return CallAddress(CallId.parse(raw))
        case ["calls", raw, part] if part in set(CallPart):
            return CallAddress(CallId.parse(raw), CallPart(part))
    raise UnknownResource(f"there is no resource {uri[:200]!r}")


def uri_of_run(run_id: str) -> str:
    return f"{SCHEME}runs/{run_id}"


def uri_of_call(call_id: str) -> str:
    return f"{SCHEME}calls/{call_id}"


# The protocol allows no more in one answer.
MAX_SUGGESTIONS: Final = 100
_OWN: Final = {RUN_TEMPLATE: {"run_id"}, CALL_TEMPLATE: {"call_id"}, PART_TEMPLATE: {"call_id", "part"}}


class NothingToComplete(InvalidInput):
    code = "mcp.nothing_to_complete"
    hint = "prompts/list and resources/templates/list tell what has arguments, and which"


def is_own(template: str) -> bool:
    return template in _OWN


def suggestions(template: str, argument: str, begun: str, *, run_id: str, call_ids: Iterable[str]) -> list[str]:
    """Return the session's values for a variable of Palyra's own templates that begin with ``begun``."""
    if argument not in _OWN[template]:
        raise NothingToComplete(f"{template} has no variable {argument[:64]!r}")
    known = {"run_id": (run_id,), "call_id": tuple(call_ids), "part": tuple(part.value for part in CallPart)}
    return [each for each in known[argument] if each.startswith(begun)][:MAX_SUGGESTIONS]


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


def list_resources(run_id: str, calls: Iterable[CallRecord]) -> list[dict[str, Any]]:
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


async def read_contents(backend: McpBackend, caller: McpCaller, uri: str) -> str:
    address = parse_resource(uri)
    if isinstance(address, RunAddress):
        calls = await backend.calls_of_run(caller, address.run_id, MAX_TIMELINE_CALLS)
        return _encode(timeline(str(address.run_id), calls)).decode()
    view = (await backend.call_record(caller, address.call_id)).view()
    return _encode(view if address.part is None else view[address.part.value]).decode()
