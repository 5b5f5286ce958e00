"""The endpoints for paired devices."""

from palyra.client.protocol import Operation, convert_view, convert_views, get, path_of, read_answer, send_json
from palyra.client.views import NodeView


def nodes() -> Operation[tuple[NodeView, ...]]:
    """Every device that was ever paired, revoked ones included."""
    response = yield get(path_of("v1", "nodes"))
    return convert_views(read_answer(response), "nodes", NodeView)


def node(device: str) -> Operation[NodeView]:
    """One device, by id or name, with its newest requests."""
    response = yield get(path_of("v1", "nodes", device))
    return convert_view(read_answer(response), NodeView)


def revoke_node(device: str, *, reason: str | None = None) -> Operation[NodeView]:
    """Ends a device's access at once: its streams are cut and its certificates are void."""
    response = yield send_json("POST", path_of("v1", "nodes", device, "revoke"), {"reason": reason})
    return convert_view(read_answer(response), NodeView)


def withhold_capability(device: str, capability: str) -> Operation[NodeView]:
    """Nobody gets this of the device any more, whatever it reports when it registers again."""
    response = yield send_json("POST", path_of("v1", "nodes", device, "withhold"), {"capability": capability})
    return convert_view(read_answer(response), NodeView)


def allow_capability(device: str, capability: str) -> Operation[NodeView]:
    response = yield send_json("POST", path_of("v1", "nodes", device, "allow"), {"capability": capability})
    return convert_view(read_answer(response), NodeView)
