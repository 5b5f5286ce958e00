"""From a decision to limits, and from a call to the question put to policy."""

from typing import Any

import msgspec
import pytest

from palyra.executors.builtin import ECHO
from palyra.ids import Principal
from palyra.pipeline.domain.call import (
    FINAL_STATES,
    CallState,
    ExecutionPlan,
    ToolCallConfig,
    ToolRequestContext,
    Unenforceable,
    build_policy_request,
    compile_plan,
    render_decision,
)
from palyra.pipeline.domain.spec import AccessedResources, Arguments, ToolCapability, ToolMetadata
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.policy.decision import Decision, Obligations, Outcome
from palyra.policy.request import EntityDirectory

CONFIG = ToolCallConfig(
    directory=EntityDirectory.from_lists(
        principals=("agent:*",), operators=(), groups={}, tools=("echo",), preapproved=(), channels=("cli",)
    ),
    workspaces=Workspaces(default="/w"),
    timeout_ms=5_000,
    max_timeout_ms=10_000,
    max_output_bytes=4_096,
)
ARGUMENTS = Arguments(value={"text": "x"}, canonical=b'{"text":"x"}', digest="d" * 64)


def allowed(**obligations: Any) -> Decision:
    return Decision(
        outcome=Outcome.ALLOW,
        policies=("p",),
        reasons=("policy.permitted",),
        obligations=Obligations(**obligations),
        bundle_digest="b" * 64,
        missing_grant=None,
    )


def planned(decision: Decision, requested_timeout_ms: int | None = None, **spec: Any) -> ExecutionPlan:
    return compile_plan(
        CONFIG,
        msgspec.structs.replace(ECHO, **spec),
        ARGUMENTS,
        decision,
        call_id="c",
        run_id="r",
        workspace="/w",
        requested_timeout_ms=requested_timeout_ms,
    )


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("asked", "obliged", "expected"),
    [
        (None, None, 5_000),
        (1, None, 1),
        (9_000, None, 9_000),
        (999_999, None, 10_000),
        (9_000, 100, 100),
        (50, 100, 50),
        (None, 999_999, 5_000),
    ],
)
def test_the_strictest_timeout_wins(asked: int | None, obliged: int | None, expected: int) -> None:
    assert planned(allowed(timeout_ms=obliged), asked).timeout_ms == expected


@pytest.mark.promise("P-obligations")
@pytest.mark.parametrize(("obliged", "expected"), [(None, 4_096), (10, 10), (999_999, 4_096)])
def test_an_obligation_lowers_the_output_and_never_raises_it(obliged: int | None, expected: int) -> None:
    assert planned(allowed(max_output_bytes=obliged)).max_output_bytes == expected


@pytest.mark.promise("P-obligations")
@pytest.mark.parametrize(
    "obligation", [{"tier": "c"}, {"memory_bytes": 1}, {"cpu_seconds": 1}, {"egress": "none"}, {"read_only": True}]
)
def test_what_the_tool_cannot_be_held_to_is_refused_rather_than_dropped(obligation: dict[str, Any]) -> None:
    with pytest.raises(Unenforceable):
        planned(allowed(**obligation))


def test_an_obligation_that_the_tool_can_be_held_to_reaches_the_plan() -> None:
    plan = planned(allowed(read_only=True), enforceable=frozenset({"read_only"}))
    assert plan.obligations.read_only and plan.workspace == "/w" and plan.arguments == {"text": "x"}


def test_the_question_to_policy_is_made_of_entities_and_of_what_the_call_touches() -> None:
    spec = msgspec.structs.replace(
        ECHO, metadata=ToolMetadata(capabilities=frozenset({ToolCapability.FILESYSTEM_WRITE}))
    )
    context = ToolRequestContext(
        principal=Principal.parse("agent:bot"),
        actor="user:operator",
        channel="cli",
        run="r",
        workspace="/w",
        session="s",
        device="d",
    )
    request = build_policy_request(CONFIG, context, spec, ARGUMENTS, AccessedResources(paths=("a.txt",)))
    assert request.action == "tool.execute"
    assert (request.principal.uid.type, request.principal.uid.id) == ("Agent", "bot")
    assert request.resource.attrs["sensitive"] is True
    assert request.context["approved"] is False, "no door may claim an approval"
    assert list(request.context["paths"]) == ["a.txt"] and request.context["argument_bytes"] == 12
    assert request.context["session"] == "s"


def test_a_decision_shows_only_what_it_put_and_what_is_missing() -> None:
    assert set(render_decision(allowed())) == {"outcome", "policies", "reasons", "bundle_digest"}
    assert render_decision(allowed(timeout_ms=5))["obligations"] == {"timeout_ms": 5}


def test_only_a_running_call_is_not_final() -> None:
    assert frozenset(CallState) - FINAL_STATES == {CallState.RUNNING}
    assert CONFIG.max_calls_per_run == CONFIG.run_budget.calls
