"""A process killed while a call without effects computes: no trace of it, or one that is ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.effect_free import SETTINGS
from fakes.house import open_house
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.tools.budget import BudgetKind

# Opens a run, makes a first call so that the run is known to have plenty left, and is killed in the second.
PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from fakes.effect_free import SETTINGS, TOOL, give_tool
from fakes.house import open_house

async def main() -> None:
    async with open_house(Path(sys.argv[1]), SETTINGS) as house:
        run_id = await house.open_run(calls=9)
        assert (await house.call("echo", {"text": "x"}, run_id=run_id)).error is None

        async def think(plan):
            while sys.argv[2] == "late" and not house.kinds(call=plan.call_id):
                await asyncio.sleep(0.005)
            print(run_id, plan.call_id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        give_tool(house, think)
        await house.call(TOOL, {}, run_id=run_id)

asyncio.run(main())
"""


@pytest.mark.promise("P-recorded")
@pytest.mark.parametrize("when", ["soon", "late"])
async def test_a_kill_while_it_computes_spends_nothing_and_breaks_nothing(tmp_path: Path, when: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), when]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    died = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment)
    assert died.returncode == -9, died.stderr
    run_id, call_id = died.stdout.split()
    async with open_house(tmp_path, SETTINGS) as house:
        account = house.run(run_id).budget[BudgetKind.CALLS]
        assert (account.used, account.reserved) == (1, 0)
        written = ["call.requested", "call.decided", "call.started", "call.abandoned"] if when == "late" else []
        assert house.kinds(call=call_id) == written
        verifier = Ed25519Verifier.from_pem_file(house.gateway.state.path("signing.pub"))
        assert house.gateway.store.reader.verify((verifier,)).events == house.gateway.store.head()[0]
