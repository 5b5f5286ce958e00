"""Results that an agent piles up: what is stored stays bounded, nobody else loses anything, and calls stay provable."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.daemon import Place
from fakes.eventually import eventually, eventually_sync
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import ask, make_token, operator
from palyra.clock import SystemClock
from palyra.errors import Tampered
from palyra.limits import KIB, MIB
from palyra.pipeline import retention
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.call_tables import read_call
from palyra.pipeline.store.result_tables import list_holdings, read_stored_data
from palyra.server.http.app import create_app
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.tool_attestation import verify_attestation, verify_call_document

pytestmark = pytest.mark.promise("P-results-bounded")

# Whole arguments have bounds of their own.
SMALL: dict[str, Any] = {
    "retention": {"results_bytes": MIB},
    "journal": {"arguments_days": 0},
    "tools": {"allowed": ["*"], "preapproved": ["*"]},
}
LARGE = "x" * (60 * KIB)
AGENT: dict[str, Any] = {"actor": "agent:bot", "channel": "api"}


async def fill(harness: GatewayHarness, count: int, text: str = LARGE, principal: str = "agent:bot") -> list[str]:
    """Make calls that return the text, some at once. Return their ids."""
    made: list[str] = []
    for start in range(0, count, 20):
        several = range(start, min(start + 20, count))
        # Operators open the runs, so that the budget of one run is not what stops the flood.
        more = {**AGENT, "actor": principal, "run_id": await harness.open_run(principal)}
        records = await asyncio.gather(
            *(harness.call("echo", {"text": text}, principal=principal, **more) for _ in several)
        )
        assert {record.state for record in records} == {CallState.SUCCEEDED}
        made += [record.call_id for record in records]
    return made


def kept_bytes(harness: GatewayHarness) -> dict[str, int]:
    return {each.principal: each.bytes for each in list_holdings(harness.gateway.store)}


def is_bounded(harness: GatewayHarness) -> bool:
    return sum(kept_bytes(harness).values()) <= MIB


def public_key(harness: GatewayHarness) -> Ed25519Verifier:
    return Ed25519Verifier.from_pem_file(harness.gateway.state.path("signing.pub"))


async def test_a_flood_of_results_stays_within_the_bound_and_so_does_the_file(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        await fill(harness, 200)
        await eventually(lambda: is_bounded(harness))
        before = read_stored_data(harness.gateway.store)
        made = await fill(harness, 200)
        await eventually(lambda: is_bounded(harness))
        after = read_stored_data(harness.gateway.store)
        # Another 12 MB of results went through. Journal and records grow; the pages of the results are used again.
        assert after.file_bytes - before.file_bytes < 4 * MIB
        assert read_call(harness.gateway.store, made[-1], None).result == {"text": LARGE}


async def test_a_flood_of_many_small_results_stays_within_the_bound_too(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        await fill(harness, 900, "y" * (2 * KIB))
        assert read_stored_data(harness.gateway.store).results <= 900
        await eventually(lambda: is_bounded(harness))
        # A result of a kilobyte is smaller than the record that stays anyway.
        (call_id,) = await fill(harness, 1, "z" * 900)
        assert call_id not in {row[0] for row in harness.gateway.store.read("SELECT call_id FROM kept_results")}


async def test_one_agents_flood_costs_no_other_its_results(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        (old,) = await fill(harness, 1, principal="agent:b")
        oldest = (await fill(harness, 100))[0]
        await eventually(lambda: is_bounded(harness))
        assert read_call(harness.gateway.store, old, None).result == {"text": LARGE}
        assert read_call(harness.gateway.store, oldest, None).result is None
        assert kept_bytes(harness)["agent:b"] == 60 * KIB + len('{"text":""}')


async def test_what_is_dropped_is_said_and_the_rest_still_proves_the_call(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)
        oldest = (await fill(harness, 40))[0]
        kept_document = (await ask(app, "GET", f"/v1/tool-calls/{oldest}", token=token)).body
        finished = harness.events(call=oldest, kind="call.finished")[0][1]
        await eventually(lambda: read_call(harness.gateway.store, oldest, None).result_dropped)
        shown = await ask(app, "GET", f"/v1/tool-calls/{oldest}", token=token)
        dropped = shown.data["result_dropped"]
        assert shown.data["result"] is None and dropped["output_digest"] == finished["output_digest"]
        assert dropped["bytes"] == len(msgspec.json.encode({"text": LARGE}))
        key = public_key(harness)
        assert verify_call_document(shown.body, [key]) == verify_call_document(kept_document, [key])
        assert verify_attestation(msgspec.json.encode(shown.data["attestation"]), [key]).call_id == oldest
        # Nobody passes off another digest, or a result beside the note, as what was attested.
        for change in ({"result_dropped": {**dropped, "output_digest": "0" * 64}}, {"result": {"text": "other"}}):
            with pytest.raises(Tampered):
                verify_call_document(msgspec.json.encode({**shown.data, **change}), [key])
        ((_, event), *_) = harness.events(kind="results.dropped")
        assert event["because"] == "size" and event["first_call"] == oldest


async def test_old_results_are_dropped_and_running_calls_and_the_journal_are_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        store = harness.gateway.store
        running = asyncio.create_task(harness.call("sleep", {"seconds": 60}, **AGENT))
        (call_id,) = await fill(harness, 1)
        await eventually(lambda: harness.gateway.broker.running())
        events = store.read("SELECT count(*), sum(length(payload)) FROM events")
        bounds = retention.ResultBounds(max_age_ms=10_000, max_bytes=MIB)
        now_ms = SystemClock().now_ms()
        assert not await retention.drop_excess(store, bounds, now_ms, actor="palyrad")
        assert await retention.drop_excess(store, bounds, now_ms + 60_000, actor="palyrad")
        assert not await retention.drop_excess(store, bounds, now_ms + 60_000, actor="palyrad")
        assert read_call(store, call_id, None).result is None
        assert harness.events(kind="results.dropped")[0][1]["because"] == "age"
        assert store.read("SELECT count(*), sum(length(payload)) FROM events WHERE kind <> 'results.dropped'") == events
        started = store.events_since(0, 100, kind="call.started")[0].call
        assert read_call(store, started, None).state is CallState.RUNNING
        await harness.gateway.broker.cancel(started)
        await running


async def test_an_operator_calls_lists_and_sees_the_sizes_during_a_flood(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SMALL) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        flood = asyncio.create_task(fill(harness, 300))
        await eventually(lambda: kept_bytes(harness).get("agent:bot"))
        body = {"tool": "echo", "arguments": {"text": "x"}}
        while not flood.done():
            assert (await ask(app, "POST", "/v1/tool-calls", token=boss, body=body)).status == 200
        await flood
        await eventually(lambda: is_bounded(harness))


def test_results_of_an_earlier_version_count_and_are_dropped(tmp_path: Path) -> None:
    """A state directory without the account of results gets it when it is opened."""
    place = Place(tmp_path / "place", f'[retention]\nresults_bytes = {MIB}\n[tools]\nallowed = ["*"]\n')
    with place.daemon() as daemon, daemon.client() as client:
        ids = [client.call("echo", {"text": LARGE}).call_id for _ in range(20)]
    with closing(sqlite3.connect(place.state / "palyra.db")) as database:
        for name in ("kept_results_added", "kept_results_dropped"):
            database.execute(f"DROP TRIGGER {name}")
        for name in ("kept_results", "result_totals"):
            database.execute(f"DROP TABLE {name}")
        database.commit()
    with place.daemon() as daemon, daemon.client() as client:
        eventually_sync(lambda: client.call_status(ids[0]).result_dropped)
        assert client.call_status(ids[-1]).result == {"text": LARGE}
        checks = {each["name"]: each for each in place.palyra("doctor", "--json").data["checks"]}
        assert (
            "results kept" in checks["stored data"]["evidence"] and "user:operator" in checks["stored data"]["evidence"]
        )
    assert place.palyra("journal", "verify").status == 0


async def test_requests_for_approval_that_are_taken_back_again_and_again_stay_within_the_bound(tmp_path: Path) -> None:
    """A request keeps its arguments for the person. Those that were decided are dropped as results are."""
    async with open_harness(tmp_path, {"retention": {"results_bytes": MIB}}) as harness:
        app, token = create_app(harness.gateway.service), await make_token(harness)

        async def request(number: int) -> tuple[str, str]:
            body = {"tool": "fs.write", "arguments": {"path": f"{number}.txt", "content": LARGE}}
            asked = await ask(app, "POST", "/v1/tool-calls", token=token, body=body)
            return str(asked.data["approval_id"]), str(asked.data["call_id"])

        waiting, _ = await request(0)
        first, call_id = await request(1)
        await ask(app, "DELETE", f"/v1/tool-calls/{call_id}", token=token)
        digest = (await ask(app, "GET", f"/v1/approvals/{first}", token=token)).data["argument_digest"]
        for number in range(2, 60):
            await ask(app, "DELETE", f"/v1/tool-calls/{(await request(number))[1]}", token=token)
        await eventually(lambda: is_bounded(harness))
        shown = (await ask(app, "GET", f"/v1/approvals/{first}", token=token)).data
        assert shown["arguments"] == {} and shown["dropped_bytes"] > len(LARGE)
        assert (shown["state"], shown["argument_digest"]) == ("withdrawn", digest)
        # What a person still has to decide is whole.
        assert (await ask(app, "GET", f"/v1/approvals/{waiting}", token=token)).data["arguments"]["content"] == LARGE
