"""The verdict on a request, and the two evaluations that make it.

Cedar knows allow and deny. The third outcome is ours: a request that is denied as it stands, and allowed once a
person has approved it, needs approval. Everything that goes wrong on the way is a denial.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NoReturn

import msgspec

from palyra.policy.obligations import Obligations
from palyra.policy.request import APPROVED, PolicyRequest


class Reason(StrEnum):
    """The codes a decision gives for itself."""

    PERMITTED = "policy.permitted"
    FORBIDDEN = "policy.forbidden"
    NO_PERMIT = "policy.no_permit"
    APPROVAL_REQUIRED = "policy.approval_required"
    ENGINE_ERROR = "policy.engine_error"
    EVALUATION_ERROR = "policy.evaluation_error"
    REQUEST_INVALID = "policy.request_invalid"


class Outcome(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    NEEDS_APPROVAL = "needs_approval"


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    setting: str
    add: str


class ForbidException(msgspec.Struct, frozen=True, kw_only=True):
    """``clause`` goes before the semicolon of the forbid with this ``@id``."""

    policy: str
    location: str
    clause: str


class MissingGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change that lifts a denial. Each part was tried on the engine before it was offered.

    ``setting`` and ``add`` name the one setting that suffices by itself; ``settings`` those that suffice together
    where one does not. ``permit`` is the policy that suffices instead, in addition to the ``exceptions`` that the
    forbids need, if any. ``leads_to`` is the outcome afterwards: allow, or needs approval.
    """

    leads_to: Outcome
    setting: str = ""
    add: str = ""
    settings: tuple[SettingChange, ...] = ()
    permit: str = ""
    exceptions: tuple[ForbidException, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """``policies`` are the ``@id``s of the policies that determined the outcome, ``reasons`` its codes."""

    outcome: Outcome
    policies: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    obligations: Obligations = Obligations()
    bundle_digest: str = ""
    missing_grant: MissingGrant | None = None

    def __bool__(self) -> NoReturn:
        raise TypeError("a Decision has three outcomes: compare decision.outcome")


class Answer(StrEnum):
    """What one evaluation came to."""

    ALLOW = "allow"
    DENY = "deny"
    INVALID = "invalid"
    FAILED = "failed"
    POLICY_ERRORS = "policy_errors"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """``policies`` are the permits of an ``ALLOW``, the forbids of a ``DENY``, or those that failed to evaluate."""

    answer: Answer
    policies: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome with the evidence for it. ``permits`` allow the request, now or once it is approved."""

    outcome: Outcome
    policies: tuple[str, ...]
    reasons: tuple[str, ...]
    permits: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


_BROKEN: Final = {
    Answer.INVALID: Reason.REQUEST_INVALID,
    Answer.FAILED: Reason.ENGINE_ERROR,
    Answer.POLICY_ERRORS: Reason.EVALUATION_ERROR,
}


def may_be_approved(request: PolicyRequest) -> bool:
    return request.context.get(APPROVED) is False


def judge(request: PolicyRequest, evaluate: Callable[[PolicyRequest], Evaluation]) -> Judgement:
    """The outcome of a request.

    A denial names the forbids that hold even with approval; where none does, what is missing is a permit.
    """
    asked = evaluate(request)
    if asked.answer is Answer.ALLOW:
        return Judgement(
            outcome=Outcome.ALLOW, policies=asked.policies, reasons=(Reason.PERMITTED,), permits=asked.policies
        )
    if asked.answer is not Answer.DENY:
        return _broken(asked)
    if not may_be_approved(request):
        return _denied(asked)
    approved = evaluate(request.with_context(**{APPROVED: True}))
    if approved.answer is Answer.ALLOW:
        return Judgement(
            outcome=Outcome.NEEDS_APPROVAL,
            policies=asked.policies or approved.policies,
            reasons=(Reason.APPROVAL_REQUIRED,),
            permits=approved.policies,
        )
    return _denied(approved) if approved.answer is Answer.DENY else _broken(approved)


def _denied(evaluation: Evaluation) -> Judgement:
    reason = Reason.FORBIDDEN if evaluation.policies else Reason.NO_PERMIT
    return Judgement(outcome=Outcome.DENY, policies=evaluation.policies, reasons=(reason,))


def _broken(evaluation: Evaluation) -> Judgement:
    """Cedar skips a policy that fails to evaluate. It might have been a forbid, so nothing is allowed."""
    return Judgement(
        outcome=Outcome.DENY,
        policies=evaluation.policies,
        reasons=(_BROKEN[evaluation.answer],),
        errors=evaluation.errors,
    )
