"""The overview."""

from pathlib import Path

from fakes.console_user import console_user
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.ids import ulid_at
from palyra.limits import MIB
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.call_tables import read_call
from palyra.server.console.pages.overview import HOURS, MS_PER_HOUR, hours_of, problems_of
from palyra.store.event import Event, NewEvent

SETTINGS = {"skills": {"builder_enabled": True}}


async def record(harness: GatewayHarness, kind: str, **payload: object) -> Event:
    event: Event = await harness.gateway.store.transact(
        lambda tx: tx.append(NewEvent(kind=kind, actor="test", principal="agent:bot", payload=dict(payload)))
    )
    return event


def test_calls_are_counted_into_their_hours() -> None:
    first = 1_000 * MS_PER_HOUR
    counts = [
        (ulid_at(first)[:7], CallState.SUCCEEDED, 1),
        (ulid_at(first + 2 * MS_PER_HOUR)[:7], CallState.DENIED, 1),
        (ulid_at(first + 2 * MS_PER_HOUR)[:7], CallState.NEEDS_APPROVAL, 1),
        (ulid_at(first + (HOURS + 1) * MS_PER_HOUR)[:7], CallState.SUCCEEDED, 1),
    ]
    hours = hours_of(counts, first)
    assert len(hours) == HOURS and hours[0].total == 1
    asked = next(hour for hour in hours[1:] if hour.total)
    assert dict(asked.parts) == {"succeeded": 0, "waiting": 1, "refused": 1}
    assert sum(hour.total for hour in hours) == 3


def test_problems_are_sentences() -> None:
    status = {"policy": {"rejected": {"errors": ["a.cedar:1:1: no\n  1 | permit"]}}}
    status |= {"browser": {"profiles_rolled_back": True}}
    found = problems_of(status, ["journal: the disk is full"])
    assert [each.href for each in found] == ["/doctor", "/policy", "/browser"]
    assert found[1].text.endswith("a.cedar:1:1: no.")
    assert problems_of({"policy": {"rejected": None}}, []) == []


async def test_the_overview_says_what_runs_waits_and_was_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        known = await console_user(harness)
        await harness.call("fs.write", {"path": "a", "content": "b"})
        await harness.call("nonsense", {})
        await record(harness, "egress.refused", refusal={"code": "egress.host_not_allowed"}, violation=True, tool="t")
        page = await known.page("/")
        assert "fs.write" in page and "tool.unknown" in page and "egress.refused" in page
        shown = await known.data("/console/v1/overview")
        assert len(shown["waiting"]) == 1 and shown["refused_today"] == 1 and shown["problems"] == []


async def test_the_overview_says_what_is_stored_and_for_whom(tmp_path: Path) -> None:
    settings = {"retention": {"results_bytes": MIB}, "journal": {"arguments_days": 0}}
    async with open_harness(tmp_path, settings) as harness:
        known = await console_user(harness)
        text = {"text": "x" * 60_000}
        first = await harness.call("echo", text)
        stored = (await known.data("/console/v1/overview"))["stored"]
        assert [(each["principal"], each["results"]) for each in stored["holdings"]] == [("agent:bot", 1)]
        assert stored["holdings"][0]["bytes"] > 60_000 and stored["file_bytes"] > 60_000
        assert "Results of agent:bot" in await known.page("/")
        for _ in range(20):
            await harness.call("echo", text)
        await eventually(lambda: read_call(harness.gateway.store, first.call_id, None).result_dropped)
        page = await known.page(f"/calls/{first.call_id}")
        assert "The result is no longer kept." in page
        assert harness.events(call=first.call_id, kind="call.finished")[0][1]["output_digest"] in page
