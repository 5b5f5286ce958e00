import pytest

from fakes.gateway_harness import open_harness
from fakes.identity_harness import DeviceKey
from fakes.raw_http import ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.identity.device import DeviceId, DeviceKind
from palyra.server.http.app import create_app


@pytest.fixture
async def harness(tmp_path):
    async with open_harness(tmp_path) as harness:
        yield harness


async def test_there_is_nothing_before_the_first_use(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    shown = await ask(app, "GET", "/v1/identity", token=token)
    assert shown.data == {"trust_domain": "", "authorities": [], "devices": []}
    refused = await ask(app, "POST", "/v1/identity/rotation", token=token, body={})
    assert (refused.status, refused.code) == (404, "identity.no_authority")
    assert not harness.gateway.settings.vault.key_file


async def test_devices_and_authorities_are_shown_and_the_authority_replaced(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    device_id = DeviceId.new()
    issued = await harness.gateway.identity.issue(DeviceKind.NODE, device_id, DeviceKey().csr(), actor="user:operator")
    shown = (await ask(app, "GET", "/v1/identity", token=token)).data
    [device], [authority] = shown["devices"], shown["authorities"]
    assert (device["device_id"], device["kind"], device["state"]) == (str(device_id), "node", "active")
    assert (device["fingerprint"], device["generation"], device["used_generation"]) == (issued.fingerprint, 1, 0)
    assert authority["state"] == "current" and authority["needed_until"] == device["certificate_ends_at"]
    assert shown["trust_domain"] == harness.gateway.identity.trust_domain
    rotated = await ask(app, "POST", "/v1/identity/rotation", token=token, body={})
    assert [one["state"] for one in rotated.data["authorities"]] == ["current", "outgoing"]
    again = await ask(app, "POST", "/v1/identity/rotation", token=token, body={})
    assert (again.status, again.code) == (409, "identity.rotation_running")
    assert "identity.authority_rotated" in [kind for kind, _ in harness.events()]


async def test_it_is_for_operators(harness):
    app = create_app(harness.gateway.service)
    agent = await make_token(harness, "agent:bot")
    odd = await make_token(harness, "agent:bot", TokenScope.OPERATE)
    for method, path in (("GET", "/v1/identity"), ("POST", "/v1/identity/rotation")):
        assert (await ask(app, method, path, token=agent)).code == "token.scope_missing"
        assert (await ask(app, method, path, token=odd)).code == "action.denied"
        assert (await ask(app, method, path)).status == 401


async def test_a_rotation_has_no_choices(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    refused = await ask(app, "POST", "/v1/identity/rotation", token=token, body={"at_once": True})
    assert refused.code == "http.wrong_shape"
