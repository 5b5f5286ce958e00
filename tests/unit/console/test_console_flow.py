"""Login, visit, roles, writes, problems and the application around them, in one process."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fakes.console_house import Visitor, listen, visitor
from fakes.house import House, open_house
from fakes.raw_http import make_token, operator
from palyra.console.app import CONTENT_POLICY
from palyra.console.limits import MAX_SESSIONS, SESSION_IDLE_MS
from palyra.console.roles import Role, includes
from palyra.console.sections import SECTIONS
from palyra.daemons.console_parts import CONSOLE_PATHS
from palyra.identity.api_token import TokenScope
from palyra.identity.sqlite_tokens import revoke_token
from palyra.ids import TokenId

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(house: House, **more: Any) -> str:
    record = await house.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


def test_roles_include_each_other() -> None:
    assert includes(Role.ADMIN, Role.VIEWER) and includes(Role.OPERATOR, Role.OPERATOR)
    assert not includes(Role.VIEWER, Role.OPERATOR)


def test_every_path_of_a_section_reaches_the_console() -> None:
    paths = [each.path for section in SECTIONS for each in (*section.pages, *section.listings, *section.writes)]
    assert {path.split("/")[1] for path in paths} <= CONSOLE_PATHS
    assert all(path.startswith("/console/v1/") for section in SECTIONS for path in [w.path for w in section.writes])
    names = [write.name for section in SECTIONS for write in section.writes]
    assert len(names) == len(set(names))


async def test_pages_are_for_those_who_are_logged_in(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        stranger = Visitor(house)
        got = await stranger.get("/approvals")
        assert (got.status, got.headers["location"]) == (303, "/login")
        got = await stranger.get("/console/v1/approvals", accept="application/json")
        assert (got.status, got.document["code"]) == (401, "console.not_logged_in")
        assert got.headers["content-type"] == "application/problem+json"
        assert got.document["type"] == "urn:palyra:error:console.not_logged_in" and got.document["status"] == 401
        assert "Log in" in await stranger.page("/login")
        known = await visitor(house)
        assert (await known.get("/login")).headers["location"] == "/"
        assert "Nothing waits for you." in await known.page("/approvals")


async def test_every_answer_has_the_headers_that_keep_others_out(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        for path in ("/", "/login", "/nothing", "/console/v1/approvals", "/static/x/app.js"):
            headers = (await known.get(path)).headers
            assert headers["content-security-policy"] == CONTENT_POLICY, path
            assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
        page = await known.page("/")
        assert "<script>" not in page and " style=" not in page and " onclick=" not in page


async def test_a_session_survives_a_restart_and_ends_with_its_token(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        cookie = known.cookie
    async with open_house(tmp_path) as house:
        again = Visitor(house)
        again.cookie = cookie
        session = await again.data("/console/v1/session")
        assert (session["principal"], session["role"]) == ("user:operator", "admin")
        rows = house.gateway.store.read("SELECT secret_sha256, record FROM console_sessions")
        assert cookie.partition("=")[2] not in str(rows)
        token_id = json.loads(rows[0][1])["token_id"]
        await house.gateway.store.transact(lambda tx: revoke_token(tx, TokenId(token_id), actor="test"))
        assert (await again.get("/")).status == 303


async def test_an_idle_session_is_over_and_a_live_page_does_not_keep_it(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)

        def age(milliseconds: int) -> None:
            house.gateway.store.transact_blocking(
                lambda tx: tx.execute(
                    "UPDATE console_sessions SET record = json_set(CAST(record AS TEXT), '$.used_ms',"
                    " json_extract(CAST(record AS TEXT), '$.used_ms') - ?)",
                    (milliseconds,),
                )
            )

        await asyncio.to_thread(age, SESSION_IDLE_MS - 60_000)
        assert (await known.get("/", palyra_live="1")).status == 200
        starts: list[asyncio.Event] = []
        listening = asyncio.create_task(listen(known, starts))
        while not any(each.is_set() for each in starts):
            await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await asyncio.to_thread(age, 61_000)
        assert (await known.get("/")).status == 303
        known = await visitor(house)
        await asyncio.to_thread(age, SESSION_IDLE_MS - 60_000)
        assert (await known.get("/")).status == 200
        await asyncio.to_thread(age, 61_000)
        assert (await known.get("/")).status == 200


async def test_sessions_do_not_pile_up(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        token = await operator(house)
        for _ in range(3):
            await Visitor(house).log_in(token)
        await house.gateway.store.transact(
            lambda tx: [
                tx.execute("INSERT INTO console_sessions VALUES (?, ?, '{}')", (f"old{number}", number))
                for number in range(MAX_SESSIONS + 10)
            ]
        )
        await Visitor(house).log_in(token)
        ((count,),) = house.gateway.store.read("SELECT COUNT(*) FROM console_sessions")
        assert count == MAX_SESSIONS


async def test_a_decision_is_on_record_before_and_after(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        got = await known.post(await waiting(house), {"decision": "deny", "reason": "no"})
        assert (got.status, got.data["state"], got.data["decided_by"]) == (200, "denied", "user:operator")
        kinds = house.kinds()
        at = kinds.index("console.action_requested")
        assert kinds[at : at + 3] == ["console.action_requested", "approval.denied", "console.action_done"]
        (asked,) = [payload for kind, payload in house.events() if kind == "console.action_requested"]
        assert asked["action"] == "approval.decide" and asked["arguments"] == {"decision": "deny", "reason": "no"}


async def test_a_refused_action_is_on_record_too_and_is_a_problem(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        own = await known.post(await waiting(house, principal="user:operator"), {"decision": "approve"})
        assert (own.status, own.document["code"]) == (403, "approval.self")
        (failed,) = [payload for kind, payload in house.events() if kind == "console.action_failed"]
        assert failed["error"]["code"] == "approval.self"


async def test_the_same_key_is_the_same_action(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        path = await waiting(house)
        first = await known.post(path, {"decision": "approve"}, idempotency_key="k1")
        again = await known.post(path, {"decision": "approve"}, idempotency_key="k1")
        assert (first.status, again.status) == (200, 200) and first.body == again.body
        assert again.headers["idempotent-replayed"] == "true"
        assert house.kinds().count("console.action_requested") == 1
        other = await known.post(path, {"decision": "deny"}, idempotency_key="k1")
        assert (other.status, other.document["code"]) == (422, "console.key_reused")
        failed = await known.post(path, {"decision": "deny"}, idempotency_key="k2")
        again = await known.post(path, {"decision": "deny"}, idempotency_key="k2")
        assert failed.document == again.document and failed.document["code"] == "approval.already_decided"
        for bad in (" ", "x" * 129):
            got = await known.post(path, {"decision": "deny"}, idempotency_key=bad)
            assert got.document["code"] == "console.bad_idempotency_key"


async def test_roles_come_from_policy_each_time(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_house(tmp_path, VIEWERS) as house:
        eve = await visitor(house, "user:eve")
        assert "You may look at this" not in await eve.page("/approvals")
        refused = await eve.post(await waiting(house), {"decision": "approve"})
        assert (refused.status, refused.document["code"]) == (403, "console.role_missing")
        boss = await visitor(house)
        (tmp_path / "policies" / "a.cedar").write_text(
            '@id("nobody-operates")\nforbid (principal, action == Action::"console.operate", resource);\n'
            '@id("nor-administers")\nforbid (principal, action == Action::"console.administer", resource);\n'
        )
        await house.gateway.policy.reload()
        assert (await boss.data("/console/v1/session"))["role"] == "viewer"
        agent = Visitor(house)
        got = await agent.log_in(await make_token(house, "agent:bot", TokenScope.CALL))
        assert (got.status, got.document["code"]) == (403, "console.role_missing")


async def test_an_unknown_page_is_a_page_and_an_unknown_document_a_problem(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        page = await known.get("/approvals/nonsense")
        assert page.status == 400 and b"id.malformed" in page.body and b"<html" in page.body
        assert (await known.get("/console/v1/nothing", accept="*/*")).document["code"] == "console.no_such_page"
        got = await known.send("PUT", "/console/v1/session", {})
        assert (got.status, got.document["code"]) == (405, "http.method_refused")


async def test_queries_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        known = await visitor(house)
        for path in ("/calls?state=odd", "/approvals?state=pending", "/calls?before=x", f"/calls?text={'x' * 300}"):
            assert (await known.get(path)).status == 400, path
