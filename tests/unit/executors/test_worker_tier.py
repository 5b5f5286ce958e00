"""The executor of the worker tier: what it asks a worker for, what it makes of the answer, and the files in between."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import a_lease
from palyra.canonical import digest_of
from palyra.errors import CallCancelled, Denied, RemoteError
from palyra.executors.inspection import CallInspector
from palyra.executors.tool_set import builtin_catalog
from palyra.executors.worker.executor import WorkerExecutor, needs_of
from palyra.fleet.domain.lease import LeaseOutcome, LeaseRequest
from palyra.fleet.domain.settlement import CleanupProof, LeaseReport, LeaseSettlement, SettledResult
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.fleet.store.artifacts import ArtifactStore
from palyra.pipeline.domain.approval import ApprovedFileChanged, SentFiles
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallTimedOut, ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.policy.decision import Obligations
from palyra.sandbox.settings import SandboxSettings
from palyra.signing.tool_attestation import ToolAttestation
from palyra.workspace.errors import PlaceChanged

CATALOG = builtin_catalog(SandboxSettings())


class Refused(Denied):
    code = "test.refused"


class Worker:
    """Stands for the fleet: answers as it is told, and remembers what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.files = ArtifactStore(folder / "artifacts")
        self.asked: list[LeaseRequest] = []
        self.outcome = LeaseOutcome.SUCCEEDED
        self.error: dict[str, Any] | None = None
        self.made: tuple[ArtifactRef, ...] = ()
        self.checked: list[str] = []

    def calls(self) -> "Worker":
        return self

    async def run(self, ask: LeaseRequest) -> LeaseReport:
        self.asked.append(ask)
        lease = a_lease(tool=ask.tool, scope=ask.scope)
        cleanup = CleanupProof(
            lease_id="l", fence=1, nonce="", workspace="", ended_ms=0, checked_ms=0,
            entries_left=0, processes_left=0, mounts_left=0,
        )  # fmt: skip
        statement = LeaseSettlement(
            worker_id="w", lease_id="l", fence=1, outcome=self.outcome, output_digest="d", output_bytes=1,
            artifacts=self.made, execution_sha256="e", started_ms=0, ended_ms=1, cleanup=cleanup,
        )  # fmt: skip
        said = ToolAttestation(
            call_id="c", run_id="r", principal="agent:a", tool=ask.tool, argument_digest="", decision="leased",
            policies=(), bundle_digest="", executor="worker/w", receipt=({"layer": "code"},), outcome="succeeded",
            output_digest="d", started_ms=0, ended_ms=1,
        )  # fmt: skip
        settled = SettledResult(
            statement=statement, attestation=said, envelope={"payload": ""}, result={"n": 1}, error=self.error
        )
        return LeaseReport(lease=lease, settled=settled, key_id="p256:1", key_der=b"k", worker_name="w")

    def check(self, plan: ExecutionPlan) -> None:
        self.checked.append(plan.tool)
        if plan.arguments.get("path") == "refused.wasm":
            raise Refused("not this one")

    def hosts(self, plan: ExecutionPlan) -> tuple[tuple[str, ...], int, int]:
        return (("example.com:443",), 10, 2) if plan.tool == "process.run" else ((), 0, 0)

    def tier(self) -> WorkerExecutor:
        return WorkerExecutor(lambda: self, CATALOG, protected=(".env*",), hosts=self.hosts, check=self.check)

    def plan(self, tool: str, arguments: dict[str, Any], **changes: Any) -> ExecutionPlan:
        fields: dict[str, Any] = {"tier": ToolTier.BUILTIN, "obligations": Obligations(place="worker"), **changes}
        return ExecutionPlan(
            call_id="c", run_id="r", tool=tool, arguments=arguments, workspace=str(self.workspace), timeout_ms=5_000,
            max_output_bytes=100, principal="agent:a", on_worker=True, argument_digest=digest_of(arguments), **fields,
        )  # fmt: skip

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.files.add(iter((content,)), len(content), digest)
        return digest


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


async def test_a_call_is_asked_for_as_it_was_decided(worker: Worker) -> None:
    plan = worker.plan("echo", {"text": "hi"}, obligations=Obligations(place="worker", timeout_ms=5), approval_id="01A")
    outcome = await worker.tier().execute(plan)
    (ask,) = worker.asked
    assert (ask.tool, ask.tier, ask.approval_id, ask.idempotent) == ("echo", "builtin", "01A", True)
    assert ask.arguments_json == b'{"text":"hi"}' and hashlib.sha256(ask.arguments_json).hexdigest() == (
        ask.argument_digest
    )
    # Where it runs is settled; the rest of what policy obliges to goes along.
    assert ask.obligations_json == b'{"timeout_ms":5}' and ask.needs == {"tool.echo"}
    assert (ask.inputs, ask.scope.allowed_paths, ask.scope.read_only, ask.hosts) == ((), (), True, ())
    assert outcome.result == {"n": 1} and outcome.worker_attestation == {"payload": ""}
    assert [entry["layer"] for entry in outcome.receipt] == ["worker_lease", "code"]


async def test_a_program_gets_the_workspace_without_what_is_protected(worker: Worker) -> None:
    (worker.workspace / "src").mkdir()
    (worker.workspace / "src" / "a.txt").write_text("a")
    (worker.workspace / "run").write_text("#!")
    (worker.workspace / "run").chmod(0o755)
    (worker.workspace / ".env").write_text("secret")
    (worker.workspace / "link").symlink_to("/etc/passwd")
    await worker.tier().execute(worker.plan("process.run", {"command": "ls"}, tier=ToolTier.C))
    (ask,) = worker.asked
    assert [(one.path, one.executable) for one in ask.inputs] == [("run", True), ("src/a.txt", False)]
    assert all(worker.files.has(one.digest_sha256) for one in ask.inputs)
    assert ask.needs == {"tool.process.run", "tier.c"} and not ask.idempotent and not ask.scope.read_only
    assert (ask.hosts, ask.egress_bytes, ask.egress_tunnels) == (("example.com:443",), 10, 2)


