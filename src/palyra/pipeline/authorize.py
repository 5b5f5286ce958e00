"""Authorize: puts every question about one call to policy, and compiles the decision to a plan."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from palyra.errors import PalyraError, Unavailable
from palyra.ids import Principal
from palyra.pipeline.catalog import CatalogEntry
from palyra.pipeline.domain.budget import BudgetKind, RunBudget
from palyra.pipeline.domain.call import (
    CallDenied,
    CallRecord,
    CallRequest,
    ExecutionPlan,
    ToolCallConfig,
    ToolRequestContext,
    build_policy_request,
    build_tool_entity,
    compile_plan,
    decide_tool_call,
    render_decision,
)
from palyra.pipeline.domain.shares import is_operators_own
from palyra.pipeline.domain.spec import (
    WORKER_EXECUTOR,
    AccessedResources,
    Arguments,
    Asker,
    BrowserOfCall,
    DeviceOfCall,
    ToolSpec,
    ToolTier,
)
from palyra.pipeline.intake import AcceptedCall
from palyra.pipeline.store.argument_tables import SealedArguments
from palyra.policy.decision import Decision, Outcome, PolicyPort, strictest
from palyra.policy.explain import describe_grant
from palyra.policy.request import (
    APPROVED,
    ARGUMENT_BYTES,
    PATHS,
    RUN,
    Entity,
    EntityDirectory,
    EntityRef,
    PolicyRequest,
)
from palyra.workspace.root import NOTHING_DECIDED, find_place

NODE_INVOKE: Final = "node.invoke"


def build_device_request(config: ToolCallConfig, context: ToolRequestContext, device: DeviceOfCall) -> PolicyRequest:
    """Build the question ``node.invoke``, asked in addition to ``tool.execute``.

    The device in the context is the one that asks, if a device does. The resource is the one that is asked.
    """
    directory = config.directory
    channel = directory.channel(context.channel)
    asked: dict[str, Any] = {
        APPROVED: False,
        "channel": channel.uid,
        "run": context.run,
        "capability": device.capability,
    }
    entities = [channel]
    if context.device:
        asker = Entity(uid=EntityRef("Device", context.device))
        asked["device"] = asker.uid
        entities.append(asker)
    return PolicyRequest(
        principal=directory.principal(context.principal),
        action=NODE_INVOKE,
        resource=device.entity,
        context=asked,
        entities=tuple(entities),
    )


SKILL_EXECUTE: Final = "skill.execute"
_FROM_MILD_TO_STRICT: Final = (Outcome.ALLOW, Outcome.NEEDS_APPROVAL, Outcome.DENY)


def build_skill_request(
    directory: EntityDirectory,
    skill: Entity,
    *,
    principal: Principal,
    channel: str,
    workspace: str,
    run: str,
    session: str,
    device: str,
    entrypoint: str,
    argument_bytes: int,
    approved: bool = False,
) -> PolicyRequest:
    """Build the question ``skill.execute``: for a skill's own tool, and for ``plugin.run`` of a skill's module."""
    channel_entity = directory.channel(channel)
    asked: dict[str, Any] = {
        APPROVED: approved,
        "channel": channel_entity.uid,
        "workspace": workspace,
        RUN: run,
        "entrypoint": entrypoint,
        ARGUMENT_BYTES: argument_bytes,
    }
    if session:
        asked["session"] = session
    if device:
        asked["device"] = EntityRef("Device", device)
    return PolicyRequest(
        principal=directory.principal(principal),
        action=SKILL_EXECUTE,
        resource=skill,
        context=asked,
        entities=(channel_entity,),
    )


def combine_decisions(first: Decision, second: Decision) -> Decision:
    """Combine two decisions. The stricter outcome counts, and the obligations of both hold."""
    if first.outcome is second.outcome:
        stricter = first
        policies, reasons = first.policies + second.policies, first.reasons + second.reasons
    else:
        stricter = max(first, second, key=lambda one: _FROM_MILD_TO_STRICT.index(one.outcome))
        policies, reasons = stricter.policies, stricter.reasons
    return Decision(
        outcome=stricter.outcome,
        policies=tuple(dict.fromkeys(policies)),
        reasons=tuple(dict.fromkeys(reasons)),
        obligations=strictest((first.obligations, second.obligations)),
        bundle_digest=stricter.bundle_digest,
        missing_grant=stricter.missing_grant,
    )


WORKER_LEASE: Final = "worker.lease"
# Policy is asked before a worker is chosen, so it is asked about the fleet.
FLEET: Final = Entity(uid=EntityRef("Worker", "fleet"), attrs={"status": "available"})
Answered = tuple[tuple[Decision, PolicyRequest], ...]


def build_worker_request(config: ToolCallConfig, context: ToolRequestContext, tool: Entity) -> PolicyRequest:
    """Build the question ``worker.lease``, asked in addition for a call that is to run on a worker."""
    directory = config.directory
    channel = directory.channel(context.channel)
    asked: dict[str, Any] = {APPROVED: False, "channel": channel.uid, RUN: context.run, "tool": tool.uid}
    return PolicyRequest(
        principal=directory.principal(context.principal),
        action=WORKER_LEASE,
        resource=FLEET,
        context=asked,
        entities=(channel, tool),
    )


def _asker(config: ToolCallConfig, context: ToolRequestContext, spec: ToolSpec) -> Asker:
    return Asker(
        principal=context.principal,
        channel=context.channel,
        run=context.run,
        directory=config.directory,
        workspace=context.workspace,
        session=context.session,
        device=context.device,
        tool=build_tool_entity(config.directory, spec),
    )


def decide_call(
    config: ToolCallConfig,
    policy: PolicyPort,
    context: ToolRequestContext,
    spec: ToolSpec,
    arguments: Arguments,
    touches: AccessedResources,
    *,
    on_worker: bool,
    places: Mapping[str, str] = NOTHING_DECIDED,
) -> tuple[Decision, Answered, bool]:
    """Return the decision, each question with its answer, and whether the call runs on a worker.

    It runs on a worker if its caller wishes it or policy demands it. A question about paths that lead elsewhere over
    links is asked again about their ``places``. Raises if it would act in a browser session that does not exist.
    """
    browser = BrowserOfCall() if spec.browser is None else spec.browser(_asker(config, context, spec), arguments.value)
    question = build_policy_request(config, context, spec, arguments, touches, browser.session)
    decision = decide_tool_call(policy, question)
    decided = [(decision, question)]

    def ask(further: PolicyRequest) -> None:
        nonlocal decision
        answer = policy.decide(further)
        decided.append((answer, further))
        decision = combine_decisions(decision, answer)

    def ask_about_places(asked: PolicyRequest) -> None:
        named = asked.context.get(PATHS, [])
        found = sorted({places.get(path) or path for path in named})
        if found != named:
            ask(asked.with_context(**{PATHS: found}))

    ask_about_places(question)
    if spec.skill is not None:
        ask(
            build_skill_request(
                config.directory,
                spec.skill.entity,
                principal=context.principal,
                channel=context.channel,
                workspace=context.workspace,
                run=context.run,
                session=context.session,
                device=context.device,
                entrypoint=spec.skill.entrypoint,
                argument_bytes=len(arguments.canonical),
            )
        )
    if spec.device is not None:
        ask(build_device_request(config, context, spec.device(arguments.value)))
    for further in browser.questions:
        ask(further)
        ask_about_places(further)
    on_worker = on_worker or decision.obligations.place is not None
    if on_worker:
        ask(build_worker_request(config, context, question.resource))
    return decision, tuple(decided), on_worker


class AuthorizedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that passed intake and was decided on, with the plan for it or the reason why there is none."""

    record: CallRecord
    context: ToolRequestContext
    entry: CatalogEntry
    arguments: Arguments
    sealed: SealedArguments | None
    touches: AccessedResources
    plan: ExecutionPlan | None
    denial: PalyraError | None
    decision: dict[str, Any]
    # Each question to policy by itself; ``decision`` is what they come to together.
    decided: Answered
    reserve: dict[BudgetKind, int]
    run_budget: RunBudget
    # How many runs its principal may open in an hour; None if an operator makes the call.
    runs_per_hour: int | None = None
    instance: str
    executor: str

    @property
    def needs_approval(self) -> bool:
        return bool(self.decision["outcome"] != Outcome.ALLOW.value)


