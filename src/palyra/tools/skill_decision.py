"""The second question about a skill's tool: ``skill.execute``, asked in addition to ``tool.execute``."""

from typing import Any, Final

from palyra.policy.decision import Decision, Outcome
from palyra.policy.entities import EntityRef
from palyra.policy.obligations import strictest
from palyra.policy.request import APPROVED, ARGUMENT_BYTES, RUN, PolicyRequest
from palyra.tools.call import ToolCallConfig, ToolRequestContext
from palyra.tools.spec import Arguments, SkillOfTool

SKILL_EXECUTE: Final = "skill.execute"
_FROM_MILD_TO_STRICT: Final = (Outcome.ALLOW, Outcome.NEEDS_APPROVAL, Outcome.DENY)


def skill_request_for(
    config: ToolCallConfig, context: ToolRequestContext, skill: SkillOfTool, arguments: Arguments
) -> PolicyRequest:
    directory = config.directory
    channel = directory.channel(context.channel)
    asked: dict[str, Any] = {
        APPROVED: False,
        "channel": channel.uid,
        "workspace": config.workspace,
        RUN: context.run,
        "entrypoint": skill.entrypoint,
        ARGUMENT_BYTES: len(arguments.canonical),
    }
    if context.session:
        asked["session"] = context.session
    if context.device:
        asked["device"] = EntityRef("Device", context.device)
    return PolicyRequest(
        principal=directory.principal(context.principal),
        action=SKILL_EXECUTE,
        resource=skill.entity,
        context=asked,
        entities=(channel,),
    )


def together(first: Decision, second: Decision) -> Decision:
    """Both have to allow: the stricter outcome speaks, and what either obliges to holds."""
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
