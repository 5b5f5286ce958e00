"""``/v1/skills`` and ``/v1/publishers`` as an operator meets them."""

import base64
from pathlib import Path
from typing import Any

import pytest

from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import RawAnswer, ask, make_token, operator
from fakes.skill_harness import PUBLISHER, SKILL, archive, artifact, key, wat
from palyra.server.http.app import ROUTES, create_app
from palyra.skills.limits import MAX_ARTIFACT_BYTES
from palyra.skills.trust.publisher_keys import make_rotation


class SkillsApi:
    """An operator at the API."""

    def __init__(self, harness: GatewayHarness, token: str) -> None:
        self._app = create_app(harness.gateway.service)
        self._token = token

    async def __call__(self, method: str, path: str, body: object = b"") -> RawAnswer:
        return await ask(self._app, method, path, token=self._token, body=body)

    async def trust(self, publisher: str = PUBLISHER) -> RawAnswer:
        raw = base64.b64encode(key(publisher).public_key()).decode()
        return await self("POST", "/v1/publishers", {"publisher": publisher, "public_key": raw})

    async def approved(self, version: str = "1.0.0", **options: Any) -> dict[str, Any]:
        installed = (await self("POST", "/v1/skills", archive(version, **options))).data
        body = {"version": version, "digest": installed["digest"], "reason": "reviewed"}
        approved: dict[str, Any] = (await self("POST", f"/v1/skills/{SKILL}/approve", body)).data
        return approved


async def api_in(harness: GatewayHarness) -> SkillsApi:
    return SkillsApi(harness, await operator(harness))


