"""Leased calls by the daemon's own executors: what is run, what is refused, and what each tier leaves."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.lease_offers import OFFER
from fakes.wasm_guests import minimal
from palyra.canonical import canonical_json
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.daemon.worker_agent import settings_of_calls
from palyra.errors import PalyraError
from palyra.executors.worker.leased_calls import WorkerCalls
from palyra.fleet.agent.lease import LeaseOffer
from palyra.fleet.agent.scratch import Scratch, ScratchFolder
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.workspace_scope import WorkerWorkspaceScope
from palyra.policy.decision import Obligations
from palyra.sandbox.layers.workspace_scan import remove_tree
from palyra.sandbox.settings import SandboxSettings
from palyra.wasm.settings import WasmSettings

ALL = WorkerWorkspaceScope.parse("/srv/work", read_only=False)


def offer(tool: str, arguments: dict[str, Any], **changes: Any) -> LeaseOffer:
    fields = {
        "tool": tool,
        "arguments": arguments,
        "argument_digest": hashlib.sha256(canonical_json(arguments)).hexdigest(),
        "scope": ALL,
        "max_output_bytes": 100_000,
        **changes,
    }
    return msgspec.structs.replace(OFFER, **fields)


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[WorkerCalls]:
    settings = Settings(sandbox=SandboxSettings(allow_interpreters=True))
    made = WorkerCalls(settings_of_calls(settings), StateDir.open(tmp_path / "state"), egress=None, clock=SystemClock())
    yield made
    await made.close()


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    made = ScratchFolder(tmp_path / "scratch", remove_tree=remove_tree).make(OFFER.lease_id)
    (made.workspace / "in.txt").write_text("inside")
    return made


def nothing(_stream: int, _data: bytes) -> None:
    pass


async def test_what_is_attested_is_what_is_run(calls: WorkerCalls) -> None:
    wanted = {f"tool.{name}" for name in ("echo", "sleep", "fs.read", "fs.write", "process.run", "plugin.run")}
    assert wanted | {f"tier.{tier}" for tier in "abc"} <= set(calls.capabilities)
    for absent in ("process.start", "http.fetch", "node.invoke"):
        assert f"tool.{absent}" not in calls.capabilities
        with pytest.raises(PalyraError):
            calls.require_offered(offer(absent, {}))


async def test_what_is_switched_off_is_not_offered(tmp_path: Path) -> None:
    settings = Settings(sandbox=SandboxSettings(enabled=False), wasm=WasmSettings(enabled=False))
    made = WorkerCalls(settings_of_calls(settings), StateDir.open(tmp_path / "state"), egress=None, clock=SystemClock())
    assert not {"tool.process.run", "tool.plugin.run", "tier.a", "tier.b", "tier.c"} & set(made.capabilities)
    await made.close()


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (offer("echo", {"text": 1}), "arguments.schema_mismatch"),
        (offer("echo", {"text": "a"}, argument_digest="00"), "worker_offer.malformed"),
        (offer("echo", {"text": "a"}, tier="c"), "worker_offer.tool_not_offered"),
        (offer("process.run", {"command": "ls"}, tier="a"), "worker_offer.tool_not_offered"),
        (offer("process.run", {"command": "ls", "background": True}), "worker_offer.tool_not_offered"),
        (
            offer("fs.read", {"path": "other"}, scope=WorkerWorkspaceScope.parse("/srv/work", ("src",))),
            "worker_scope.denied",
        ),
        (
            offer("fs.write", {"path": "a", "content": "x"}, scope=WorkerWorkspaceScope.parse("/srv/work")),
            "worker_scope.denied",
        ),
    ],
)
async def test_what_cannot_be_run_as_meant_is_refused(calls: WorkerCalls, refused: LeaseOffer, code: str) -> None:
    with pytest.raises(PalyraError) as caught:
        calls.require_offered(refused)
    assert caught.value.code == code


@pytest.mark.parametrize("tier", ["b", "c"])
async def test_a_program_runs_in_this_machines_own_sandbox_and_is_shown_as_it_runs(
    calls: WorkerCalls, scratch: Scratch, tier: str
) -> None:
    asked = offer(
        "process.run", {"command": "sh", "args": ["-c", "cat in.txt; echo bad >&2; echo x > made"]}, tier=tier
    )
    calls.require_offered(asked)
    shown: dict[int, bytes] = {1: b"", 2: b""}

    def sink(stream: int, data: bytes) -> None:
        shown[stream] += data

    end = await calls.perform(asked, scratch, 30_000, sink)
    assert end.outcome is LeaseOutcome.SUCCEEDED, end.error
    assert end.result["stdout"] == "inside" and end.result["tier"] == tier and end.executor == "process"
    assert shown == {1: b"inside", 2: b"bad\n"} and (scratch.workspace / "made").read_text() == "x\n"


async def test_a_program_has_no_network_whatever_the_machines_settings_are(tmp_path: Path, scratch: Scratch) -> None:
    settings = Settings(sandbox=SandboxSettings(allow_interpreters=True, egress="none"))
    made = WorkerCalls(settings_of_calls(settings), StateDir.open(tmp_path / "state"), egress=None, clock=SystemClock())
    try:
        asked = offer("process.run", {"command": "sh", "args": ["-c", "wc -l < /proc/net/dev"]})
        end = await made.perform(asked, scratch, 30_000, nothing)
        assert end.outcome is LeaseOutcome.SUCCEEDED and end.result["stdout"].strip() in ("2", "3"), end
        asked = offer("process.run", {"command": "true", "requested_egress_hosts": ["example.com"]})
        end = await made.perform(asked, scratch, 30_000, nothing)
        assert end.outcome is LeaseOutcome.FAILED and end.error is not None, "nothing would let just that host through"
    finally:
        await made.close()


async def test_a_lease_that_only_reads_writes_nothing(calls: WorkerCalls, scratch: Scratch) -> None:
    scope = WorkerWorkspaceScope.parse("/srv/work")
    asked = offer("process.run", {"command": "sh", "args": ["-c", "echo x > made"]}, scope=scope)
    end = await calls.perform(asked, scratch, 30_000, nothing)
    assert end.result is None or end.result["exit_code"] != 0
    assert sorted(path.name for path in scratch.workspace.iterdir()) == ["in.txt"]


async def test_deadlines_obligations_and_output_bounds_hold(calls: WorkerCalls, scratch: Scratch) -> None:
    slow = offer("sleep", {"seconds": 30}, obligations=Obligations(timeout_ms=50))
    assert (await calls.perform(slow, scratch, 30_000, nothing)).outcome is LeaseOutcome.TIMED_OUT
    assert (
        await calls.perform(offer("sleep", {"seconds": 30}), scratch, 50, nothing)
    ).outcome is LeaseOutcome.TIMED_OUT
    large = offer("echo", {"text": "a" * 500}, max_output_bytes=100)
    end = await calls.perform(large, scratch, 30_000, nothing)
    assert end.outcome is LeaseOutcome.FAILED and (end.error or {})["code"] == "call.output_too_large"


async def test_files_and_protected_names(calls: WorkerCalls, scratch: Scratch) -> None:
    end = await calls.perform(offer("fs.read", {"path": "in.txt"}), scratch, 30_000, nothing)
    assert end.outcome is LeaseOutcome.SUCCEEDED and "inside" in str(end.result)
    end = await calls.perform(offer("fs.write", {"path": ".env", "content": "x"}), scratch, 30_000, nothing)
    assert end.outcome is LeaseOutcome.FAILED and (end.error or {})["code"] == "workspace.protected_name"
    assert calls.is_protected((".env",)) and not calls.is_protected(("env",))


async def test_a_module_among_the_files_is_run(calls: WorkerCalls, scratch: Scratch) -> None:
    end = await calls.perform(offer("plugin.run", {"path": "in.txt"}), scratch, 30_000, nothing)
    assert end.outcome is LeaseOutcome.FAILED and end.executor == "wasm", "text is no module"
    end = await calls.perform(offer("plugin.run", {"skill_id": "a.b"}), scratch, 30_000, nothing)
    assert (end.error or {})["code"] == "wasm.no_module"
    given = {"path": "in.wasm", "input": {"_config": {}}}
    (scratch.workspace / "in.wasm").write_bytes(minimal("(i32.const 1)"))
    end = await calls.perform(offer("plugin.run", given), scratch, 30_000, nothing)
    assert (end.error or {})["code"] == "wasm.configuration_given"
