"""Why one request is decided as it is, in words a person can act on."""

from collections.abc import Iterator, Mapping

import msgspec

from palyra.policy.bundle import Policy
from palyra.policy.decision import (
    Judgement,
    MissingGrant,
    Outcome,
    Reason,
    SettingChange,
    may_be_approved,
)
from palyra.policy.entities import Entity, name_of_principal
from palyra.policy.obligations import Obligations
from palyra.policy.request import PolicyRequest


class DeterminingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    effect: str
    location: str
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``codes`` are the decision's reason codes and ``reasons`` the same in words.

    ``permits`` would allow the request once it is approved. ``without_asking`` is the setting that spares the approval.
    """

    outcome: Outcome
    principal: str
    action: str
    resource: str
    codes: tuple[str, ...]
    reasons: tuple[str, ...]
    determining: tuple[DeterminingPolicy, ...]
    permits: tuple[DeterminingPolicy, ...] = ()
    memberships: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    obligations: Obligations = Obligations()
    missing_grant: MissingGrant | None = None
    without_asking: SettingChange | None = None
    bundle_digest: str = ""


def determining(names: tuple[str, ...], policies: Mapping[str, Policy]) -> tuple[DeterminingPolicy, ...]:
    return tuple(
        DeterminingPolicy(id=name, effect=policy.effect, location=str(policy.location), text=policy.text)
        for name in names
        if (policy := policies.get(name)) is not None
    )


def memberships_of(request: PolicyRequest) -> tuple[str, ...]:
    """Which sets each entity of the request is in: what most policies turn on."""
    shown: dict[str, None] = {}
    for entity in request.everyone():
        sets = ", ".join(map(str, entity.parents)) or "no set"
        shown[f"{entity.uid} is in {sets}"] = None
    return tuple(shown)


def reasons_in_words(judgement: Judgement, request: PolicyRequest, policies: Mapping[str, Policy]) -> tuple[str, ...]:
    return tuple(_reasons(judgement, request, policies))


def _reasons(judgement: Judgement, request: PolicyRequest, policies: Mapping[str, Policy]) -> Iterator[str]:
    asked = f"{_short(request.principal)} may not do {request.action} on {_short(request.resource)}"
    approval = ", even with approval" if may_be_approved(request) else ""
    named = tuple(_placed(name, policies) for name in judgement.policies)
    for code in judgement.reasons:
        match code:
            case Reason.PERMITTED:
                yield f"allowed: permitted by {_listed(named)}, and nothing forbids it"
            case Reason.APPROVAL_REQUIRED:
                permits = _listed(tuple(_placed(name, policies) for name in judgement.permits))
                yield f"needs approval: {_listed(named)} asks for it; once approved it is permitted by {permits}"
            case Reason.FORBIDDEN:
                yield f"denied: {asked}{approval}, because {_listed(named)} forbids it"
            case Reason.NO_PERMIT:
                yield f"denied: {asked}, because no policy permits it{approval}; what no policy permits is denied"
            case Reason.EVALUATION_ERROR:
                yield f"denied: {_listed(named)} could not be evaluated, and a policy that fails might be a forbid"
            case Reason.REQUEST_INVALID:
                yield "denied: the request does not fit the schema"
            case Reason.ENGINE_ERROR:
                yield "denied: the policy engine failed"
            case _:
                yield f"denied: {code}"


def explanation_in_words(explanation: Explanation) -> str:
    """The whole explanation as a page of text."""
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.outcome.value}: {explanation.principal} {explanation.action} {explanation.resource}"
    yield from (f"  {line}" for line in (*explanation.reasons, *explanation.errors, *explanation.memberships))
    for each in (*explanation.determining, *explanation.permits):
        yield f"\n{each.location}  {each.id}"
        yield from (f"  | {line}" for line in each.text.splitlines())
    limits = msgspec.structs.asdict(explanation.obligations)
    if stated := [f"{name} {value}" for name, value in limits.items() if value is not None]:
        yield f"\nheld to: {', '.join(stated)}"
    if spared := explanation.without_asking:
        yield f"\nto allow it without asking: add {spared.add!r} to {spared.setting}"
    if explanation.missing_grant:
        yield "\nto lift this:"
        yield from (f"- {way}" for way in grant_in_words(explanation.missing_grant))
    yield f"\nbundle {explanation.bundle_digest}"


def grant_in_words(grant: MissingGrant) -> tuple[str, ...]:
    """How to lift a denial: each entry is one way that suffices, the smallest first."""
    return tuple(_ways(grant))


def _ways(grant: MissingGrant) -> Iterator[str]:
    then = "it is then allowed" if grant.leads_to is Outcome.ALLOW else "it then waits for approval"
    if grant.settings:
        changes = " and ".join(f"add {change.add!r} to {change.setting}" for change in grant.settings)
        yield f"{changes}: {then}"
    steps = [
        f"in {exception.policy} ({exception.location}) add, before its semicolon, {exception.clause}"
        for exception in grant.exceptions
    ]
    if grant.permit:
        yield " and ".join((*steps, f"add this policy ({then}):\n{grant.permit}"))
    elif steps:
        yield f"{' and '.join(steps)}: {then}"


def _short(entity: Entity) -> str:
    return name_of_principal(entity.uid)


def _placed(name: str, policies: Mapping[str, Policy]) -> str:
    policy = policies.get(name)
    return f"{name} ({policy.location.file}:{policy.location.line})" if policy else name


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) if names else "the policies"
