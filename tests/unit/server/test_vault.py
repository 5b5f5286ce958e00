import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.server.http.app import create_app
from palyra.server.http.operator import secret_view
from palyra.vault.limits import MAX_VALUE_BYTES


class Desk:
    def __init__(self, harness: GatewayHarness, token: str) -> None:
        self.harness, self.token = harness, token
        self.app = create_app(harness.gateway.service)

    async def __call__(self, method: str, path: str, body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1/vault/{path}", token=token or self.token, body=body)


@pytest.fixture
async def desk(tmp_path):
    async with open_harness(tmp_path) as harness:
        yield Desk(harness, await operator(harness))


async def test_a_secret_goes_in_is_listed_and_goes(desk):
    made = await desk("PUT", "secrets/global/k", {"value": "one"})
    assert made.status == 201 and "value" not in made.data
    assert (made.data["ref"], made.data["version"], made.data["updated_by"]) == ("global/k", 1, "user:operator")
    await desk("PUT", "secrets/principal:user:team/ann/k", {"value": "two"})
    listed = await desk("GET", "secrets")
    assert [one["ref"] for one in listed.data["secrets"]] == ["global/k", "principal:user:team/ann/k"]
    assert listed.data["next"] is None and listed.data["vault"]["secrets"] == 2
    assert [one["key"] for one in (await desk("GET", "secrets?scope=global")).data["secrets"]] == ["k"]
    gone = await desk("DELETE", "secrets/global/k")
    assert (gone.status, gone.data["version"]) == (200, 1)
    assert (await desk("DELETE", "secrets/global/k")).code == "vault.unknown_secret"


async def test_a_long_list_comes_in_pages(desk, monkeypatch):
    monkeypatch.setattr("palyra.server.http.operator.MAX_LISTED", 2)
    for name in "abc":
        await desk("PUT", f"secrets/global/{name}", {"value": "x"})
    first = await desk("GET", "secrets")
    assert first.data["next"] == "global/b"
    second = await desk("GET", "secrets?after=global/b")
    assert ([one["key"] for one in second.data["secrets"]], second.data["next"]) == (["c"], None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "http.wrong_shape"),
        ({"value": 7}, "http.wrong_shape"),
        ({"value": "x", "more": 1}, "http.wrong_shape"),
        ({"value": ""}, "vault.bad_value"),
        ({"value": "x" * (MAX_VALUE_BYTES + 1)}, "vault.value_too_large"),
    ],
)
async def test_what_is_no_value_is_refused(desk, body, code):
    assert (await desk("PUT", "secrets/global/k", body)).code == code


async def test_rotation_answers_with_its_report(desk):
    assert (await desk("POST", "rotate", {})).code == "vault.unknown_secret"
    await desk("PUT", "secrets/global/k", {"value": "x"})
    report = await desk("POST", "rotate", {})
    assert (report.data["rewrapped"], report.data["resumed"], report.data["key_source"]) == (1, False, "file")
    assert (await desk("POST", "rotate", {"to": "moon"})).code == "http.wrong_shape"
    assert (await desk("POST", "rotate", {"to": "environment"})).code == "vault.key_missing"


async def test_the_scope_comes_before_anything_else(desk):
    agent = await make_token(desk.harness, "agent:bot")
    assert (await desk("PUT", "secrets/global/k", b"not json", token=agent)).code == "token.scope_missing"
    odd = await make_token(desk.harness, "agent:bot", TokenScope.OPERATE)
    assert (await desk("PUT", "secrets/global/k", b"not json", token=odd)).code == "action.denied"


async def test_a_policy_may_let_others_manage_one_scope(desk, tmp_path):
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("lead") permit(principal == User::"lead", action == Action::"vault.manage", resource is Secret)\n'
        'when { resource.scope == "channel:mcp" };\n'
    )
    await desk.harness.gateway.policy.reload()
    lead = await make_token(desk.harness, "user:lead", TokenScope.OPERATE)
    assert (await desk("PUT", "secrets/channel:mcp/k", {"value": "x"}, token=lead)).status == 201
    assert (await desk("PUT", "secrets/global/k", {"value": "x"}, token=lead)).code == "action.denied"
    assert (await desk("GET", "secrets", token=lead)).code == "action.denied"


async def test_reveal_needs_a_version_that_exists(desk, tmp_path):
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("see") permit(principal, action == Action::"vault.reveal", resource);\n'
    )
    await desk.harness.gateway.policy.reload()
    for value in ("one", "two"):
        await desk("PUT", "secrets/global/k", {"value": value})
    body = {"ref": "global/k", "confirm": "global/k"}
    assert (await desk("POST", "reveal", body)).data["value"] == "two"
    assert (await desk("POST", "reveal", {**body, "version": 1})).data["value"] == "one"
    assert (await desk("POST", "reveal", {**body, "version": 3})).code == "vault.unknown_version"
    assert (await desk("POST", "reveal", {**body, "version": 0})).code == "http.wrong_shape"


async def test_a_view_has_no_place_for_a_value(desk):
    await desk("PUT", "secrets/global/k", {"value": "x"})
    (info,) = desk.harness.gateway.vault.list()
    assert set(secret_view(info)) == {
        "ref", "scope", "key", "version", "oldest_version", "created_at", "updated_at", "updated_by"
    }  # fmt: skip
