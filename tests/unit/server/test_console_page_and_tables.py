"""Who is logged in, for how long, and where that is kept."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import ConsoleUser, console_user, listen
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import operator
from palyra.identity.api_tokens import revoke_token
from palyra.ids import TokenId
from palyra.server.console.limits import MAX_SESSIONS, SESSION_IDLE_MS

VIEWERS = {"access": {"groups": {"viewers": ["user:eve"]}}}
WRITE = {"path": "a.txt", "content": "hello"}


async def waiting(harness: GatewayHarness, **more: Any) -> str:
    record = await harness.call("fs.write", WRITE, **more)
    return f"/console/v1/approvals/{record.approval_id}/decision"


async def test_pages_are_for_those_who_are_logged_in(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        stranger = ConsoleUser(harness)
        got = await stranger.get("/approvals")
        assert (got.status, got.headers["location"]) == (303, "/login")
        got = await stranger.get("/console/v1/approvals", accept="application/json")
        assert (got.status, got.document["code"]) == (401, "console.not_logged_in")
        assert got.headers["content-type"] == "application/problem+json"
        assert got.document["type"] == "urn:palyra:error:console.not_logged_in" and got.document["status"] == 401
        assert "Log in" in await stranger.page("/login")
        known = await console_user(harness)
        assert (await known.get("/login")).headers["location"] == "/"
        assert "Nothing waits for you." in await known.page("/approvals")


@pytest.mark.promise("P-console-guarded")
async def test_a_session_survives_a_restart_and_ends_with_its_token(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        cookie = known.cookie
    async with open_harness(tmp_path) as harness:
        again = ConsoleUser(harness)
        again.cookie = cookie
        session = await again.data("/console/v1/session")
        assert (session["principal"], session["role"]) == ("user:operator", "admin")
        rows = harness.gateway.store.read("SELECT secret_sha256, record FROM console_sessions")
        assert cookie.partition("=")[2] not in str(rows)
        token_id = json.loads(rows[0][1])["token_id"]
        await harness.gateway.store.transact(lambda tx: revoke_token(tx, TokenId(token_id), actor="test"))
        assert (await again.get("/")).status == 303


@pytest.mark.promise("P-console-guarded")
async def test_an_idle_session_is_over_and_a_live_page_does_not_keep_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)

        def age(milliseconds: int) -> None:
            harness.gateway.store.transact_blocking(
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
        await eventually(lambda: any(each.is_set() for each in starts))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await asyncio.to_thread(age, 61_000)
        assert (await known.get("/")).status == 303
        known = await console_user(harness)
        await asyncio.to_thread(age, SESSION_IDLE_MS - 60_000)
        assert (await known.get("/")).status == 200
        await asyncio.to_thread(age, 61_000)
        assert (await known.get("/")).status == 200


@pytest.mark.promise("P-console-guarded")
async def test_sessions_do_not_pile_up(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        token = await operator(harness)
        for _ in range(3):
            await ConsoleUser(harness).log_in(token)
        await harness.gateway.store.transact(
            lambda tx: [
                tx.execute("INSERT INTO console_sessions VALUES (?, ?, '{}')", (f"old{number}", number))
                for number in range(MAX_SESSIONS + 10)
            ]
        )
        await ConsoleUser(harness).log_in(token)
        ((count,),) = harness.gateway.store.read("SELECT COUNT(*) FROM console_sessions")
        assert count == MAX_SESSIONS
