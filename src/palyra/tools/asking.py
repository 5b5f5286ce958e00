"""From a call as a door hands it in to what was asked for: in whose frame, what policy says, and under which plan."""

from typing import Any

import msgspec

from palyra.errors import PalyraError, Unavailable
from palyra.identity.principal import Principal
from palyra.ids import CallId, RunId
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.explain import grant_in_words
from palyra.policy.port import PolicyPort
from palyra.tools.arguments import AcceptedCall
from palyra.tools.budget import BudgetKind, RunBudget
from palyra.tools.call import (
    CallDenied,
    ExecutionPlan,
    ToolCallConfig,
    ToolRequestContext,
    compile_plan,
    decision_view,
)
from palyra.tools.catalog import CatalogEntry
from palyra.tools.questions import Answered, decide_whole
from palyra.tools.record import CallRecord
from palyra.tools.spec import WORKER_EXECUTOR, Arguments, ToolTier, Touches


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call as a door hands it in. ``arguments`` is raw text, or an object out of a strictly parsed envelope."""

    tool: str
    arguments: str | bytes | dict[str, Any]
    principal: Principal
    actor: str
    channel: str
    run_id: RunId | None = None
    session: str = ""
    device: str = ""
    wait_ms: int = 0
    timeout_ms: int | None = None
    # The id that its door has given it already, so that it can be cancelled from the first moment.
    call_id: CallId | None = None
    # Where the caller wishes it to run, if not where the tool runs by itself. Policy has to agree.
    tier: ToolTier | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that passed intake and was decided on, with the plan for it or the reason why there is none."""

    record: CallRecord
    context: ToolRequestContext
    entry: CatalogEntry
    arguments: Arguments
    touches: Touches
    plan: ExecutionPlan | None
    denial: PalyraError | None
    decision: dict[str, Any]
    # Each question to policy by itself; ``decision`` is what they come to together.
    decided: Answered
    reserve: dict[BudgetKind, int]
    run_budget: RunBudget
    instance: str
    executor: str


class Asking:
    def __init__(self, config: ToolCallConfig, policy: PolicyPort, instance: str) -> None:
        self._config = config
        self._policy = policy
        self._instance = instance

    def authorize(self, record: CallRecord, request: CallRequest, accepted: AcceptedCall) -> Asked:
        spec, arguments = accepted.entry.spec, accepted.arguments
        context = ToolRequestContext(
            principal=request.principal,
            actor=request.actor,
            channel=request.channel,
            run=record.run_id,
            session=request.session,
            device=request.device,
        )
        decision, decided, on_worker = decide_whole(
            self._config,
            self._policy,
            context,
            spec,
            arguments,
            accepted.touches,
            on_worker=request.tier is ToolTier.WORKER,
        )
        shown = decision_view(decision)
        plan: ExecutionPlan | None = None
        denial: PalyraError | None = None
        if decision.outcome is Verdict.DENY:
            denial = CallDenied(
                f"policy denies {spec.name} to {request.principal}: {', '.join(decision.reasons)}",
                hint=None if decision.missing_grant is None else "; or ".join(grant_in_words(decision.missing_grant)),
                policies=list(decision.policies),
            )
        else:
            try:
                plan = compile_plan(
                    self._config,
                    spec,
                    arguments,
                    decision,
                    call_id=record.call_id,
                    run_id=record.run_id,
                    asked_timeout_ms=request.timeout_ms,
                    on_worker=on_worker,
                    principal=record.principal,
                    channel=record.channel,
                )
            except Unavailable as error:
                denial = error
        return Asked(
            record=msgspec.structs.replace(record, decision=shown),
            context=context,
            entry=accepted.entry,
            arguments=arguments,
            touches=accepted.touches,
            plan=plan,
            denial=denial,
            decision=shown,
            decided=decided,
            reserve={
                BudgetKind.CALLS: 1,
                BudgetKind.WALL_MS: plan.timeout_ms if plan else 1,
                **spec.reserves(arguments.value),
            },
            run_budget=self._config.run_budget,
            instance=self._instance,
            executor=WORKER_EXECUTOR if on_worker else spec.executor,
        )
