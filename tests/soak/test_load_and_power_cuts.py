"""Minutes of calls from many callers while the daemon is killed again and again. Run with `make soak-tests`."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from fakes.daemon import Daemon, Place
from palyra.client.client import AsyncClient
from palyra.errors import PalyraError

ROUNDS = int(os.environ.get("PALYRA_SOAK_ROUNDS", "20"))
SECONDS_PER_ROUND = 5.0
CALLERS = 32


async def _load(daemon: Daemon, run_id: str, seconds: float) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds

    async def caller() -> None:
        async with AsyncClient(base_url=daemon.url, token=daemon.token) as client:
            while time.monotonic() < end:
                try:
                    outcomes[(await client.call("echo", {"text": "x"}, run_id=run_id)).status] += 1
                except PalyraError as error:
                    outcomes[str(error.as_dict()["code"])] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())
        await asyncio.sleep(seconds * 0.8)
        daemon.process.kill()
    return outcomes


@pytest.mark.soak
def test_every_power_cut_leaves_a_ledger_that_agrees_with_a_journal_that_verifies(tmp_path: Path) -> None:
    place = Place(tmp_path, "[budget]\ncalls = 100000000\nwall_ms = 100000000000\n")
    daemon = Daemon(place)
    with daemon.client() as client:
        run_id = client.start_run().run_id
    for _ in range(ROUNDS):
        outcomes = asyncio.run(_load(daemon, run_id, SECONDS_PER_ROUND))
        assert outcomes["succeeded"] > 0
        daemon.kill()
        daemon = Daemon(place)
        with daemon.client() as client:
            account = client.run(run_id).budget["calls"]
        assert account["reserved"] == 0
        assert place.palyra("journal", "verify", "--json").status == 0
    daemon.stop()
