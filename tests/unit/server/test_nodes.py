"""``/v1/nodes`` as an operator meets it, and as nobody else does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.node_state_harness import node_record, request_record
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.server.http.app import create_app

LIGHT = DeviceCapabilityView(name="light.on", input_schema_json='{"type":"object"}', local_mediation=True)


class NodesApi:
    def __init__(self, harness: GatewayHarness, token: str) -> None:
        self.harness, self.token = harness, token
        self.app = create_app(harness.gateway.service)

    async def __call__(self, method: str, path: str = "", body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1/nodes{path}", token=token or self.token, body=body)

    async def put(self, **changes: object) -> str:
        node = node_record(capabilities=(LIGHT,), **changes)
        state = (await self.harness.gateway.nodes.opened()).state
        await state.transact(lambda unit: unit.nodes.put(node))
        return str(node.id)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[NodesApi]:
    async with open_harness(tmp_path) as harness:
        yield NodesApi(harness, await operator(harness))


async def test_devices_are_listed_and_shown_with_their_requests(api: NodesApi) -> None:
    assert (await api("GET")).data == {"nodes": []}
    device = await api.put(name="lap")
    state = (await api.harness.gateway.nodes.opened()).state
    await state.transact(
        lambda unit: [unit.requests.put(request_record(device_id=device, error_code="x.y")) for _ in range(25)]
    )
    (shown,) = (await api("GET")).data["nodes"]
    assert (shown["device_id"], shown["name"], shown["state"]) == (device, "lap", "offline")
    assert shown["capabilities"][0]["input_schema"] == {"type": "object"} and "requests" not in shown
    for name in (device, "lap"):
        one = (await api("GET", f"/{name}")).data
        assert one["device_id"] == device and len(one["requests"]) == 20 and one["requests"][0]["error"] == "x.y"
    assert ((unknown := await api("GET", "/nobody")).status, unknown.code) == (404, "nodes.unknown_device")
    await api.put(name="lap")
    assert (await api("GET", "/lap")).code == "nodes.ambiguous_device"


async def test_a_capability_is_withheld_and_given_back(api: NodesApi) -> None:
    device = await api.put()
    withheld = await api("POST", f"/{device}/withhold", {"capability": "light.on"})
    assert withheld.data["withheld"] == ["light.on"] and withheld.data["capabilities"][0]["withheld"]
    allowed = await api("POST", f"/{device}/allow", {"capability": "light.on"})
    assert allowed.data["withheld"] == []
    kinds = [kind for kind in api.harness.kinds() if kind.startswith("node.")]
    assert kinds == ["node.capability_withheld", "node.capability_allowed"]
    for body, code in (({}, "http.wrong_shape"), ({"capability": "Not A Name"}, "nodes.bad_inventory")):
        assert (await api("POST", f"/{device}/withhold", body)).code == code


async def test_a_device_is_revoked_once_and_for_good(api: NodesApi) -> None:
    from fakes.identity_harness import ACTOR, DeviceKey
    from palyra.identity.device import DeviceId

    device = await api.put()
    identity = api.harness.gateway.identity
    await identity.issue(DeviceKind.NODE, DeviceId(device), DeviceKey().csr(), actor=ACTOR)
    ended = await api("POST", f"/{device}/revoke", {"reason": "lost"})
    assert (ended.data["state"], ended.data["revoked_reason"]) == ("revoked", "lost")
    assert identity.device(DeviceId(device)).state.value == "revoked"
    assert (await api("POST", f"/{device}/revoke", {})).code == "nodes.unknown_device"
    # It is still there to be looked at.
    assert (await api("GET", f"/{device}")).data["revoked_at"]


async def test_nobody_else_sees_or_changes_devices(api: NodesApi) -> None:
    device = await api.put()
    agent = await make_token(api.harness, "agent:bot", TokenScope.CALL)
    operating_agent = await make_token(api.harness, "agent:bot", TokenScope.OPERATE)
    for token, code in ((agent, "token.scope_missing"), (operating_agent, "action.denied"), ("x", None)):
        for method, path, body in (
            ("GET", "", b""),
            ("GET", f"/{device}", b""),
            ("POST", f"/{device}/revoke", {}),
            ("POST", f"/{device}/withhold", {"capability": "light.on"}),
            ("POST", f"/{device}/allow", {"capability": "light.on"}),
        ):
            refused = await api(method, path, body, token=token)
            assert refused.status in (401, 403) and (code is None or refused.code == code), (path, refused.code)
    assert not [kind for kind in api.harness.kinds() if kind.startswith("node.")]
