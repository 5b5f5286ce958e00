"""Two evaluations make an outcome, and nothing that goes wrong allows."""

from collections.abc import Callable

import pytest

from palyra.policy.decision import Answer, Decision, Evaluation, Outcome, Reason, judge
from palyra.policy.request import PolicyRequest

Ask = Callable[..., PolicyRequest]
ALLOW = Evaluation(answer=Answer.ALLOW, policies=("permit",))
DENY = Evaluation(answer=Answer.DENY)
FORBID = Evaluation(answer=Answer.DENY, policies=("forbid",))
BROKEN = Evaluation(answer=Answer.POLICY_ERRORS, policies=("odd",), errors=("overflow",))


def judged(
    request: PolicyRequest, as_it_is: Evaluation, approved: Evaluation
) -> tuple[Outcome, tuple[str, ...], tuple[str, ...]]:
    verdict = judge(request, lambda asked: approved if asked.context["approved"] else as_it_is)
    return verdict.outcome, verdict.policies, verdict.reasons


@pytest.mark.parametrize(
    ("as_it_is", "approved", "expected"),
    [
        (ALLOW, DENY, (Outcome.ALLOW, ("permit",), (Reason.PERMITTED,))),
        (FORBID, ALLOW, (Outcome.NEEDS_APPROVAL, ("forbid",), (Reason.APPROVAL_REQUIRED,))),
        (DENY, ALLOW, (Outcome.NEEDS_APPROVAL, ("permit",), (Reason.APPROVAL_REQUIRED,))),
        (FORBID, FORBID, (Outcome.DENY, ("forbid",), (Reason.FORBIDDEN,))),
        (FORBID, DENY, (Outcome.DENY, (), (Reason.NO_PERMIT,))),
        (DENY, DENY, (Outcome.DENY, (), (Reason.NO_PERMIT,))),
        (BROKEN, ALLOW, (Outcome.DENY, ("odd",), (Reason.EVALUATION_ERROR,))),
        (DENY, BROKEN, (Outcome.DENY, ("odd",), (Reason.EVALUATION_ERROR,))),
        (Evaluation(answer=Answer.INVALID), ALLOW, (Outcome.DENY, (), (Reason.REQUEST_INVALID,))),
        (Evaluation(answer=Answer.FAILED), ALLOW, (Outcome.DENY, (), (Reason.ENGINE_ERROR,))),
        (DENY, Evaluation(answer=Answer.FAILED), (Outcome.DENY, (), (Reason.ENGINE_ERROR,))),
    ],
)
def test_every_pair_of_answers(
    ask: Ask, as_it_is: Evaluation, approved: Evaluation, expected: tuple[Outcome, tuple[str, ...], tuple[str, ...]]
) -> None:
    assert judged(ask(), as_it_is, approved) == expected


def test_an_approved_request_is_evaluated_once(ask: Ask) -> None:
    asked: list[PolicyRequest] = []

    def evaluate(request: PolicyRequest) -> Evaluation:
        asked.append(request)
        return FORBID

    assert judge(ask(approved=True), evaluate).outcome is Outcome.DENY
    assert len(asked) == 1


def test_what_is_not_exactly_false_is_not_retried(ask: Ask) -> None:
    odd = ask().with_context(approved=0)
    assert judge(odd, lambda request: ALLOW if request.context["approved"] is True else DENY).outcome is Outcome.DENY


def test_a_decision_is_no_truth_value() -> None:
    with pytest.raises(TypeError, match="three outcomes"):
        bool(Decision(outcome=Outcome.ALLOW))
