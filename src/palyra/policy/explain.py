"""Explanation of a decision in words, and the smallest change that would lift a denial."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple, Protocol

import msgspec

from palyra.policy.bundle import Policy
from palyra.policy.decision import (
    Answer,
    Evaluation,
    ForbidException,
    Judgement,
    MissingGrant,
    Obligations,
    Outcome,
    Reason,
    SettingChange,
    may_be_approved,
)
from palyra.policy.request import (
    ALLOWED,
    APPROVED,
    OPERATORS,
    PREAPPROVED,
    Entity,
    EntityRef,
    PolicyRequest,
    cedar_string,
    glob_literal,
    name_of_principal,
)


class DeterminingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    effect: str
    location: str
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``codes`` are the decision's reason codes and ``reasons`` the same in words.

    ``permits`` would allow the request once it is approved. ``preapproval`` is the setting that spares the approval.
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
    preapproval: SettingChange | None = None
    bundle_digest: str = ""


def determining(names: tuple[str, ...], policies: Mapping[str, Policy]) -> tuple[DeterminingPolicy, ...]:
    return tuple(
        DeterminingPolicy(id=name, effect=policy.effect, location=str(policy.location), text=policy.text)
        for name in names
        if (policy := policies.get(name)) is not None
    )


def memberships_of(request: PolicyRequest) -> tuple[str, ...]:
    """Describe the sets of each entity of the request, by which most policies decide."""
    shown: dict[str, None] = {}
    for entity in request.everyone():
        sets = ", ".join(map(str, entity.parents)) or "no set"
        shown[f"{entity.uid} is in {sets}"] = None
    return tuple(shown)


def describe_reasons(judgement: Judgement, request: PolicyRequest, policies: Mapping[str, Policy]) -> Iterator[str]:
    asked = f"{_name(request.principal)} may not do {request.action} on {_name(request.resource)}"
    approval = ", even with approval" if may_be_approved(request) else ""
    named = tuple(_locate(name, policies) for name in judgement.policies)
    for code in judgement.reasons:
        match code:
            case Reason.PERMITTED:
                yield f"allowed: permitted by {_join(named)}, and nothing forbids it"
            case Reason.APPROVAL_REQUIRED:
                permits = _join(tuple(_locate(name, policies) for name in judgement.permits))
                yield f"needs approval: {_join(named)} asks for it; once approved it is permitted by {permits}"
            case Reason.FORBIDDEN:
                yield f"denied: {asked}{approval}, because {_join(named)} forbids it"
            case Reason.NO_PERMIT:
                yield f"denied: {asked}, because no policy permits it{approval}; what no policy permits is denied"
            case Reason.EVALUATION_ERROR:
                yield f"denied: {_join(named)} could not be evaluated, and a policy that fails might be a forbid"
            case Reason.REQUEST_INVALID:
                yield "denied: the request does not fit the schema"
            case Reason.ENGINE_ERROR:
                yield "denied: the policy engine failed"
            case _:
                yield f"denied: {code}"


def describe_explanation(explanation: Explanation) -> str:
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
    if spared := explanation.preapproval:
        yield f"\nto allow it without asking: add {spared.add!r} to {spared.setting}"
    if explanation.missing_grant:
        yield "\nto lift this:"
        yield from (f"- {way}" for way in describe_grant(explanation.missing_grant))
    yield f"\nbundle {explanation.bundle_digest}"


def describe_grant(grant: MissingGrant) -> Iterator[str]:
    """Describe each way to lift a denial, the smallest first."""
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


def _name(entity: Entity) -> str:
    return name_of_principal(entity.uid)


def _locate(name: str, policies: Mapping[str, Policy]) -> str:
    policy = policies.get(name)
    return f"{name} ({policy.location.file}:{policy.location.line})" if policy else name


def _join(names: tuple[str, ...]) -> str:
    return " and ".join(names) if names else "the policies"


# Name of a trial policy in an evaluation; an ``@id`` never contains a space.
TRIAL_ID: Final = "trial grant"


class Trials(Protocol):
    def evaluate(
        self, request: PolicyRequest, *, added: str = "", narrowed: Mapping[str, str] | None = None
    ) -> Evaluation:
        """Evaluate with one policy added, and with clauses appended to the policies of these ids."""


class _Membership(NamedTuple):
    """Adding the name of ``member`` to ``setting`` puts it into ``of``."""

    setting: str
    member: EntityRef
    of: EntityRef

    def change(self) -> SettingChange:
        is_principal = self.member.type in ("User", "Agent")
        name = name_of_principal(self.member) if is_principal else self.member.id
        return SettingChange(setting=self.setting, add=glob_literal(name))


def find_missing_grant(
    request: PolicyRequest, forbids: tuple[str, ...], trials: Trials, policies: Mapping[str, Policy]
) -> MissingGrant | None:
    """Find the change that would lift a denial, which ``forbids`` keep up even with approval; None if nothing would."""
    goal = request.with_context(**{APPROVED: True}) if may_be_approved(request) else request
    settings = _sufficient_settings(goal, trials)
    exceptions = {name: exception_clause(request, policies[name]) for name in forbids}
    permit = ""
    lifted = bool(exceptions) and trials.evaluate(goal, narrowed=exceptions).answer is Answer.ALLOW
    if not lifted:
        permit = exact_permit(request)
        lifted = trials.evaluate(goal, added=permit, narrowed=exceptions).answer is Answer.ALLOW
    if not settings and not lifted:
        return None
    outcome = _outcome(trials.evaluate(request, added=permit, narrowed=exceptions))
    if settings:
        by_policy, outcome = outcome, _outcome(trials.evaluate(_with_members(request, settings)))
        # One answer for both ways: a policy that leads elsewhere than the setting is not offered beside it.
        lifted = lifted and by_policy is outcome
    changes = tuple(membership.change() for membership in settings)
    return MissingGrant(
        leads_to=outcome,
        setting=changes[0].setting if len(changes) == 1 else "",
        add=changes[0].add if len(changes) == 1 else "",
        settings=changes,
        permit=permit if lifted else "",
        exceptions=tuple(
            ForbidException(policy=name, location=str(policies[name].location), clause=clause)
            for name, clause in exceptions.items()
        )
        if lifted
        else (),
    )


def find_preapproval(request: PolicyRequest, trials: Trials) -> SettingChange | None:
    """Find the setting with which a request that needs approval would be allowed without it."""
    if request.resource.uid.type != "Tool":
        return None
    tool = request.resource.uid
    membership = _Membership("tools.preapproved", tool, EntityRef("ToolSet", PREAPPROVED))
    answer = trials.evaluate(_with_members(request, (membership,))).answer
    return membership.change() if answer is Answer.ALLOW else None


def exact_permit(request: PolicyRequest) -> str:
    """Write a policy ready to paste. Its ``@id`` derives from its head, so that two grants never share one."""
    what = f"{request.principal.uid} {request.action} {request.resource.uid}"
    return (
        f'@id("grant-{hashlib.sha256(what.encode()).hexdigest()[:12]}")\n'
        f"permit (principal == {request.principal.uid}, action == Action::{cedar_string(request.action)}, "
        f"resource == {request.resource.uid});"
    )


def exception_clause(request: PolicyRequest, forbid: Policy) -> str:
    """Write the clause that excepts this principal, action and resource, without repeating the forbid's head."""
    parts = {
        "principal": (forbid.scope.principal, f"principal == {request.principal.uid}"),
        "action": (forbid.scope.action, f"action == Action::{cedar_string(request.action)}"),
        "resource": (forbid.scope.resource, f"resource == {request.resource.uid}"),
    }
    needed = [test for fixed, test in parts.values() if fixed is None] or [test for _, test in parts.values()]
    return f"unless {{ {' && '.join(needed)} }}"


