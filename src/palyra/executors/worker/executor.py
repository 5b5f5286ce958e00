"""The worker executor: it runs an authorised call on a worker of the fleet and adds the worker's attestation.

The daemon grants the hosts of such a call to the worker's egress proxy before the call runs. A proxy on another machine
cannot ask policy for each connection, so policy decides here once per host and port. A rule for a name pattern cannot
be decided in advance and is not granted.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import msgspec

from palyra.canonical import canonical_json
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.rules import HostRule, parse_rules
from palyra.egress.domain.target import Target
from palyra.errors import CallCancelled, ExitCode, PalyraError, RemoteError
from palyra.executors.network.service import NetworkService
from palyra.executors.process.executor import choose_hosts
from palyra.executors.worker.files import copy_to_workspace, gather_inputs, refuse_changed_inputs, scope_of
from palyra.fleet.domain.lease import LeaseOutcome, LeaseRequest
from palyra.fleet.domain.settlement import LeaseReport
from palyra.fleet.store.artifacts import ArtifactStore
from palyra.pipeline.attest import build_worker_receipt
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallTimedOut, ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import WORKER_EXECUTOR, ToolSpec, ToolTier
from palyra.sandbox.settings import SandboxSettings
from palyra.workspace.protected_table import watched_in_sandbox

_PROGRAMS = "process.run"
# The hosts that a call may reach from a worker, its bytes and its tunnels.
HostsOfCall = Callable[[ExecutionPlan], tuple[tuple[str, ...], int, int]]


@dataclass(eq=False)
class WorkerHosts:
    settings: SandboxSettings
    egress: NetworkService

    def __call__(self, plan: ExecutionPlan) -> tuple[tuple[str, ...], int, int]:
        """Return rules, bytes and tunnels. All bytes count as used: only the worker's proxy knows the true number."""
        if plan.tool != _PROGRAMS or plan.obligations.egress == "none":
            return (), 0, 0
        wanted = parse_rules(choose_hosts(plan.arguments, self.settings.allowed_hosts))
        exact = [HostRule(rule.host, port) for rule in wanted if not rule.below for port in rule.ports]
        if not exact:
            return (), 0, 0
        grant = self.egress.grant_for(plan, tuple(map(str, exact)))
        self.egress.enter(plan, grant)
        try:
            allowed = tuple(str(rule) for rule in exact if self._is_allowed(grant, rule))
        finally:
            self.egress.leave(grant)
        if not allowed:
            return (), 0, 0
        plan.usage.note(BudgetKind.EGRESS_BYTES, grant.max_bytes)
        return allowed, grant.max_bytes, grant.max_tunnels

    def _is_allowed(self, grant: EgressGrant, rule: HostRule) -> bool:
        target = Target.of(rule.host, rule.port or 0, scheme="tcp")
        if grant.inspects(target):
            # A worker's proxy ends no TLS: it could not tell a request that is allowed from another.
            return False
        try:
            self.egress.service.judge_target(grant, target)
        except PalyraError:
            return False
        return True


class LeaseCalls(Protocol):
    async def run(self, request: LeaseRequest) -> LeaseReport: ...


class WorkerFleet(Protocol):
    @property
    def files(self) -> ArtifactStore:
        """The store of leases' files."""

    def calls(self) -> LeaseCalls:
        """Return the service that leases calls. Raise Unavailable without a daemon or with workers switched off."""