async def test_a_file_that_changed_after_the_approval_is_not_sent(worker: Worker) -> None:
    """Whoever changes it: before the last look, and between that look and the reading of what is sent."""
    script = worker.workspace / "build.sh"
    inspector = CallInspector(SandboxSettings(), (".env*",))
    plan = worker.plan("process.run", {"command": "bash", "args": ["build.sh"]}, tier=ToolTier.C, approved=True)
    for verify in (inspector.verify, lambda _plan: script.write_text("echo evil")):
        script.write_text("echo good")
        inspected = inspector.inspect(CATALOG.entry("process.run").spec, plan)
        assert inspected.sends == SentFiles(paths=(".",), files=1, bytes=9)
        bound = msgspec.structs.replace(plan, bound=inspected.files)
        tier = worker.tier()
        tier.verify = verify
        if verify == inspector.verify:
            await tier.execute(bound)
            assert len(worker.asked) == 1
            script.write_text("echo evil")
        with pytest.raises(ApprovedFileChanged):
            await tier.execute(bound)
        assert len(worker.asked) == 1


async def test_a_file_is_sent_from_the_place_that_was_decided(worker: Worker) -> None:
    for folder in ("docs", "notes"):
        (worker.workspace / folder).mkdir()
        (worker.workspace / folder / "a.txt").write_text(folder)
    (worker.workspace / "way").symlink_to("docs")
    for path, tool in (("way/a.txt", "fs.read"), ("way", "fs.list")):
        decided = {path: path.replace("way", "notes")}
        with pytest.raises(PlaceChanged):
            await worker.tier().execute(worker.plan(tool, {"path": path}, places=decided))
    assert worker.asked == []


async def test_a_file_tool_gets_what_it_names(worker: Worker) -> None:
    for name in ("a.txt", "b.txt"):
        (worker.workspace / name).write_text(name)
    tier = worker.tier()
    await tier.execute(worker.plan("fs.read", {"path": "a.txt"}))
    await tier.execute(worker.plan("fs.write", {"path": "new.txt", "content": "x"}))
    await tier.execute(
        worker.plan("fs.write", {"path": "a.txt", "content": "x"}, obligations=Obligations(read_only=True))
    )
    read, written, only_read = worker.asked
    assert [one.path for one in read.inputs] == ["a.txt"] and read.scope.read_only
    assert written.inputs == () and written.scope.allowed_paths == ("new.txt",) and not written.scope.read_only
    assert only_read.scope.read_only


async def test_what_came_back_is_written_where_it_may_be(worker: Worker) -> None:
    worker.made = (ArtifactRef(path="out/x", digest_sha256=worker.put(b"made"), size=4, executable=True),)
    await worker.tier().execute(worker.plan("process.run", {"command": "make"}, tier=ToolTier.C))
    made = worker.workspace / "out" / "x"
    assert made.read_bytes() == b"made" and made.stat().st_mode & 0o100
    worker.made = (ArtifactRef(path=".env", digest_sha256=worker.put(b"planted"), size=7),)
    with pytest.raises(Denied) as error:
        await worker.tier().execute(worker.plan("process.run", {"command": "make"}, tier=ToolTier.C))
    assert error.value.code == "workspace.protected_name" and not (worker.workspace / ".env").exists()


async def test_failures_keep_their_own_words(worker: Worker) -> None:
    tier, plan = worker.tier(), worker.plan("echo", {"text": "x"})
    worker.outcome, worker.error = LeaseOutcome.FAILED, {"code": "workspace.not_found", "message": "m", "hint": "h"}
    failed = (await tier.execute(plan)).error
    assert isinstance(failed, RemoteError) and failed.as_dict()["code"] == "workspace.not_found"
    worker.outcome = LeaseOutcome.TIMED_OUT
    assert isinstance((await tier.execute(plan)).error, CallTimedOut)
    worker.outcome = LeaseOutcome.CANCELLED
    assert isinstance((await tier.execute(plan)).error, CallCancelled)


async def test_what_would_be_refused_here_is_refused_before_it_is_asked_for(worker: Worker) -> None:
    with pytest.raises(Refused):
        await worker.tier().execute(worker.plan("plugin.run", {"path": "refused.wasm"}, tier=ToolTier.A))
    assert worker.asked == [] and worker.checked == ["plugin.run"]


@pytest.mark.promise("P-budget-charged")
@pytest.mark.parametrize("outcome", list(LeaseOutcome))
async def test_fuel_burned_on_a_worker_is_charged_however_that_ends(worker: Worker, outcome: LeaseOutcome) -> None:
    """A run's fuel is not to be had for nothing by asking for a worker."""
    (worker.workspace / "m.wasm").write_bytes(b"")
    worker.outcome, granted = outcome, {BudgetKind.CALLS: 1, BudgetKind.WASM_FUEL: 7_000}
    plan = worker.plan("plugin.run", {"path": "m.wasm"}, tier=ToolTier.A, granted=granted)
    await worker.tier().execute(plan)
    assert plan.usage.take() == {BudgetKind.WASM_FUEL: 7_000}


def test_what_a_worker_needs_to_be_able_to() -> None:
    assert needs_of(CATALOG.entry("plugin.run").spec, ToolTier.A) == {"tool.plugin.run", "tier.a"}