def _outcome(evaluation: Evaluation) -> Outcome:
    """Return the outcome of a change that is known to suffice once approved."""
    return Outcome.ALLOW if evaluation.answer is Answer.ALLOW else Outcome.NEEDS_APPROVAL


def _sufficient_settings(goal: PolicyRequest, trials: Trials) -> tuple[_Membership, ...]:
    """Find the fewest settings that suffice, one where possible."""
    lacking = tuple(_lacking(goal))
    for size in range(1, len(lacking) + 1):
        for chosen in combinations(lacking, size):
            if size > 1 and any(membership.of.id == OPERATORS for membership in chosen):
                continue
            if trials.evaluate(_with_members(goal, chosen)).answer is Answer.ALLOW:
                return chosen
    return ()


def _lacking(request: PolicyRequest) -> Iterator[_Membership]:
    """Yield the memberships that settings could still give, from the narrowest change to the widest."""
    if request.resource.uid.type == "Tool":
        yield from _unless_member(request.resource, "tools.allowed", EntityRef("ToolSet", ALLOWED))
    channel = _channel_of(request)
    if channel is not None:
        yield from _unless_member(channel, "access.channels", EntityRef("ChannelSet", ALLOWED))
    if request.principal.uid.type in ("User", "Agent"):
        yield from _unless_member(request.principal, "access.principals", EntityRef("Group", ALLOWED))
        yield from _unless_member(request.principal, "access.operators", EntityRef("Group", OPERATORS))


def _unless_member(entity: Entity, setting: str, wanted: EntityRef) -> Iterator[_Membership]:
    if wanted not in entity.parents:
        yield _Membership(setting, entity.uid, wanted)


def _channel_of(request: PolicyRequest) -> Entity | None:
    channel = request.context.get("channel")
    return next((entity for entity in request.entities if entity.uid == channel), None)


def _with_members(request: PolicyRequest, memberships: tuple[_Membership, ...]) -> PolicyRequest:
    """Build the request that the directory would make with these names added."""

    def place(entity: Entity) -> Entity:
        more = tuple(membership.of for membership in memberships if membership.member == entity.uid)
        return msgspec.structs.replace(entity, parents=(*entity.parents, *more)) if more else entity

    return msgspec.structs.replace(
        request,
        principal=place(request.principal),
        resource=place(request.resource),
        entities=tuple(map(place, request.entities)),
    )
