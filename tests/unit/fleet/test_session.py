"""One connection: what it begins with, and the one reason for which it ends."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from fakes.worker_agent_harness import Watcher, WorkerAgentHarness, worker_agent_harness
from palyra.clock import SystemClock
from palyra.devicelink.agent.identity import HeldIdentity
from palyra.errors import Unavailable
from palyra.fleet.agent.facts import WorkerFacts
from palyra.fleet.agent.link import LossKind
from palyra.fleet.agent.session import Session
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.wire.worker.v1 import worker_pb2 as wire

FACTS = WorkerFacts(boot_id="b", platform="linux", software_version="1", slots=2, capabilities=("tool.echo",))


class Leases:
    open_ids = ("01ARZ3NDEKTSV4RRFFQ69G5FAV",)

    def __init__(self) -> None:
        self.grace = 0
        self.online = asyncio.Event()
        self.got: list[Any] = []

    def counts(self) -> dict[str, int]:
        return {"running": 1, "workspaces": 1, "slots": 2}

    def name_open(self) -> tuple[str, ...]:
        return self.open_ids

    def on_welcome(self, welcome: Any) -> None:
        self.grace = welcome.settle_grace_ms

    def on_attested(self, link: Any) -> None:
        self.online.set()

    def on_message(self, command: Any) -> None:
        self.got.append(command)


class NoProxy:
    class Gone(Unavailable):
        code = "test.proxy_gone"

    def __init__(self, *, there: bool) -> None:
        self.there = there

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        if not self.there:
            raise NoProxy.Gone("the proxy is gone")
        return "E1", SignedStatement(b"no", b"binding")

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        return ()

    def network(self, lease_id: str, fence: int) -> Any:
        raise AssertionError("no lease runs")


def session_of(harness: WorkerAgentHarness, leases: Leases, egress: NoProxy | None = None) -> Session:
    return Session(
        f"127.0.0.1:{harness.fleet.port}",
        identity=HeldIdentity(harness.pairing, harness.record()),
        facts=FACTS,
        egress=egress,
        leases=leases,
        observer=Watcher(),
        clock=SystemClock(),
        draw=random.random,
    )


async def test_it_says_hello_attests_beats_and_passes_on_what_is_about_leases(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        leases = Leases()
        life = asyncio.create_task(session_of(harness, leases).run())
        await asyncio.wait_for(leases.online.wait(), 30)
        assert tuple(harness.fleet.hellos[0].open_lease_ids) == leases.open_ids and leases.grace == 20_000
        await harness.fleet.until(lambda: len(harness.fleet.beats) >= 2)
        assert (harness.fleet.beats[0].running, harness.fleet.beats[0].workspaces, harness.fleet.beats[0].slots) == (
            1,
            1,
            2,
        )
        harness.fleet.send(cancel=wire.LeaseCancel(lease_id="l", reason="r"))
        await harness.fleet.until(lambda: leases.got)
        assert [(each.cancel.lease_id, each.cancel.reason) for each in leases.got] == [("l", "r")]
        harness.fleet.cut()
        end = await asyncio.wait_for(life, 30)
        assert (end.kind, end.attested) == (LossKind.UNREACHABLE, True)


@pytest.mark.parametrize(("there", "answer"), [(False, ""), (True, "egress_binding.unknown_egress")])
async def test_a_proxy_that_gives_no_binding_is_said_and_one_that_nobody_knows_is_refused(
    tmp_path: Path, there: bool, answer: str
) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        leases = Leases()
        life = asyncio.create_task(session_of(harness, leases, NoProxy(there=there)).run())
        await harness.fleet.until(lambda: harness.fleet.attestation_answers)
        assert harness.fleet.attestation_answers == [answer]
        if answer:
            end = await asyncio.wait_for(life, 30)
            assert (end.kind, end.attested) == (LossKind.TURNED_AWAY, False) and answer in end.why
        else:
            await asyncio.wait_for(leases.online.wait(), 30)
            harness.fleet.cut()
            await asyncio.wait_for(life, 30)