def _add_places(touches: AccessedResources, places: Mapping[str, str]) -> AccessedResources:
    """Name the places of the paths too, for the person who approves."""
    paths = tuple(dict.fromkeys((*touches.paths, *filter(None, places.values()))))
    return touches if paths == touches.paths else msgspec.structs.replace(touches, paths=paths)


class Authorizer:
    def __init__(self, config: ToolCallConfig, policy: PolicyPort, instance: str) -> None:
        self._config = config
        self._policy = policy
        self._instance = instance

    def authorize(self, record: CallRecord, request: CallRequest, accepted: AcceptedCall) -> AuthorizedCall:
        spec, arguments = accepted.entry.spec, accepted.arguments
        context = ToolRequestContext(
            principal=request.principal,
            actor=request.actor,
            channel=request.channel,
            run=record.run_id,
            workspace=self._config.workspaces.of(request.principal),
            session=request.session if request.proves_session else "",
            device=request.device,
        )
        touches = spec.touches(arguments.value)
        places = {path: find_place(context.workspace, path) for path in touches.paths}
        decision, decided, on_worker = decide_call(
            self._config,
            self._policy,
            context,
            spec,
            arguments,
            touches,
            on_worker=request.tier is ToolTier.WORKER,
            places=places,
        )
        shown = render_decision(decision)
        own = is_operators_own(self._config.directory, request.principal, request.channel)
        plan: ExecutionPlan | None = None
        denial: PalyraError | None = None
        if decision.outcome is Outcome.DENY:
            denial = CallDenied(
                f"policy denies {spec.name} to {request.principal}: {', '.join(decision.reasons)}",
                hint=None if decision.missing_grant is None else "; or ".join(describe_grant(decision.missing_grant)),
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
                    workspace=context.workspace,
                    requested_timeout_ms=request.timeout_ms,
                    on_worker=on_worker,
                    principal=record.principal,
                    channel=record.channel,
                    session=context.session,
                    device=context.device,
                    places=places,
                )
            except Unavailable as error:
                denial = error
        return AuthorizedCall(
            record=msgspec.structs.replace(record, decision=shown),
            context=context,
            entry=accepted.entry,
            arguments=arguments,
            sealed=accepted.sealed,
            touches=_add_places(touches, places),
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
            runs_per_hour=None if own else self._config.runs_per_hour,
            instance=self._instance,
            executor=WORKER_EXECUTOR if on_worker else spec.executor,
        )