@dataclass(eq=False)
class WorkerExecutor:
    """``fleet`` is made on first use. ``check`` raises for a call that its local executor would refuse."""

    name = WORKER_EXECUTOR
    keeps_deadline = True

    fleet: Callable[[], WorkerFleet]
    catalog: Catalog
    _: KW_ONLY
    protected: tuple[str, ...]
    hosts: HostsOfCall
    check: Callable[[ExecutionPlan], None]
    # Raises if the files that the approval is bound to are others by now. Blocking.
    verify: Callable[[ExecutionPlan], None] = lambda plan: None

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        fleet = self.fleet()
        calls = fleet.calls()
        self.check(plan)
        request = await self._build_request(plan, fleet.files)
        if BudgetKind.WASM_FUEL in plan.granted:
            # All of it counts as used: only the worker knows what a guest burned there.
            plan.usage.note(BudgetKind.WASM_FUEL, plan.granted[BudgetKind.WASM_FUEL])
        report = await calls.run(request)
        artifacts, scope = report.settled.statement.artifacts, report.lease.scope
        if artifacts:
            await _run_in_thread(
                lambda stop: copy_to_workspace(
                    scope, artifacts, self._protected_for(plan), fleet.files, stop, decided=plan.places
                )
            )
        return outcome_of(report, plan)

    def _protected_for(self, plan: ExecutionPlan) -> tuple[str, ...]:
        """Return the names that do not travel. Programs need, and make, what package tools write in every install."""
        return self.protected if plan.tool.startswith("fs.") else watched_in_sandbox(self.protected)

    async def _build_request(self, plan: ExecutionPlan, files: ArtifactStore) -> LeaseRequest:
        spec = self.catalog.entry(plan.tool).spec
        paths = spec.touches(plan.arguments).paths
        whole = scope_of(spec, paths, plan.workspace, read_only=bool(plan.obligations.read_only))
        await asyncio.to_thread(self.verify, plan)
        scope, inputs = await _run_in_thread(
            lambda stop: gather_inputs(whole, self._protected_for(plan), files, stop, decided=plan.places)
        )
        refuse_changed_inputs(plan.bound, inputs)
        hosts, egress_bytes, tunnels = self.hosts(plan)
        return LeaseRequest(
            run_id=plan.run_id,
            call_id=plan.call_id,
            principal=plan.principal,
            tool=plan.tool,
            arguments_json=canonical_json(dict(plan.arguments)),
            argument_digest=plan.argument_digest,
            tier=plan.tier.value,
            obligations_json=_encode_obligations(plan),
            needs=needs_of(spec, plan.tier),
            scope=scope,
            inputs=inputs,
            idempotent=spec.idempotent,
            timeout_ms=plan.timeout_ms,
            max_output_bytes=plan.max_output_bytes,
            approval_id=plan.approval_id,
            hosts=hosts,
            egress_bytes=egress_bytes,
            egress_tunnels=tunnels,
        )


def needs_of(spec: ToolSpec, tier: ToolTier) -> frozenset[str]:
    """Return the capabilities that a worker must have attested to get the call."""
    needs = {f"tool.{spec.name}"}
    if tier is not ToolTier.BUILTIN:
        needs.add(f"tier.{tier.value}")
    return frozenset(needs)


def outcome_of(report: LeaseReport, plan: ExecutionPlan) -> ExecutorOutcome:
    settled = report.settled
    own = build_worker_receipt(
        worker_id=report.lease.worker_id,
        lease_id=report.lease.lease_id,
        fence=report.lease.fence,
        key_id=report.key_id,
        key_der=report.key_der,
        execution_sha256=settled.statement.execution_sha256,
        output_digest=settled.statement.output_digest,
    )
    return ExecutorOutcome(
        result=settled.result,
        receipt=(own, *settled.attestation.receipt),
        error=_error_of(report, plan),
        worker_attestation=settled.envelope,
    )


def _error_of(report: LeaseReport, plan: ExecutionPlan) -> PalyraError | None:
    """Return the worker's error with its own code and message, as if the call had run here."""
    match report.settled.statement.outcome:
        case LeaseOutcome.SUCCEEDED:
            return None
        case LeaseOutcome.TIMED_OUT:
            return CallTimedOut(f"{plan.tool} did not finish in time on its worker")
        case LeaseOutcome.CANCELLED:
            return CallCancelled(f"{plan.tool} was stopped on its worker")
        case _:
            return _to_remote_error(report.settled.error or {})


def _to_remote_error(error: dict[str, Any]) -> PalyraError:
    code = str(error.get("code", "call.tool_failed"))
    known = PalyraError.registry.get(code)
    return RemoteError(
        str(error.get("message", "the call failed on its worker")),
        remote_code=code,
        hint=str(error.get("hint", "")),
        exit_code=int(ExitCode.FAILED if known is None else known.exit_code),
    )


def _encode_obligations(plan: ExecutionPlan) -> bytes:
    fields = {name: value for name, value in msgspec.structs.asdict(plan.obligations).items() if value is not None}
    # The place is decided by now.
    fields.pop("place", None)
    return canonical_json(fields)


async def _run_in_thread(work: Callable[[threading.Event], Any]) -> Any:
    """Run blocking work. Cancelling the task sets the event and waits, so that no thread is left behind."""
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise
