"""The smallest change that would lift a denial. Nothing is offered that was not tried on the engine first."""

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
    MissingGrant,
    Outcome,
    SettingChange,
    may_be_approved,
)
from palyra.policy.entities import (
    ALLOWED,
    OPERATORS,
    PREAPPROVED,
    Entity,
    EntityRef,
    cedar_string,
    glob_literal,
    name_of_principal,
)
from palyra.policy.request import APPROVED, PolicyRequest

# What a trial policy is called in an evaluation; an ``@id`` never contains a space.
TRIAL_ID: Final = "trial grant"


class Trials(Protocol):
    def evaluate(
        self, request: PolicyRequest, *, added: str = "", narrowed: Mapping[str, str] | None = None
    ) -> Evaluation:
        """Evaluates with one policy added, and with clauses appended to the policies of these ids."""


class _Membership(NamedTuple):
    """Putting ``member`` into ``of`` is what adding its name to ``setting`` does."""

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
    """What would lift the denial of this request, which these forbids hold up even with approval; None if nothing."""
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
    """The setting with which a request that needs approval would be allowed without asking."""
    if request.resource.uid.type != "Tool":
        return None
    tool = request.resource.uid
    membership = _Membership("tools.preapproved", tool, EntityRef("ToolSet", PREAPPROVED))
    answer = trials.evaluate(_with_members(request, (membership,))).answer
    return membership.change() if answer is Answer.ALLOW else None


def exact_permit(request: PolicyRequest) -> str:
    """A policy ready to paste. Its ``@id`` is derived from what it permits, so two grants never share one."""
    what = f"{request.principal.uid} {request.action} {request.resource.uid}"
    return (
        f'@id("grant-{hashlib.sha256(what.encode()).hexdigest()[:12]}")\n'
        f"permit (principal == {request.principal.uid}, action == Action::{cedar_string(request.action)}, "
        f"resource == {request.resource.uid});"
    )


def exception_clause(request: PolicyRequest, forbid: Policy) -> str:
    """The clause that excepts exactly this principal, action and resource, without repeating the forbid's own head."""
    parts = {
        "principal": (forbid.scope.principal, f"principal == {request.principal.uid}"),
        "action": (forbid.scope.action, f"action == Action::{cedar_string(request.action)}"),
        "resource": (forbid.scope.resource, f"resource == {request.resource.uid}"),
    }
    needed = [test for fixed, test in parts.values() if fixed is None] or [test for _, test in parts.values()]
    return f"unless {{ {' && '.join(needed)} }}"


def _outcome(evaluation: Evaluation) -> Outcome:
    """The change is known to be allowed once approved, so what is not allowed at once needs approval."""
    return Outcome.ALLOW if evaluation.answer is Answer.ALLOW else Outcome.NEEDS_APPROVAL


def _sufficient_settings(goal: PolicyRequest, trials: Trials) -> tuple[_Membership, ...]:
    """The fewest settings that suffice, one where possible."""
    lacking = tuple(_lacking(goal))
    for size in range(1, len(lacking) + 1):
        for chosen in combinations(lacking, size):
            if size > 1 and any(membership.of.id == OPERATORS for membership in chosen):
                continue
            if trials.evaluate(_with_members(goal, chosen)).answer is Answer.ALLOW:
                return chosen
    return ()


def _lacking(request: PolicyRequest) -> Iterator[_Membership]:
    """The memberships the settings could give and do not, from the narrowest change to the widest."""
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
    """The request as the directory would make it with these names added."""

    def placed(entity: Entity) -> Entity:
        more = tuple(membership.of for membership in memberships if membership.member == entity.uid)
        return msgspec.structs.replace(entity, parents=(*entity.parents, *more)) if more else entity

    return msgspec.structs.replace(
        request,
        principal=placed(request.principal),
        resource=placed(request.resource),
        entities=tuple(map(placed, request.entities)),
    )
