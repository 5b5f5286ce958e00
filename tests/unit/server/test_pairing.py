import pytest

from fakes.gateway_harness import open_harness
from fakes.pairing_harness import Device
from fakes.raw_http import ask, make_token, operator
from palyra.devicelink.pairing.code import ServerAddress, parse_code
from palyra.identity.api_tokens import TokenScope
from palyra.server.http.app import create_app

ROUTES = (
    ("POST", "/v1/pairing/codes"),
    ("GET", "/v1/pairing/codes"),
    ("DELETE", "/v1/pairing/codes/x"),
    ("GET", "/v1/pairing/requests"),
    ("GET", "/v1/pairing/requests/x"),
    ("POST", "/v1/pairing/requests/x/decision"),
)


@pytest.fixture
async def harness(tmp_path):
    async with open_harness(tmp_path) as harness:
        yield harness


async def paired(app, token, **body):
    made = await ask(app, "POST", "/v1/pairing/codes", token=token, body=body)
    assert made.status == 201
    code = parse_code(made.data["code"])
    device = Device(ServerAddress.parse(made.data["addresses"][0]))
    return made.data, device, await device.prove(code)


async def test_a_code_is_made_shown_once_listed_and_taken_back(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    made = (await ask(app, "POST", "/v1/pairing/codes", token=token, body={"method": "qr", "ttl_seconds": 60})).data
    assert made["code"].startswith("palyra://pair?") and made["guesses_left"] == 5
    (listed,) = (await ask(app, "GET", "/v1/pairing/codes", token=token)).data["codes"]
    assert listed["id"] == made["id"] and "code" not in listed
    gone = await ask(app, "DELETE", f"/v1/pairing/codes/{made['id']}", token=token)
    assert gone.data["state"] == "withdrawn"
    assert (await ask(app, "GET", "/v1/pairing/codes", token=token)).data["codes"] == []
    again = await ask(app, "DELETE", f"/v1/pairing/codes/{made['id']}", token=token)
    assert (again.status, again.code) == (404, "pairing.unknown_code")


async def test_a_request_is_seen_compared_and_approved(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    _, device, proved = await paired(app, token)
    (seen,) = (await ask(app, "GET", "/v1/pairing/requests?state=pending_approval", token=token)).data["pairings"]
    assert (seen["id"], seen["comparison_code"], seen["name"]) == (
        proved.pairing_id,
        proved.comparison_code,
        "a laptop",
    )
    path = f"/v1/pairing/requests/{seen['id']}"
    wrong = await ask(
        app, "POST", f"{path}/decision", token=token, body={"decision": "approve", "comparison_code": "x"}
    )
    assert (wrong.status, wrong.code) == (409, "pairing.wrong_comparison_code")
    body = {"decision": "approve", "comparison_code": proved.comparison_code}
    assert (await ask(app, "POST", f"{path}/decision", token=token, body=body)).data["state"] == "approved"
    assert (await device.ask(proved, wait_ms=30_000)).state == "completed"
    shown = (await ask(app, "GET", path, token=token)).data
    assert (shown["state"], shown["decided_by"]) == ("completed", "user:operator")
    late = await ask(app, "POST", f"{path}/decision", token=token, body={"decision": "reject"})
    assert (late.status, late.code) == (409, "pairing.already_decided")


async def test_pairing_is_for_operators(harness):
    app = create_app(harness.gateway.service)
    agent = await make_token(harness, "agent:bot")
    odd = await make_token(harness, "agent:bot", TokenScope.OPERATE)
    for method, path in ROUTES:
        body = {"body": {}} if method == "POST" else {}
        assert (await ask(app, method, path, token=agent, **body)).code == "token.scope_missing"
        assert (await ask(app, method, path, token=odd, **body)).code == "action.denied"
        assert (await ask(app, method, path, **body)).status == 401


async def test_a_policy_may_let_somebody_pair_one_kind_only(harness, tmp_path):
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("no-workers")\nforbid (principal, action == Action::"device.pair", resource)\n'
        'when { context.kind == "worker" };\n'
    )
    await harness.gateway.policy.reload()
    app, token = create_app(harness.gateway.service), await operator(harness)
    assert (await ask(app, "POST", "/v1/pairing/codes", token=token, body={})).status == 201
    refused = await ask(app, "POST", "/v1/pairing/codes", token=token, body={"kind": "worker"})
    assert (refused.status, refused.code) == (403, "action.denied")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/pairing/codes", {"method": "song"}),
        ("/v1/pairing/codes", {"kind": "toaster"}),
        ("/v1/pairing/codes", {"more": 1}),
        ("/v1/pairing/codes", {"ttl_seconds": "long"}),
    ],
)
async def test_odd_bodies_are_refused(harness, path, body):
    app, token = create_app(harness.gateway.service), await operator(harness)
    assert (await ask(app, "POST", path, token=token, body=body)).code == "http.wrong_shape"


async def test_odd_states_lives_and_ids_are_refused(harness):
    app, token = create_app(harness.gateway.service), await operator(harness)
    assert (await ask(app, "GET", "/v1/pairing/requests?state=odd", token=token)).code == "http.wrong_shape"
    short = await ask(app, "POST", "/v1/pairing/codes", token=token, body={"ttl_seconds": 1})
    assert short.code == "pairing.bad_ttl"
    decision = await ask(app, "POST", "/v1/pairing/requests/x/decision", token=token, body={"decision": "approve"})
    assert (decision.status, decision.code) == (404, "pairing.unknown_request")
