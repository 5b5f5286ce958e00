"""Sixty-four calls on a budget of ten, and a power cut in the middle: the ledger and the journal must agree."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync
from palyra.client.client import AsyncClient, Client
from palyra.errors import PalyraError

CALLERS = 64
BUDGET = 10


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def _storm(daemon: Daemon, run_id: str, tool: str, arguments: dict[str, object]) -> Counter[str]:
    async with AsyncClient(base_url=daemon.url, token=daemon.token) as client:

        async def one() -> str:
            try:
                return (await client.call(tool, arguments, run_id=run_id)).status
            except PalyraError as error:
                return str(error.as_dict()["code"])

        return Counter(await asyncio.gather(*(one() for _ in range(CALLERS))))


def _audit(place: Place, client: Client, run_id: str) -> dict[str, int]:
    """What the ledger says of a run, after checking that the journal says the same."""
    account = client.run(run_id).budget["calls"]
    events = place.palyra("journal", "tail", "-n", "10000", "--run", run_id, "--json").data["events"]
    kinds = Counter(event["kind"] for event in events)
    assert kinds["call.started"] == kinds["call.finished"] + kinds["call.abandoned"]
    assert account["used"] == kinds["call.finished"]
    assert account["reserved"] == 0
    assert place.palyra("journal", "verify", "--json").status == 0
    return dict(kinds)


@pytest.mark.promise("P-budget-exact")
def test_exactly_the_budget_runs(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        run_id = client.start_run({"calls": BUDGET}, principal="agent:bot").run_id
        operator_run = client.start_run({"calls": BUDGET}).run_id
        outcomes = asyncio.run(_storm(daemon, operator_run, "echo", {"text": "x"}))
        assert outcomes == {"succeeded": BUDGET, "budget.exhausted": CALLERS - BUDGET}
        assert _audit(place, client, operator_run)["call.refused"] == CALLERS - BUDGET
        foreign = asyncio.run(_storm(daemon, run_id, "echo", {"text": "x"}))
        assert foreign == {"run.unknown": CALLERS}


@pytest.mark.promise("P-budget-charged")
def test_after_a_kill_in_the_middle_nothing_is_spent_twice_and_nothing_is_lost(place: Place) -> None:
    daemon = Daemon(place)
    with daemon.client() as client:
        run_id = client.start_run({"calls": BUDGET}).run_id
    storm = threading.Thread(
        target=lambda: asyncio.run(_storm(daemon, run_id, "sleep", {"seconds": 30})), name="callers"
    )
    storm.start()
    eventually_sync(lambda: place.palyra("journal", "tail", "--kind", "call.started", "--json").data["events"])
    daemon.kill()
    storm.join()
    with place.daemon() as again, again.client() as client:
        kinds = _audit(place, client, run_id)
        assert 1 <= kinds["call.abandoned"] <= BUDGET
        # What the crash cut off was given back: the whole budget can be spent now, and no more.
        outcomes = asyncio.run(_storm(again, run_id, "echo", {"text": "x"}))
        assert outcomes == {"succeeded": BUDGET, "budget.exhausted": CALLERS - BUDGET}
        _audit(place, client, run_id)


@pytest.mark.promise("P-approval-once")
def test_an_approval_spent_before_the_crash_stays_spent(place: Place) -> None:
    daemon = Daemon(place)
    with daemon.client() as client:
        with pytest.raises(PalyraError) as asked:
            client.call("fs.write", {"path": "a", "content": "x"}, principal="agent:bot")
        approval = asked.value.details["approval_id"]
        client.approve(approval)
        client.call("fs.write", {"path": "a", "content": "x"}, principal="agent:bot")
    daemon.kill()
    with place.daemon() as again, again.client() as client:
        assert client.approval(approval).state == "consumed"
        with pytest.raises(PalyraError) as refused:
            client.call("fs.write", {"path": "a", "content": "x"}, principal="agent:bot")
        assert refused.value.as_dict()["code"] == "call.needs_approval"
