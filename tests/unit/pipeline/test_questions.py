from typing import Any

import msgspec

from palyra.executors.builtin import ECHO
from palyra.ids import Principal
from palyra.pipeline.authorize import FLEET, decide_call
from palyra.pipeline.domain.call import ToolCallConfig, ToolRequestContext
from palyra.pipeline.domain.spec import AccessedResources, Arguments, BrowserOfCall, DeviceOfCall
from palyra.pipeline.domain.workspaces import Workspaces
from palyra.policy.decision import Decision, Obligations, Outcome
from palyra.policy.request import EntityDirectory, EntityRef, PolicyRequest

CONFIG = ToolCallConfig(directory=EntityDirectory.from_lists(channels=["cli"]), workspaces=Workspaces(default="/srv/w"))
ARGUMENTS = Arguments(value={"text": "x"}, canonical=b'{"text":"x"}', digest="d" * 64)
CONTEXT = ToolRequestContext(
    principal=Principal.parse("agent:bot"), actor="a", channel="cli", run="r", workspace="/srv/w"
)


class Answers:
    """A policy that says what it is told to for each action, and remembers what it was asked."""

    def __init__(self, **answers: Decision) -> None:
        self.answers = answers
        self.asked: list[PolicyRequest] = []

    def decide(self, request: PolicyRequest) -> Decision:
        self.asked.append(request)
        return self.answers.get(request.action.replace(".", "_"), answer())


def answer(outcome: Outcome = Outcome.ALLOW, **obligations: Any) -> Decision:
    return Decision(
        outcome=outcome,
        policies=("p",),
        reasons=("policy.permitted",),
        obligations=Obligations(**obligations),
        bundle_digest="b" * 64,
        missing_grant=None,
    )


def decided(policy: Answers, *, on_worker: bool = False, **spec: Any) -> tuple[Decision, int, bool]:
    changed = msgspec.structs.replace(ECHO, **spec)
    decision, each, runs_there = decide_call(
        CONFIG, policy, CONTEXT, changed, ARGUMENTS, AccessedResources(), on_worker=on_worker
    )
    return decision, len(each), runs_there


def test_a_plain_call_is_one_question() -> None:
    assert decided(Answers())[1:] == (1, False)


def test_a_wish_and_a_demand_for_a_worker_are_asked_about_the_fleet() -> None:
    wished = Answers()
    assert decided(wished, on_worker=True)[1:] == (2, True)
    assert wished.asked[1].resource == FLEET and wished.asked[1].context["tool"] == EntityRef("Tool", "echo")
    assert wished.asked[1].context["approved"] is False
    assert decided(Answers(tool_execute=answer(place="worker")))[1:] == (2, True)


def test_either_question_can_deny() -> None:
    denied = answer(Outcome.DENY)
    assert decided(Answers(worker_lease=denied), on_worker=True)[0].outcome is Outcome.DENY
    assert decided(Answers(worker_lease=denied))[0].outcome is Outcome.ALLOW


def test_questions_about_paths_are_asked_again_about_their_places() -> None:
    """Also those of a browser call about its uploads and downloads."""
    upload = PolicyRequest(
        principal=FLEET, action="browser.upload", resource=FLEET, context={"paths": ["a.txt", "link/b.txt"]}
    )
    spec = msgspec.structs.replace(ECHO, browser=lambda _asker, _arguments: BrowserOfCall(questions=(upload,)))
    touches = AccessedResources(paths=("a.txt", "link/b.txt"))
    for places, more in (({}, 0), ({"a.txt": "a.txt", "link/b.txt": ""}, 0), ({"link/b.txt": "docs/b.txt"}, 2)):
        policy = Answers()
        decide_call(CONFIG, policy, CONTEXT, spec, ARGUMENTS, touches, on_worker=False, places=places)
        found = [request.context["paths"] for request in policy.asked]
        assert found.count(["a.txt", "link/b.txt"]) == 2 and found.count(["a.txt", "docs/b.txt"]) == more


def test_a_device_is_asked_about_too() -> None:
    device = DeviceOfCall(entity=FLEET, capability="echo")
    assert decided(Answers(), device=lambda _arguments: device)[1:] == (2, False)
