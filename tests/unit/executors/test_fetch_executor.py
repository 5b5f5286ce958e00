import asyncio

import pytest

from fakes.eventually import eventually
from fakes.fetch_harness import FetchHarness, answer, plan_of, redirect
from palyra.egress.client.request import FetchRequest
from palyra.egress.domain.events import Refused
from palyra.egress.domain.refusal import ByteBudgetSpent, HostNotAllowed, MalformedTraffic
from palyra.executors.fetch.executor import FetchTimedOut, run_fetch
from palyra.executors.fetch.spec import OUTPUT_SCHEMA
from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.budget import BudgetKind


async def test_an_outcome_with_receipt_and_bytes() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"hello")]]})
    outcome, used = await harness.execute("http://a.test/")
    SchemaCheck(OUTPUT_SCHEMA).require(outcome.result)
    assert outcome.error is None and used > len(b"hello")
    receipt = {line["layer"]: line["got"] for line in outcome.receipt}
    assert receipt["egress"] == "a.test:80 at 93.184.216.34" and receipt["network bytes"] == str(used)


async def test_the_deadline_brings_back_what_had_come() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"part", length=100), None]]})
    outcome, used = await harness.execute("http://a.test/", timeout_ms=50)
    assert isinstance(outcome.error, FetchTimedOut) and outcome.result["text"] == "part"
    assert outcome.result["truncated"] and used and harness.stage.connections[0][1].closed


async def test_a_deadline_before_any_answer_is_an_error() -> None:
    harness = FetchHarness({"a.test:80": [[None]]})
    with pytest.raises(FetchTimedOut):
        await harness.execute("http://a.test/", call_timeout_ms=50, timeout_ms=60_000)
    assert harness.stage.connections[0][1].closed


async def test_a_broken_body_keeps_its_beginning() -> None:
    outcome, _ = await FetchHarness({"a.test:80": [[answer(b"part", length=100)]]}).execute("http://a.test/")
    assert isinstance(outcome.error, MalformedTraffic) and outcome.result["text"] == "part"


async def test_the_byte_budget_ends_a_fetch() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"x" * 500, length=5000), b"x" * 4500]]}, max_bytes=1000)
    outcome, used = await harness.execute("http://a.test/")
    assert isinstance(outcome.error, ByteBudgetSpent) and outcome.result["text"] == "x" * 500 and used >= 1000


async def test_refusals_are_noted_and_raised() -> None:
    harness = FetchHarness({"a.test:80": [redirect("http://c.test/")]})
    with pytest.raises(HostNotAllowed):
        await harness.execute("http://a.test/")
    noted = harness.noted.events[-1]
    assert isinstance(noted, Refused) and noted.refusal.code == "egress.host_not_allowed" and noted.face == "fetch"


async def test_cancelling_closes_the_connection_and_charges_what_was_moved() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"part", length=100), None]]})
    plan = plan_of({"url": "http://a.test/"})
    fetching = run_fetch(harness.client, harness.access, FetchRequest.parse(plan.arguments), plan)
    task = asyncio.create_task(fetching)
    await eventually(lambda: harness.stage.connections and harness.stage.connections[0][1].sent, every=0)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert harness.stage.connections[0][1].closed and plan.usage.noted[BudgetKind.EGRESS_BYTES] > 0
