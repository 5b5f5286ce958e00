"""The endpoints of pairing: the request each makes and what its answer becomes."""

from palyra.client.protocol import (
    BadAnswer,
    Operation,
    Request,
    convert_view,
    convert_views,
    get,
    path_of,
    read_answer,
    send_json,
)
from palyra.client.views import NewPairingCode, PairingCodeView, PairingView
from palyra.secret import Secret


def create_pairing_code(
    method: str = "pin", kind: str = "node", *, ttl_seconds: int | None = None
) -> Operation[NewPairingCode]:
    """A code for one new device, shown this once. The daemon listens for devices from then on."""
    body = {"method": method, "kind": kind, "ttl_seconds": ttl_seconds}
    response = yield send_json("POST", path_of("v1", "pairing", "codes"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("code"), str):
        raise BadAnswer("the server made a code and did not show it")
    shown = {name: value for name, value in data.items() if name != "code"}
    return NewPairingCode(view=convert_view(shown, PairingCodeView), code=Secret(data["code"]))


def pairing_codes() -> Operation[tuple[PairingCodeView, ...]]:
    """The codes in force, without the codes themselves."""
    response = yield get(path_of("v1", "pairing", "codes"))
    return convert_views(read_answer(response), "codes", PairingCodeView)


def withdraw_pairing_code(code_id: str) -> Operation[PairingCodeView]:
    response = yield Request(method="DELETE", path=path_of("v1", "pairing", "codes", code_id))
    return convert_view(read_answer(response), PairingCodeView)


def pairings(state: str | None = "pending_approval") -> Operation[tuple[PairingView, ...]]:
    """The requests to pair in one state, the newest first, or all with ``state=None``."""
    response = yield get(path_of("v1", "pairing", "requests", query={"state": state}))
    return convert_views(read_answer(response), "pairings", PairingView)


def pairing(pairing_id: str) -> Operation[PairingView]:
    response = yield get(path_of("v1", "pairing", "requests", pairing_id))
    return convert_view(read_answer(response), PairingView)


def approve_pairing(
    pairing_id: str, *, comparison_code: str | None = None, reason: str | None = None
) -> Operation[PairingView]:
    """Lets a device join. With ``comparison_code``, as the device shows it, only the device that shows it."""
    body = {"decision": "approve", "comparison_code": comparison_code, "reason": reason}
    response = yield send_json("POST", path_of("v1", "pairing", "requests", pairing_id, "decision"), body)
    return convert_view(read_answer(response), PairingView)


def reject_pairing(pairing_id: str, *, reason: str | None = None) -> Operation[PairingView]:
    body = {"decision": "reject", "reason": reason}
    response = yield send_json("POST", path_of("v1", "pairing", "requests", pairing_id, "decision"), body)
    return convert_view(read_answer(response), PairingView)
