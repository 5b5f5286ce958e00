"""What a call may reach from a worker: hosts that policy allows now, told to that worker's proxy before the call runs.

A proxy on another machine cannot put each connection to policy as the daemon's own does. So policy is asked once, here,
for each host and port; names that only a pattern allows could not be asked about, and are not granted.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from palyra.canonical import canonical_json
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.rules import HostRule, parse_rules
from palyra.egress.domain.target import Target
from palyra.errors import CallCancelled, ExitCode, PalyraError, RemoteError
from palyra.executors.network.service import EgressParts
from palyra.executors.process.executor import hosts_for
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.pipeline.attest import worker_receipt
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallTimedOut, ExecutionPlan, Outcome
from palyra.pipeline.domain.spec import WORKER_EXECUTOR, ToolSpec, ToolTier
from palyra.sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from palyra.daemon.fleet_wiring import WorkerParts
    from palyra.fleet.domain.lease_request import LeaseAsk, LeaseReport

_PROGRAMS = "process.run"


class HostsOnWorkers:
    def __init__(self, settings: SandboxSettings, egress: EgressParts) -> None:
        self._settings = settings
        self._egress = egress

    def __call__(self, plan: ExecutionPlan) -> tuple[tuple[str, ...], int, int]:
        """Rules, bytes and tunnels. The bytes count as used: what a worker moved, only its own proxy knows."""
        if plan.tool != _PROGRAMS or plan.obligations.egress == "none":
            return (), 0, 0
        asked = parse_rules(hosts_for(plan.arguments, self._settings.allowed_hosts))
        exact = [HostRule(rule.host, port) for rule in asked if not rule.below for port in rule.ports]
        if not exact:
            return (), 0, 0
        grant = self._egress.grant_for(plan, tuple(map(str, exact)))
        self._egress.enter(plan, grant)
        try:
            allowed = tuple(str(rule) for rule in exact if self._allows(grant, rule))
        finally:
            self._egress.leave(grant)
        if not allowed:
            return (), 0, 0
        plan.usage.note(BudgetKind.EGRESS_BYTES, grant.max_bytes)
        return allowed, grant.max_bytes, grant.max_tunnels

    def _allows(self, grant: EgressGrant, rule: HostRule) -> bool:
        try:
            self._egress.service.judge_target(grant, Target.of(rule.host, rule.port or 0, scheme="tcp"))
        except PalyraError:
            return False
        return True


# The worker tier: a call that was decided on here, run by a worker of the fleet, with its word beside ours.


class WorkerHosts(Protocol):
    def __call__(self, plan: ExecutionPlan) -> tuple[tuple[str, ...], int, int]:
        """The hosts that the call may reach from a worker, the bytes and the tunnels."""


class WorkerTier:
    """``parts`` is made on first use: most commands never need a fleet."""

    name = WORKER_EXECUTOR
    keeps_deadline = True

    def __init__(
        self,
        parts: "Callable[[], WorkerParts]",
        catalog: Catalog,
        *,
        protected: tuple[str, ...],
        hosts: WorkerHosts,
        check: Callable[[ExecutionPlan], None],
    ) -> None:
        """``check`` raises for a call that its own executor would refuse before it ran it."""
        self._parts = parts
        self._catalog = catalog
        self._protected = protected
        self._hosts = hosts
        self._check = check

    async def execute(self, plan: ExecutionPlan) -> Outcome:
        from palyra.executors.worker.files import write_back

        parts = self._parts()
        calls = parts.calls()
        self._check(plan)
        ask = await self._ask(plan)
        if BudgetKind.WASM_FUEL in plan.granted:
            # All of it counts as used: what a guest burned elsewhere, only its worker knows.
            plan.usage.note(BudgetKind.WASM_FUEL, plan.granted[BudgetKind.WASM_FUEL])
        report = await calls.run(ask)
        artifacts = report.settled.statement.artifacts
        if artifacts:
            store, scope = parts.artifacts.store, report.lease.scope
            await _in_thread(lambda stop: write_back(scope, artifacts, self._protected, store, stop))
        return outcome_of(report, plan)

    async def _ask(self, plan: ExecutionPlan) -> "LeaseAsk":
        from palyra.executors.worker.files import gather, scope_of
        from palyra.fleet.domain.lease_request import LeaseAsk

        spec = self._catalog.entry(plan.tool).spec
        touched = spec.touches(plan.arguments).paths
        read_only = bool(plan.obligations.read_only)
        scope = scope_of(spec, touched, plan.workspace, read_only=read_only)
        store = self._parts().artifacts.store
        scope, inputs = await _in_thread(lambda stop: gather(scope, self._protected, store, stop))
        hosts, egress_bytes, tunnels = self._hosts(plan)
        return LeaseAsk(
            run_id=plan.run_id,
            call_id=plan.call_id,
            principal=plan.principal,
            tool=plan.tool,
            arguments_json=canonical_json(dict(plan.arguments)),
            argument_digest=plan.argument_digest,
            tier=plan.tier.value,
            obligations_json=_obligations(plan),
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
    """What a worker has to have attested that it can do."""
    needs = {f"tool.{spec.name}"}
    if tier is not ToolTier.BUILTIN:
        needs.add(f"tier.{tier.value}")
    return frozenset(needs)


def outcome_of(report: "LeaseReport", plan: ExecutionPlan) -> Outcome:
    settled = report.settled
    mine = worker_receipt(
        worker_id=report.lease.worker_id,
        lease_id=report.lease.lease_id,
        fence=report.lease.fence,
        key_id=report.key_id,
        key_der=report.key_der,
        execution_sha256=settled.statement.execution_sha256,
        output_digest=settled.statement.output_digest,
    )
    return Outcome(
        result=settled.result,
        receipt=(mine, *settled.attestation.receipt),
        error=_error_of(report, plan),
        worker_attestation=settled.envelope,
    )


def _error_of(report: "LeaseReport", plan: ExecutionPlan) -> PalyraError | None:
    """The worker's error in its own words, as every door would have shown it had the call run here."""
    said: dict[str, Any] = report.settled.error or {}
    match report.settled.statement.outcome:
        case LeaseOutcome.SUCCEEDED:
            return None
        case LeaseOutcome.TIMED_OUT:
            return CallTimedOut(f"{plan.tool} did not finish in time on its worker")
        case LeaseOutcome.CANCELLED:
            return CallCancelled(f"{plan.tool} was stopped on its worker")
        case _:
            return _remote(said)


def _remote(said: dict[str, Any]) -> PalyraError:
    code = str(said.get("code", "call.tool_failed"))
    known = PalyraError.registry.get(code)
    return RemoteError(
        str(said.get("message", "the call failed on its worker")),
        remote_code=code,
        hint=str(said.get("hint", "")),
        exit_code=int(ExitCode.FAILED if known is None else known.exit_code),
    )


def _obligations(plan: ExecutionPlan) -> bytes:
    put = {name: value for name, value in msgspec.structs.asdict(plan.obligations).items() if value is not None}
    # Where it runs is settled by now.
    put.pop("place", None)
    return canonical_json(put)


async def _in_thread(work: Callable[[threading.Event], Any]) -> Any:
    """A cancelled call is told so and waited for: it leaves no thread behind."""
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise
