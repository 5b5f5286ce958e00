"""The addresses of what a client may read: runs, calls, and the parts of a call."""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import InvalidInput
from palyra.ids import CallId, RunId

SCHEME: Final = "palyra://"
RUN_TEMPLATE: Final = "palyra://runs/{run_id}"
CALL_TEMPLATE: Final = "palyra://calls/{call_id}"
PART_TEMPLATE: Final = "palyra://calls/{call_id}/{part}"


class UnknownResource(InvalidInput):
    code = "mcp.unknown_resource"
    hint = f"there are {RUN_TEMPLATE}, {CALL_TEMPLATE} and {PART_TEMPLATE} with result, receipt or attestation"
    http_status = 404


class CallPart(StrEnum):
    """What a call left behind that is worth keeping by itself."""

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
