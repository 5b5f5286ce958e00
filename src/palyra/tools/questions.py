"""Every question that is put to policy about one call, and what the answers come to together."""

from typing import Any, Final

from palyra.policy.decision import Decision
from palyra.policy.entities import Entity, EntityRef
from palyra.policy.port import PolicyPort
from palyra.policy.request import APPROVED, RUN, PolicyRequest
from palyra.tools.call import (
    ToolCallConfig,
    ToolRequestContext,
    decide_tool_call,
    policy_request_for,
    tool_entity,
)
from palyra.tools.device_decision import device_request_for
from palyra.tools.skill_decision import skill_request_for, together
from palyra.tools.spec import Arguments, Asker, BrowserOfCall, ToolSpec, Touches

WORKER_LEASE: Final = "worker.lease"
# Policy is asked before a worker is chosen, so it is asked about the fleet.
FLEET: Final = Entity(uid=EntityRef("Worker", "fleet"), attrs={"status": "available"})
Answered = tuple[tuple[Decision, PolicyRequest], ...]


def worker_request_for(config: ToolCallConfig, context: ToolRequestContext, tool: Entity) -> PolicyRequest:
    """Asked in addition for a call that is to run on a worker."""
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
        workspace=config.workspace,
        tool=tool_entity(config.directory, spec),
    )


def decide_whole(
    config: ToolCallConfig,
    policy: PolicyPort,
    context: ToolRequestContext,
    spec: ToolSpec,
    arguments: Arguments,
    touches: Touches,
    *,
    on_worker: bool,
) -> tuple[Decision, Answered, bool]:
    """The decision, each question with its own answer, and whether the call runs on a worker: because its caller
    wishes it, or because policy demands it. Raises when it would act in a browser session that is not there."""
    browser = BrowserOfCall() if spec.browser is None else spec.browser(_asker(config, context, spec), arguments.value)
    question = policy_request_for(config, context, spec, arguments, touches, browser.session)
    decision = decide_tool_call(policy, question)
    decided = [(decision, question)]

    def ask(further: PolicyRequest) -> None:
        nonlocal decision
        answer = policy.decide(further)
        decided.append((answer, further))
        decision = together(decision, answer)

    if spec.skill is not None:
        ask(skill_request_for(config, context, spec.skill, arguments))
    if spec.device is not None:
        ask(device_request_for(config, context, spec.device(arguments.value)))
    for further in browser.questions:
        ask(further)
    on_worker = on_worker or decision.obligations.place is not None
    if on_worker:
        ask(worker_request_for(config, context, question.resource))
    return decision, tuple(decided), on_worker