async def test_from_an_upload_to_a_history(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        refused = await api("POST", "/v1/skills", archive())
        assert (refused.status, refused.code) == (403, "skill.untrusted_publisher")
        assert (await api.trust()).status == 201
        installed = await api("POST", "/v1/skills", archive(capabilities='channels = ["a"]'))
        assert (installed.status, installed.data["state"]) == (201, "quarantined")
        assert installed.data["tools"] == ["skill.acme.notes.add"]
        assert installed.data["difference"]["added"] == ["send messages to the channel a"]
        assert [one["id"] for one in installed.data["findings"]] == ["capability-unused"]
        wrong = await api("POST", f"/v1/skills/{SKILL}/approve", {"version": "1.0.0", "digest": "0" * 64})
        assert (wrong.status, wrong.code) == (409, "skill.digest_mismatch")
        body = {"version": "1.0.0", "digest": installed.data["digest"], "reason": "reviewed"}
        approved = (await api("POST", f"/v1/skills/{SKILL}/approve", body)).data
        assert (approved["state"], approved["approved_by"]) == ("approved", "user:operator")
        (listed,) = (await api("GET", "/v1/skills")).data["skills"]
        assert approved.pop("gets_less") == []
        assert listed["active_version"] == "1.0.0" and listed["versions"] == [approved]
        shown = (await api("GET", f"/v1/skills/{SKILL}")).data
        assert shown["newest_approved"] == "1.0.0" and shown["versions"][0]["problem"] is None
        assert [one["kind"] for one in shown["history"]] == [
            "skill.approved",
            "skill.quarantined",
            "skill.audited",
            "skill.ingested",
        ]
        assert shown["history"][0]["reason"] == "reviewed"


async def test_removed_versions_are_listed_only_when_all_are_asked_for(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        await api.trust()
        for version in ("1.0.0", "1.1.0"):
            await api.approved(version)

        async def listed(query: str = "") -> tuple[list[list[str]], int]:
            data = (await api("GET", f"/v1/skills{query}")).data
            return [[one["version"] for one in skill["versions"]] for skill in data["skills"]], data["removed_left_out"]

        assert await listed() == await listed("?all=true") == ([["1.1.0", "1.0.0"]], 0)
        await api("DELETE", f"/v1/skills/{SKILL}?version=1.0.0")
        assert await listed() == await listed("?all=false") == ([["1.1.0"]], 1)
        assert await listed("?all=true") == ([["1.1.0", "1.0.0"]], 0)
        await api("DELETE", f"/v1/skills/{SKILL}")
        assert await listed() == ([], 2), "a skill of which nothing else is left is not there"
        assert await listed("?all=true") == ([["1.1.0", "1.0.0"]], 0)
        assert (await api("GET", "/v1/skills?all=yes")).status == 400


@pytest.mark.promise("P-skill-approved")
async def test_changes_of_a_life(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        await api.trust()
        await api.approved()
        assert list((tmp_path / "state" / "wasm" / "compiled").iterdir()), "who approved it finds it compiled"
        await api.approved("1.1.0")

        async def change(verb: str, **body: str) -> Any:
            return (await api("POST", f"/v1/skills/{SKILL}/{verb}", body)).document

        back = (await change("rollback", reason="it broke"))["data"]
        assert (back["version"], back["state"]) == ("1.0.0", "approved")
        assert (await change("disable"))["data"]["state"] == "disabled"
        assert (await change("disable"))["error"]["code"] == "skill.wrong_state"
        assert (await change("enable", version="1.0.0"))["error"]["code"] == "http.wrong_shape"
        assert (await change("enable"))["data"]["state"] == "approved"
        assert (await change("quarantine"))["data"]["state"] == "quarantined"
        removed = (await api("DELETE", f"/v1/skills/{SKILL}?version=1.1.0")).data["removed"]
        assert [one["version"] for one in removed] == ["1.1.0"]
        early = await api("DELETE", f"/v1/skills/{SKILL}/data")
        assert early.document["error"]["code"] == "skill.wrong_state"
        assert len((await api("DELETE", f"/v1/skills/{SKILL}")).data["removed"]) == 1
        assert (await api("DELETE", f"/v1/skills/{SKILL}/data")).data == {"values": 0, "bytes": 0}
        assert (await api("GET", "/v1/skills/nobody")).status == 404


async def test_an_audit_keeps_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        audited = (await api("POST", "/v1/skills/audit", archive(modules={"main.wasm": wat("(module)")}))).data
        assert audited["trust"] is None and [one["id"] for one in audited["findings"]] == [
            "entrypoint-missing",
            "trust",
        ]
        assert (await api("GET", "/v1/skills")).data == {"skills": [], "removed_left_out": 0}
        broken = await api("POST", "/v1/skills/audit", b"PK")
        assert (broken.status, broken.code) == (409, "skill.malformed_archive")


async def test_a_failed_audit_answers_with_its_findings(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        await api.trust()
        got = await api("POST", "/v1/skills", archive(modules={"main.wasm": wat("(module)")}))
        assert (got.status, got.code) == (403, "skill.audit_failed")
        assert got.error["details"]["findings"][0]["id"] == "entrypoint-missing"


async def test_configuration(tmp_path: Path) -> None:
    schema = '\n[operator.configuration]\nschema = { type = "object", properties = { n = { type = "integer" } } }\n'
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        await api.trust()
        await api.approved(more=schema + "defaults = { m = 1 }\n")
        path = f"/v1/skills/{SKILL}/configuration"
        assert (await api("PUT", path, {"configuration": {"n": 2}})).data == {"configuration": {"m": 1, "n": 2}}
        assert (await api("PUT", path, {"configuration": {"n": "x"}})).code == "skill.configuration_refused"
        assert (await api("PUT", path, {"configuration": {}, "version": "9.0.0"})).code == "skill.unknown"
        shown = (await api("GET", f"/v1/skills/{SKILL}")).data
        assert shown["versions"][0]["configuration"] == {"n": 2}


async def test_publishers(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        added = (await api.trust()).data
        assert (added["key_id"], added["source"], added["state"]) == (key(PUBLISHER).key_id, "allowlisted", "active")
        await api.approved()
        statement = make_rotation(PUBLISHER, key(PUBLISHER), key("new").public_key()).decode()
        rotated = (await api("POST", "/v1/publishers/rotation", {"statement": statement})).data
        assert rotated["replaces"] == key(PUBLISHER).key_id
        again = await api("POST", "/v1/publishers/rotation", {"statement": statement})
        assert (again.status, again.code) == (403, "skill.key_mismatch")
        body = {"key_id": key(PUBLISHER).key_id, "reason": "stolen"}
        revoked = (await api("POST", "/v1/publishers/revocation", body)).data
        assert [one["state"] for one in revoked["disabled"]] == ["disabled"]
        listed = (await api("GET", "/v1/publishers")).data
        assert [one["state"] for one in listed["keys"]] == ["revoked", "active"]
        assert [one["reason"] for one in listed["revoked"]] == ["stolen"]
        gone = await api("DELETE", f"/v1/publishers/{PUBLISHER}/{key('new').key_id}")
        assert gone.data["key_id"] == key("new").key_id
        unknown = await api("DELETE", f"/v1/publishers/{PUBLISHER}/{key('new').key_id}")
        assert (unknown.status, unknown.code) == (404, "skill.unknown_key")


@pytest.mark.parametrize(
    "body",
    [
        {"publisher": "Acme Inc", "public_key": ""},
        {"publisher": "acme", "public_key": "%%%"},
        {"publisher": "acme", "public_key": "AAAA"},
        {"publisher": "acme"},
        {"publisher": "a" * 65, "public_key": ""},
    ],
)
async def test_keys_that_are_none(tmp_path: Path, body: dict[str, str]) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        assert (await api("POST", "/v1/publishers", body)).status == 400
        revocation = await api("POST", "/v1/publishers/revocation", {"key_id": "ed25519:xyz"})
        assert revocation.code == "http.wrong_shape"


async def test_only_operators_come_in_and_before_a_body_is_read(tmp_path: Path) -> None:
    paths = {"{skill_id}": SKILL, "{publisher}": PUBLISHER, "{key_id}": "k"}
    async with open_harness(tmp_path) as harness:
        app = create_app(harness.gateway.service)
        agent, stranger = await make_token(harness), await operator(harness, "user:stranger")
        routes = [(method, path) for method, path, _ in ROUTES if path.startswith(("/v1/skills", "/v1/publishers"))]
        assert len(routes) == 17
        for method, path in routes:
            for word, value in paths.items():
                path = path.replace(word, value)
            for token, code in ((agent, "token.scope_missing"), (stranger, "action.denied"), (None, "token.rejected")):
                got = await ask(app, method, path, token=token, body=b"PK")
                assert got.code == code or (token is None and got.status == 401), (method, path, got.code)
        assert "skill.refused" not in harness.kinds()


async def test_an_upload_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        got = await api("POST", "/v1/skills", b"\0" * (MAX_ARTIFACT_BYTES + 1))
        assert (got.status, got.code) == (413, "http.body_too_large") and str(MAX_ARTIFACT_BYTES) in got.error["hint"]
        await api.trust()
        large = artifact(assets={"blob": b"x" * 3_000_000})
        assert (await api("POST", "/v1/skills", large.raw)).status == 201


async def test_what_is_installed_outlives_the_daemon(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        api = await api_in(harness)
        await api.trust()
        await api.approved()
    async with open_harness(tmp_path) as harness:
        (module,) = await harness.gateway.skills.active_modules(actor="palyrad")
        assert (module.skill_id, module.version) == (SKILL, "1.0.0")


async def test_first_use_is_a_setting(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"skills": {"trust_on_first_use": True}}) as harness:
        api = await api_in(harness)
        assert (await api.approved())["trust"] == "pinned"
