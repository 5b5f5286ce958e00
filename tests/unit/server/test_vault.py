import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.server.http.app import create_app
from palyra.server.http.operator import secret_view
from palyra.vault.limits import MAX_VALUE_BYTES


class VaultApi:
    def __init__(self, harness: GatewayHarness, token: str) -> None:
        self.harness, self.token = harness, token
        self.app = create_app(harness.gateway.service)

    async def __call__(self, method: str, path: str, body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1/vault/{path}", token=token or self.token, body=body)


@pytest.fixture
async def api(tmp_path):
    async with open_harness(tmp_path) as harness:
        yield VaultApi(harness, await operator(harness))


async def test_a_secret_goes_in_is_listed_and_goes(api):
    made = await api("PUT", "secrets/global/k", {"value": "one"})
    assert made.status == 201 and "value" not in made.data
    assert (made.data["ref"], made.data["version"], made.data["updated_by"]) == ("global/k", 1, "user:operator")
    await api("PUT", "secrets/principal:user:team/ann/k", {"value": "two"})
    listed = await api("GET", "secrets")
    assert [one["ref"] for one in listed.data["secrets"]] == ["global/k", "principal:user:team/ann/k"]
    assert listed.data["next"] is None and listed.data["vault"]["secrets"] == 2
    assert [one["key"] for one in (await api("GET", "secrets?scope=global")).data["secrets"]] == ["k"]
    gone = await api("DELETE", "secrets/global/k")
    assert (gone.status, gone.data["version"]) == (200, 1)
    assert (await api("DELETE", "secrets/global/k")).code == "vault.unknown_secret"


async def test_a_long_list_comes_in_pages(api, monkeypatch):
    monkeypatch.setattr("palyra.server.http.operator.MAX_LISTED_SECRETS", 2)
    for name in "abc":
        await api("PUT", f"secrets/global/{name}", {"value": "x"})
    first = await api("GET", "secrets")
    assert first.data["next"] == "global/b"
    second = await api("GET", "secrets?after=global/b")
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
async def test_what_is_no_value_is_refused(api, body, code):
    assert (await api("PUT", "secrets/global/k", body)).code == code


async def test_rotation_answers_with_its_report(api):
    assert (await api("POST", "rotate", {})).code == "vault.unknown_secret"
    await api("PUT", "secrets/global/k", {"value": "x"})
    report = await api("POST", "rotate", {})
    assert (report.data["rewrapped"], report.data["resumed"], report.data["key_source"]) == (1, False, "file")
    assert (await api("POST", "rotate", {"to": "moon"})).code == "http.wrong_shape"
    assert (await api("POST", "rotate", {"to": "environment"})).code == "vault.key_missing"


async def test_the_scope_comes_before_anything_else(api):
    agent = await make_token(api.harness, "agent:bot")
    assert (await api("PUT", "secrets/global/k", b"not json", token=agent)).code == "token.scope_missing"
    odd = await make_token(api.harness, "agent:bot", TokenScope.OPERATE)
    assert (await api("PUT", "secrets/global/k", b"not json", token=odd)).code == "action.denied"


async def test_a_policy_may_let_others_manage_one_scope(api, tmp_path):
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("lead") permit(principal == User::"lead", action == Action::"vault.manage", resource is Secret)\n'
        'when { resource.scope == "channel:mcp" };\n'
    )
    await api.harness.gateway.policy.reload()
    lead = await make_token(api.harness, "user:lead", TokenScope.OPERATE)
    assert (await api("PUT", "secrets/channel:mcp/k", {"value": "x"}, token=lead)).status == 201
    assert (await api("PUT", "secrets/global/k", {"value": "x"}, token=lead)).code == "action.denied"
    assert (await api("GET", "secrets", token=lead)).code == "action.denied"


async def test_reveal_needs_a_version_that_exists(api, tmp_path):
    (tmp_path / "policies").mkdir(exist_ok=True)
    (tmp_path / "policies" / "a.cedar").write_text(
        '@id("see") permit(principal, action == Action::"vault.reveal", resource);\n'
    )
    await api.harness.gateway.policy.reload()
    for value in ("one", "two"):
        await api("PUT", "secrets/global/k", {"value": value})
    body = {"ref": "global/k", "confirm": "global/k"}
    assert (await api("POST", "reveal", body)).data["value"] == "two"
    assert (await api("POST", "reveal", {**body, "version": 1})).data["value"] == "one"
    assert (await api("POST", "reveal", {**body, "version": 3})).code == "vault.unknown_version"
    assert (await api("POST", "reveal", {**body, "version": 0})).code == "http.wrong_shape"


async def test_a_view_has_no_place_for_a_value(api):
    await api("PUT", "secrets/global/k", {"value": "x"})
    (info,) = api.harness.gateway.vault.list()
    assert set(secret_view(info)) == {
        "ref", "scope", "key", "version", "oldest_version", "created_at", "updated_at", "updated_by"
    }  # fmt: skip
