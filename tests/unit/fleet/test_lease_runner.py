"""One lease from its inputs to the proof of its cleanup, with calls and lines that do what the test says."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.lease_offers import OFFER
from palyra.clock import SystemClock
from palyra.fleet.agent import lease_runner
from palyra.fleet.agent.lease import Interrupted, LeaseNote, LeaseOffer
from palyra.fleet.agent.lease_runner import LeaseRunner
from palyra.fleet.agent.link import LinkLost, LossKind
from palyra.fleet.agent.ports import CallEnd, OutputSink
from palyra.fleet.agent.scratch import Residue, Scratch, ScratchFolder
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.sandbox.layers.workspace_scan import remove_tree

DATA = b"data"
INPUT = ArtifactRef(
    path="src/a", digest_sha256="3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7", size=4
)
WRITES = WorkerWorkspaceScope.parse("/srv/work", ("src",), read_only=False)


class Calls:
    capabilities = ()

    def __init__(self, act: Callable[[Path], Any] = lambda _: None) -> None:
        self.act = act
        self.begun = asyncio.Event()
        self.forever = False

    def require_offered(self, offer: LeaseOffer) -> None:
        pass

    async def perform(self, offer: LeaseOffer, scratch: Scratch, timeout_ms: int, sink: OutputSink) -> CallEnd:
        self.begun.set()
        result = self.act(scratch.workspace)
        if self.forever:
            await asyncio.Event().wait()
        return CallEnd(outcome=LeaseOutcome.SUCCEEDED, result=result, executor="builtin")

    def is_protected(self, names: tuple[str, ...]) -> bool:
        return names[-1] == ".env"


class Line:
    """``trouble`` is raised, one after the other, before anything works."""

    def __init__(self, *trouble: Exception) -> None:
        self.trouble = list(trouble)
        self.uploaded: list[str] = []
        self.data = DATA

    def _stumble(self) -> None:
        if self.trouble:
            raise self.trouble.pop(0)

    async def find_missing(self, lease_id: str, fence: int, digests: Any) -> set[str]:
        self._stumble()
        return set(digests)

    async def upload(self, lease_id: str, fence: int, artifact: ArtifactRef, descriptor: int) -> None:
        self.uploaded.append(artifact.path)

    async def download(self, lease_id: str, fence: int, artifact: ArtifactRef, write: Callable[[bytes], None]) -> None:
        write(self.data[:2])
        self._stumble()
        write(self.data[2:])


class GatewayHarness:
    def __init__(self, root: Path, calls: Calls, line: Line) -> None:
        self.scratches = ScratchFolder(root / "scratch", remove_tree=remove_tree)
        self.calls = calls
        self.line = line

        async def connected() -> Line:
            return self.line

        self.runner = LeaseRunner(
            scratches=self.scratches,
            calls=calls,
            clock=SystemClock(),
            connected=connected,
            proof_of=lambda offer: {"layer": "worker", "asked": offer.lease_id, "got": "here"},
        )

    async def run(self, **changes: Any) -> Any:
        offer = msgspec.structs.replace(OFFER, **changes)
        return await self.runner.run(offer, grace_ms=10_000, sink=lambda stream, data: None)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_runner, "_LOOK_AGAIN", (0.01, 0.01))


async def test_inputs_are_there_results_are_sent_and_everything_is_gone(tmp_path: Path) -> None:
    def act(workspace: Path) -> str:
        (workspace / "src/made").write_bytes(b"new")
        (workspace / "src/.env").write_bytes(b"new")
        return (workspace / "src/a").read_text()

    harness = GatewayHarness(tmp_path, Calls(act), Line())
    end = await harness.run(inputs=(INPUT,), scope=WRITES)
    assert end.outcome is LeaseOutcome.SUCCEEDED and end.result == "data" and harness.line.uploaded == ["src/made"]
    assert [line["layer"] for line in end.receipt] == ["worker", "artifacts"] and "1 protected" in end.receipt[1]["got"]
    assert end.cleanup.entries_left == 0 and end.cleanup.ended_ms <= end.cleanup.checked_ms
    assert (end.cleanup.lease_id, end.cleanup.fence, end.cleanup.nonce) == (OFFER.lease_id, 1, OFFER.nonce)
    assert harness.scratches.names() == []


async def test_a_line_that_breaks_is_waited_for(tmp_path: Path) -> None:
    lost = LinkLost(LossKind.UNREACHABLE, "broken")
    harness = GatewayHarness(
        tmp_path, Calls(lambda workspace: (workspace / "src/b").write_bytes(b"x")), Line(lost, lost)
    )
    end = await harness.run(inputs=(INPUT,), scope=WRITES)
    assert end.outcome is LeaseOutcome.SUCCEEDED and harness.line.uploaded == ["src/b"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (Line(LinkLost(LossKind.TURNED_AWAY, "no", final=True)), "worker.artifact_missing"),
        (Line(), "worker_artifact.damaged"),
    ],
)
async def test_an_input_that_does_not_come_as_named_ends_the_lease(tmp_path: Path, line: Line, code: str) -> None:
    line.data = b"dats"
    harness = GatewayHarness(tmp_path, Calls(), line)
    end = await harness.run(inputs=(INPUT,))
    assert end.outcome is LeaseOutcome.FAILED and end.error["code"] == code and not harness.calls.begun.is_set()
    assert end.cleanup.entries_left == 0


async def test_an_input_that_never_comes_ends_with_the_deadline(tmp_path: Path) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line(*[LinkLost(LossKind.UNREACHABLE, "x")] * 10_000))
    end = await harness.run(inputs=(INPUT,), timeout_ms=100)
    assert end.error["code"] == "worker.artifact_missing"


async def test_results_that_are_not_taken_are_a_failure(tmp_path: Path) -> None:
    harness = GatewayHarness(
        tmp_path,
        Calls(lambda workspace: ((workspace / "src").mkdir(), (workspace / "src/b").write_bytes(b"x"))[1]),
        Line(LinkLost(LossKind.UNREACHABLE, "no", final=True)),
    )
    end = await harness.run(scope=WRITES)
    assert end.error["code"] == "worker.artifacts_unsent" and end.artifacts == ()


async def test_a_stopped_call_is_cancelled_and_cleaned_up(tmp_path: Path) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line())
    harness.calls.forever = True
    running = asyncio.create_task(harness.run())
    await harness.calls.begun.wait()
    assert harness.scratches.names() == [OFFER.lease_id]
    harness.runner.stop(OFFER.lease_id)
    end = await running
    assert end.outcome is LeaseOutcome.CANCELLED and harness.scratches.names() == []
    harness.runner.stop("unknown")


async def test_a_lease_that_was_stopped_before_it_began_does_not_begin(tmp_path: Path) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line())
    end = await harness.runner.run(OFFER, grace_ms=1, sink=lambda stream, data: None, stopped=True)
    assert end.outcome is LeaseOutcome.CANCELLED and not harness.calls.begun.is_set() and end.cleanup.workspace == ""


@pytest.mark.promise("P-call-ends")
async def test_a_lease_that_is_stopped_while_its_place_is_made_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line())
    harness.calls.forever = True
    loop, make = asyncio.get_running_loop(), harness.scratches.make

    async def stop() -> None:
        harness.runner.stop(OFFER.lease_id)

    def stopped_meanwhile(lease_id: str) -> Any:
        made = make(lease_id)
        asyncio.run_coroutine_threadsafe(stop(), loop).result(60)
        return made

    monkeypatch.setattr(harness.scratches, "make", stopped_meanwhile)
    end = await harness.run()
    assert end.outcome is LeaseOutcome.CANCELLED and not harness.calls.begun.is_set()
    assert harness.scratches.names() == []


async def test_a_call_that_breaks_is_an_end_too(tmp_path: Path) -> None:
    def broken(_workspace: Path) -> None:
        raise RuntimeError("inner words")

    end = await GatewayHarness(tmp_path, Calls(broken), Line()).run()
    assert end.outcome is LeaseOutcome.FAILED and end.cleanup.entries_left == 0 and "inner words" not in str(end.error)


async def test_what_stays_is_told_and_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line())
    harness.scratches._remove_tree = lambda _path: None
    end = await harness.run()
    assert end.cleanup.entries_left == 3 and end.outcome is LeaseOutcome.SUCCEEDED
    looks = [Residue(0, 1, 0), Residue(0, 0, 0)]
    monkeypatch.setattr(lease_runner, "look", lambda *_args: looks.pop(0))
    other = msgspec.structs.replace(OFFER, lease_id="0" * 26)
    end = await harness.runner.run(other, grace_ms=1, sink=lambda stream, data: None)
    assert end.cleanup.processes_left == 0 and looks == [], "a process that was just killed gets a second look"


async def test_a_lease_of_an_earlier_life_is_ended_as_interrupted(tmp_path: Path) -> None:
    harness = GatewayHarness(tmp_path, Calls(), Line())
    harness.scratches.make(OFFER.lease_id)
    note = await harness.runner.end_unfinished(LeaseNote.of(OFFER, 5), Interrupted("the worker stopped"))
    assert note.end is not None and note.end.outcome is LeaseOutcome.FAILED and note.end.started_ms == 5
    assert (note.end.error or {})["code"] == "worker.interrupted" and harness.scratches.names() == []
