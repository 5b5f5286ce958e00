"""One tool call: who asks for what, the decision on it, the states it goes through."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from palyra import limits
from palyra.clock import rfc3339
from palyra.errors import Denied, ExitCode, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.ids import CallId, Principal, RunId
from palyra.pipeline.domain.approval import BoundFile
from palyra.pipeline.domain.budget import BudgetKind, RunBudget, Usage
from palyra.pipeline.domain.spec import AccessedResources, Arguments, ToolSpec, ToolTier
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.policy.decision import NO_OBLIGATIONS, Decision, Obligations, PolicyPort
from palyra.policy.request import Entity, EntityDirectory, EntityRef, PolicyRequest, tool_request
from palyra.store.event import NewEvent

ToolDecision = Decision
# Obligations that say where a call runs. The rest is what its executor holds it to.
_PLACES = frozenset(("tier", "place"))


class UnknownTool(Denied):
    code = "tool.unknown"
    hint = "`palyra tools list` shows the tools there are"


class CallDenied(Denied):
    code = "call.denied"
    hint = "`palyra policy explain` tells more"


class CallTimedOut(LimitExceeded):
    code = "call.timed_out"
    hint = "ask for less, or for a longer timeout_ms within the configured maximum"
    http_status = 504


class OutputTooLarge(LimitExceeded):
    code = "call.output_too_large"
    hint = "ask for a smaller part, or write the result to a workspace file"


class OutputRefused(Failed):
    code = "call.output_mismatch"
    hint = "the tool returned something its own output schema does not allow: report it to the tool's author"


class Unenforceable(Unavailable):
    code = "call.unenforceable"
    hint = "policy demands what this tool or machine cannot give; the call is refused rather than weakened"


class TooManyCalls(LimitExceeded):
    code = "call.too_many_at_once"
    hint = "wait for a running call to finish, then try again"


class Stopping(Unavailable):
    code = "daemon.stopping"
    hint = "try again when the daemon is back"


class ToolFailed(Failed):
    code = "call.tool_failed"
    hint = "the tool's own message says why"
    http_status = 422


class UnknownCall(InvalidInput):
    code = "call.unknown"
    hint = "the id is wrong, or the call belongs to another principal"
    http_status = 404


class UnknownRun(InvalidInput):
    code = "run.unknown"
    hint = "omit run_id to use the principal's run of the hour, or name one that was opened for this principal"
    http_status = 404


class CallState(StrEnum):
    RUNNING = "running"
    DENIED = "denied"
    REFUSED = "refused"
    NEEDS_APPROVAL = "needs_approval"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


FINAL_STATES = frozenset(CallState) - {CallState.RUNNING}


class ToolCallConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The boundaries of every call of this daemon.

    Policy says whether a tool, principal or channel is allowed, over the directory built from the same settings.
    """

    directory: EntityDirectory
    workspaces: Workspaces
    timeout_ms: int = limits.DEFAULT_CALL_TIMEOUT_MS
    max_timeout_ms: int = limits.MAX_CALL_TIMEOUT_MS
    max_output_bytes: int = limits.MAX_TOOL_OUTPUT_BYTES
    max_concurrent_calls: int = limits.MAX_CONCURRENT_CALLS
    max_concurrent_calls_per_principal: int = limits.MAX_CONCURRENT_CALLS_PER_PRINCIPAL
    calls_for_operators: int = limits.CALLS_FOR_OPERATORS
    runs_per_hour: int = limits.DEFAULT_RUNS_PER_HOUR
    run_budget: RunBudget = RunBudget()
    approval_ttl_ms: int = 900_000
    denied_again_ms: int = 300_000
    max_approval_ttl_ms: int = 86_400_000

    @property
    def max_calls_per_run(self) -> int:
        return self.run_budget.calls


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call as its entry point received it. ``arguments`` is text, or an object out of a strictly parsed envelope."""

    tool: str
    arguments: str | bytes | dict[str, Any]
    principal: Principal
    actor: str
    channel: str
    run_id: RunId | None = None
    # Approvals of scope ``session`` hold within it.
    session: str = ""
    # Whether the connection proves the session. Policy sees no other.
    proves_session: bool = True
    # The device that the connection proves.
    device: str = ""
    wait_ms: int = 0
    timeout_ms: int | None = None
    # An id that the entry point gave it, so that it can be cancelled from the first moment.
    call_id: CallId | None = None
    # The tier that the caller wishes, if not the tool's own. Policy has to agree.
    tier: ToolTier | None = None


class ToolRequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """The requester of a call, its workspace, on which connection, and in what run and session."""

    principal: Principal
    actor: str
    channel: str
    run: str
    workspace: str
    session: str = ""
    device: str = ""


def build_tool_entity(directory: EntityDirectory, spec: ToolSpec) -> Entity:
    """Build the tool as policies see it."""
    return directory.tool(
        str(spec.name),
        frozenset(capability.value for capability in spec.metadata.capabilities),
        spec.metadata.sensitive,
        spec.tier.value,
    )


def build_policy_request(
    config: ToolCallConfig,
    context: ToolRequestContext,
    spec: ToolSpec,
    arguments: Arguments,
    touches: AccessedResources,
    browser_session: Entity | None = None,
) -> PolicyRequest:
    """Build the question for policy, out of entities rather than computed answers."""
    directory = config.directory
    return tool_request(
        directory.principal(context.principal),
        build_tool_entity(directory, spec),
        directory.channel(context.channel),
        workspace=context.workspace,
        run=context.run,
        argument_bytes=len(arguments.canonical),
        paths=touches.paths,
        hosts=touches.hosts,
        session=context.session or None,
        device=Entity(uid=EntityRef("Device", context.device)) if context.device else None,
        skill=None if spec.skill is None else spec.skill.entity,
        browser_session=browser_session,
    )


def decide_tool_call(policy: PolicyPort, request: PolicyRequest) -> ToolDecision:
    """Put one call to policy. The engine itself turns every error into a denial."""
    return policy.decide(request)


def render_decision(decision: ToolDecision) -> dict[str, Any]:
    """Render a decision as every interface shows it: without obligations and grants that are not there."""
    shown: dict[str, Any] = {
        "outcome": decision.outcome.value,
        "policies": list(decision.policies),
        # As plain text: the journal has a short way for what is plain already.
        "reasons": [str(reason) for reason in decision.reasons],
        "bundle_digest": decision.bundle_digest,
    }
    if decision.obligations != NO_OBLIGATIONS:
        obligations = msgspec.structs.asdict(decision.obligations)
        shown["obligations"] = {name: value for name, value in obligations.items() if value is not None}
    if decision.missing_grant is not None:
        shown["missing_grant"] = msgspec.to_builtins(decision.missing_grant)
    return shown


class ExecutionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A decision compiled to a plan. An executor runs with this and nothing else."""

    call_id: str
    run_id: str
    tool: str
    arguments: Mapping[str, Any]
    workspace: str
    timeout_ms: int
    max_output_bytes: int
    tier: ToolTier = ToolTier.BUILTIN
    obligations: Obligations = Obligations()
    principal: str = ""
    channel: str = ""
    session: str = ""
    device: str = ""
    # The digest of what was reviewed: a skill's archive, or the definition of a tool of a server behind Palyra.
    reviewed_digest: str = ""
    # Where it runs: here, or on a worker of the fleet, in the same tier of that worker's own sandbox.
    on_worker: bool = False
    argument_digest: str = ""
    # Whether a person approved exactly this call, and which approval it runs under.
    approved: bool = False
    approval_id: str = ""
    # The programs and files that the approval is bound to. The executor refuses to start if one of them changed.
    bound: tuple[BoundFile, ...] = ()
    # The place that policy saw for each path of the call. The executor acts there or refuses; empty: it leads out.
    places: Mapping[str, str] = {}
    # What the call may use at most of the run's budgets, and what it has used of them.
    granted: Mapping[BudgetKind, int] = {}
    usage: Usage = msgspec.field(default_factory=Usage)


class ExecutorOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an executor: a JSON value, what was really enforced, and what was used beyond time."""

    result: Any
    receipt: tuple[dict[str, Any], ...] = ()
    used: dict[BudgetKind, int] = {}
    # Why the call failed all the same, where a part of its result is worth keeping.
    error: PalyraError | None = None
    # What the worker that ran it signed about it.
    worker_attestation: dict[str, Any] | None = None


def compile_plan(
    config: ToolCallConfig,
    spec: ToolSpec,
    arguments: Arguments,
    decision: ToolDecision,
    *,
    call_id: str,
    run_id: str,
    workspace: str,
    requested_timeout_ms: int | None,
    on_worker: bool = False,
    principal: str = "",
    channel: str = "",
    session: str = "",
    device: str = "",
    places: Mapping[str, str] = {},
) -> ExecutionPlan:
    """Turn the settings and the obligations of the decision into limits. The strictest of each counts."""
    obligations = decision.obligations
    if on_worker and ToolTier.WORKER not in spec.other_tiers:
        raise Unenforceable(f"{spec.name} does not run on workers", layer="tier worker")
    if obligations != NO_OBLIGATIONS:
        _require_enforceable(spec, obligations)
    timeout = min(requested_timeout_ms or config.timeout_ms, config.max_timeout_ms)
    if obligations.timeout_ms is not None:
        timeout = min(timeout, obligations.timeout_ms)
    output = config.max_output_bytes
    if obligations.max_output_bytes is not None:
        output = min(output, obligations.max_output_bytes)
    return ExecutionPlan(
        call_id=call_id,
        run_id=run_id,
        tool=str(spec.name),
        arguments=arguments.value,
        workspace=workspace,
        timeout_ms=timeout,
        max_output_bytes=output,
        tier=spec.tier if obligations.tier is None else ToolTier(obligations.tier),
        on_worker=on_worker,
        principal=principal,
        channel=channel,
        session=session,
        device=device,
        places=places,
        argument_digest=arguments.digest,
        obligations=obligations,
        reviewed_digest=spec.digest,
    )


def _require_enforceable(spec: ToolSpec, obligations: Obligations) -> None:
    if obligations.tier is not None and obligations.tier not in {spec.tier, *spec.other_tiers}:
        raise Unenforceable(
            f"policy obliges {spec.name} to run in tier {obligations.tier}, and it runs in {spec.tier.value}",
            layer=f"tier {obligations.tier}",
        )
    for name in obligations.__struct_fields__:
        if name not in _PLACES and getattr(obligations, name) is not None and name not in spec.enforceable:
            raise Unenforceable(f"policy obliges {spec.name} to {name}, which nothing can hold it to", layer=name)


class DroppedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is no longer kept. The attestation has its digest."""

    bytes: int
    output_digest: str
    dropped_ms: int

    def view(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "output_digest": self.output_digest,
            "dropped_at": rfc3339(self.dropped_ms),
        }


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    run_id: str
    tool: str
    principal: str
    actor: str
    channel: str
    session: str = ""
    state: CallState
    argument_digest: str = ""
    decision: dict[str, Any] | None = None
    approval_id: str | None = None
    created_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    attestation: dict[str, Any] | None = None
    # What the worker that ran the call signed, where one did.
    worker_attestation: dict[str, Any] | None = None
    result_dropped: DroppedResult | None = None

    def view(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "call_id": self.call_id,
            "run_id": self.run_id,
            "tool": self.tool,
            "principal": self.principal,
            "status": self.state.value,
            "decision": self.decision,
            "result": self.result,
            "receipt": self.receipt,
            "attestation": self.attestation,
            "created_at": rfc3339(self.created_ms),
            "started_at": None if self.started_ms is None else rfc3339(self.started_ms),
            "ended_at": None if self.ended_ms is None else rfc3339(self.ended_ms),
            "duration_ms": None
            if self.started_ms is None or self.ended_ms is None
            else max(0, self.ended_ms - self.started_ms),
            "argument_digest": self.argument_digest,
        }
        if self.result_dropped is not None:
            shown["result_dropped"] = self.result_dropped.view()
        if self.worker_attestation is not None:
            shown["worker_attestation"] = self.worker_attestation
        if self.approval_id is not None:
            shown["approval_id"] = self.approval_id
        if self.error is not None:
            shown["error"] = self.error
        return shown

    def exit_code(self) -> ExitCode:
        return self._error_class().exit_code if self.error else ExitCode.DONE

    def http_status(self) -> int:
        return self._error_class().http_status if self.error else 200

    def _error_class(self) -> type[PalyraError]:
        code = (self.error or {}).get("code", "")
        return PalyraError.registry.get(code, PalyraError)


def open_record(request: CallRequest, now_ms: int) -> CallRecord:
    """Open the record of a call of which only the request is known."""
    return CallRecord(
        call_id=str(request.call_id or CallId.new()),
        run_id=str(request.run_id or RunId.new()),
        tool=request.tool[:128],
        principal=str(request.principal),
        actor=request.actor,
        channel=request.channel,
        session=request.session,
        state=CallState.REFUSED,
        created_ms=now_ms,
    )


def build_call_event(record: CallRecord, kind: str, *, by: str | None = None, **payload: Any) -> NewEvent:
    """Build a journal entry about this call."""
    return NewEvent(
        kind=kind,
        actor=by or record.actor,
        principal=record.principal,
        run=record.run_id,
        call=record.call_id,
        payload=payload,
    )
