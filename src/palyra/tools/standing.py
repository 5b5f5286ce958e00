"""What policy said of a call, for the calls that differ from it in nothing that a policy looks at.

An agent calls the same few tools again and again. Which run a call belongs to and how long its arguments are differs
from call to call, and hardly any policy looks at it. So the answer to the first stands for the others, as long as
the same bundle is in force.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from palyra.identity.principal import Principal
from palyra.policy.decision import Decision, Outcome
from palyra.policy.port import PolicyPort
from palyra.policy.request import ARGUMENT_BYTES, RUN, PolicyRequest
from palyra.tools.call import decision_view
from palyra.tools.questions import Answered
from palyra.tools.spec import ToolSpec, Touches

VARYING: Final = frozenset((RUN, ARGUMENT_BYTES))
# Of one tool: who asks for it, from where and for what. Callers are few; one that asks in ever new ways gains nothing.
MAX_FRAMES: Final = 64


class Frame(msgspec.Struct, frozen=True):
    """All of a call of one tool that a decision can depend on, but for what varies."""

    principal: Principal
    channel: str
    session: str
    device: str
    touches: Touches
    on_worker: bool


class Standing:
    """One answer that stands. ``answered`` has the run and the length of the first call in its requests."""

    __slots__ = ("answered", "bundle_digest", "decision", "on_worker", "shown")

    def __init__(self, decision: Decision, answered: Answered, on_worker: bool) -> None:
        self.bundle_digest = decision.bundle_digest
        self.decision = decision
        self.answered = answered
        self.on_worker = on_worker
        # Shown with every call: to be read only.
        self.shown: dict[str, Any] = decision_view(decision)


class StandingAnswers:
    """Those of one tool, as it is defined now."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[Frame, Standing] = {}

    def find(self, frame: Frame, bundle_digest: str) -> Standing | None:
        found = self._answers.get(frame)
        return found if found is not None and found.bundle_digest == bundle_digest else None

    def keep(self, frame: Frame, standing: Standing) -> None:
        if len(self._answers) >= MAX_FRAMES:
            self._answers.clear()
        self._answers[frame] = standing


def asked_with(question: PolicyRequest, varying: Mapping[str, Any]) -> PolicyRequest:
    """The same question about another call, with its own values of what varies, where it has any."""
    return question.with_context(**{name: value for name, value in varying.items() if name in question.context})


def standing_of(
    policy: PolicyPort, spec: ToolSpec, frame: Frame, decision: Decision, answered: Answered, on_worker: bool
) -> Standing | None:
    """None for an answer that holds for one call only: anything but a plain yes, one that depends on the files, the
    device or the browser session its arguments mean, or one of policies that look at what varies."""
    if decision.outcome is not Outcome.ALLOW or frame.touches.paths or spec.device or spec.browser:
        return None
    for answer, question in answered:
        looks = policy.looks_at(question)
        if answer.bundle_digest != decision.bundle_digest or looks.bundle_digest != decision.bundle_digest:
            return None
        if looks.attributes is None or not VARYING.isdisjoint(looks.attributes):
            return None
    return Standing(decision, answered, on_worker)
