"""`palyra worker` without a daemon: the same API in this process."""

import asyncio
from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.fleet_peers import BUILD, FleetPeers, numbered
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.fleet.domain.policy import WorkerFleetPolicy, WorkerFleetSettings


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    line = command_line_in(tmp_path)
    harness = FleetPeers(WorkerFleetPolicy())

    async def put() -> None:
        ledger = gateway.workers.ledger
        opened = await ledger.decide(harness.open_session(numbered(1)))
        assert opened.worker is not None
        present = harness.present(opened.worker, gateway.clock.now_ms())
        await ledger.decide(present)
        await harness.leased(ledger, numbered(1), now_ms=gateway.clock.now_ms())

    settings = Settings(workers=WorkerFleetSettings(build_digests=(BUILD,)))
    gateway = Gateway(settings, StateDir.open(line.state_dir), tmp_path / "policies", channel="cli")
    try:
        asyncio.run(put())
    finally:
        gateway.close()
    return line


def test_a_worker_is_listed_shown_and_directed(palyra: CommandLine) -> None:
    listed = palyra("worker", "list").out
    assert numbered(1) in listed and "busy" in listed and "1/4" in listed
    shown = palyra("worker", "show", "worker 1").out
    assert "tier.b, tier.c" in shown and "process.run" in shown
    leases = palyra("worker", "leases", "worker 1", "--json").document["data"]["leases"]
    assert [one["tool"] for one in leases] == ["process.run"]
    assert "process.run" in palyra("worker", "leases").out
    one = palyra("worker", "leases", "--lease", leases[0]["lease_id"]).out
    assert "fence 1" in one and "agent:a" in one
    assert palyra("worker", "drain", "worker 1", "--reason", "x").out == f"worker 1 ({numbered(1)}) gets no new calls\n"
    assert "draining" in palyra("worker", "list").out
    assert palyra("worker", "resume", "worker 1").status == 0
    assert "is in quarantine" in palyra("worker", "quarantine", "worker 1").out
    assert "fenced" in palyra("worker", "leases", "--all").out and "fenced" not in palyra("worker", "leases").out
    assert "attest itself again" in palyra("worker", "release", "worker 1").out
    for change in ("drain", "quarantine"):
        palyra("worker", change, "worker 1")
    assert "drained as before" in palyra("worker", "release", "worker 1").out
    gone = palyra("worker", "show", "nobody", "--json")
    assert (gone.status, gone.document["error"]["code"]) == (2, "worker.unknown")


def test_a_call_on_a_worker_needs_a_daemon(palyra: CommandLine) -> None:
    refused = palyra("call", "echo", "--input", '{"text":"x"}', "--tier", "worker", "--json")
    assert (refused.status, refused.document["error"]["code"]) == (6, "workers.needs_daemon")


def test_the_wish_goes_with_the_call(palyra: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    api = use_tiny_api(monkeypatch)
    palyra("call", "echo", "--tier", "worker")
    assert api.seen[-1]["body"]["tier"] == "worker"
    palyra("call", "echo")
    assert "tier" not in api.seen[-1]["body"]
