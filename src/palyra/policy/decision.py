"""Decision on a request, made of two evaluations, and the obligations of its permits.

Cedar knows allow and deny. The third outcome is Palyra's: a request that is denied now, and allowed once a person has
approved it, needs approval. Every fault on the way is a denial.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NoReturn, Protocol

import msgspec

from palyra.policy.request import APPROVED, PolicyRequest

# Obligations: ``@obligation_timeout_ms("5000")`` on a permit limits every call that it helps to allow. Where several
# permits match, the strictest value of each kind wins. An unknown name or a bad value is an error when the bundle is
# checked: a misspelt limit must not become no limit.

PREFIX: Final = "obligation_"

# From the weakest to the strictest.
TIERS: Final = ("b", "c", "a")
# ``@obligation_tier("worker")`` demands a place, not a sandbox, so it is stored as ``place``. Another permit, or the
# worker, decides on the sandbox there.
WORKER: Final = "worker"
EGRESS: Final = ("none", "preflight", "strict")
_MAX_NUMBER: Final = 2**53 - 1


class Obligations(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on an allowed call. None: no determining permit states one of the kind."""

    timeout_ms: int | None = None
    max_output_bytes: int | None = None
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    tier: str | None = None
    egress: str | None = None
    read_only: bool | None = None
    place: str | None = None


NO_OBLIGATIONS: Final = Obligations()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_NUMBER):
        raise ValueError("is not a positive whole number")
    return int(text)


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return text

    return parse


def _flag(text: str) -> bool:
    return _one_of(("true", "false"))(text) == "true"


def _strictest_of(words: tuple[str, ...]) -> Callable[[Iterable[str]], str]:
    return lambda values: max(values, key=words.index)


_KINDS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]]] = {
    "timeout_ms": (_number, min),
    "max_output_bytes": (_number, min),
    "memory_bytes": (_number, min),
    "cpu_seconds": (_number, min),
    "tier": (_one_of((*TIERS, WORKER)), _strictest_of(TIERS)),
    "egress": (_one_of(EGRESS), _strictest_of(EGRESS)),
    "read_only": (_flag, max),
}


def parse_obligations(annotations: Mapping[str, str], effect: str) -> tuple[Obligations, tuple[str, ...]]:
    """Parse the obligations in a policy's annotations. Return them and the faults, which name their annotation."""
    found: dict[str, Any] = {}
    faults: list[str] = []
    for annotation, text in annotations.items():
        if not annotation.startswith(PREFIX):
            continue
        kind = _KINDS.get(annotation.removeprefix(PREFIX))
        if kind is None:
            known = ", ".join(f"@{PREFIX}{name}" for name in _KINDS)
            faults.append(f"`{annotation}` is not an obligation; known are {known}")
        elif effect != "permit":
            faults.append(f"`{annotation}` has no meaning on a forbid: obligations belong to permits")
        else:
            try:
                found[annotation.removeprefix(PREFIX)] = kind[0](text or "")
            except ValueError as error:
                faults.append(f"`{annotation}`: {text!r} {error}")
    if found.get("tier") == WORKER:
        found["place"] = found.pop("tier")
    return Obligations(**found), tuple(faults)


def strictest(several: Iterable[Obligations]) -> Obligations:
    stated: dict[str, list[Any]] = {}
    for obligations in several:
        if obligations == NO_OBLIGATIONS:
            continue
        for name in Obligations.__struct_fields__:
            if (value := getattr(obligations, name)) is not None:
                stated.setdefault(name, []).append(value)
    if not stated:
        return NO_OBLIGATIONS
    # Only one place can be demanded.
    return Obligations(
        **{name: _KINDS[name][1](values) if name in _KINDS else values[0] for name, values in stated.items()}
    )


class Reason(StrEnum):
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
    """The smallest change that lifts a denial. Each part was tried on the engine.

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
    """Judge a request. A denial names the forbids that hold even with approval; without one, a permit is missing."""
    plain = evaluate(request)
    if plain.answer is Answer.ALLOW:
        return Judgement(
            outcome=Outcome.ALLOW,
            policies=plain.policies,
            reasons=(Reason.PERMITTED,),
            permits=plain.policies,
        )
    if plain.answer is not Answer.DENY:
        return _deny_after_fault(plain)
    if not may_be_approved(request):
        return _deny(plain)
    approved = evaluate(request.with_context(**{APPROVED: True}))
    if approved.answer is Answer.ALLOW:
        return Judgement(
            outcome=Outcome.NEEDS_APPROVAL,
            policies=plain.policies or approved.policies,
            reasons=(Reason.APPROVAL_REQUIRED,),
            permits=approved.policies,
        )
    return _deny(approved) if approved.answer is Answer.DENY else _deny_after_fault(approved)


def _deny(evaluation: Evaluation) -> Judgement:
    reason = Reason.FORBIDDEN if evaluation.policies else Reason.NO_PERMIT
    return Judgement(outcome=Outcome.DENY, policies=evaluation.policies, reasons=(reason,))


def _deny_after_fault(evaluation: Evaluation) -> Judgement:
    """Deny after a fault: Cedar skips a policy that fails to evaluate, and it might be a forbid."""
    return Judgement(
        outcome=Outcome.DENY,
        policies=evaluation.policies,
        reasons=(_BROKEN[evaluation.answer],),
        errors=evaluation.errors,
    )


class PolicyPort(Protocol):
    """Interface of a policy engine."""

    @property
    def bundle_digest(self) -> str:
        """Return the digest of the policies, schema and directory in force."""

    def decide(self, request: PolicyRequest) -> Decision:
        """Decide without raising: every fault is a denial with a reason code."""
