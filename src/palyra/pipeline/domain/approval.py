"""Approvals of a person, each bound to exactly what will run.

One table holds every transition. A transition that is not in it is refused. ``once`` is consumed by the call it starts,
in the transaction that starts it. The other scopes stay approved until they expire or are withdrawn.
"""

from enum import StrEnum
from typing import Any, Self

import msgspec

from palyra.canonical import digest_of
from palyra.clock import rfc3339
from palyra.errors import Denied, InvalidInput, LimitExceeded, NeedsApproval
from palyra.pipeline.domain.argument_pattern import PATTERN_FORMAT, ArgumentPattern
from palyra.visible_text import spell

# The format of requests that were made before approvals were bound to a place and to files.
_BINDING_FORMAT_WITHOUT_PLACE = "palyra.approval.binding.v1"
BINDING_FORMAT = "palyra.approval.binding.v2"


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CONSUMED = "consumed"
    WITHDRAWN = "withdrawn"


class ApprovalEvent(StrEnum):
    APPROVE = "approve"
    DENY = "deny"
    EXPIRE = "expire"
    CONSUME = "consume"
    WITHDRAW = "withdraw"


TRANSITIONS: dict[tuple[ApprovalState, ApprovalEvent], ApprovalState] = {
    (ApprovalState.PENDING, ApprovalEvent.APPROVE): ApprovalState.APPROVED,
    (ApprovalState.PENDING, ApprovalEvent.DENY): ApprovalState.DENIED,
    (ApprovalState.PENDING, ApprovalEvent.EXPIRE): ApprovalState.EXPIRED,
    (ApprovalState.PENDING, ApprovalEvent.WITHDRAW): ApprovalState.WITHDRAWN,
    (ApprovalState.APPROVED, ApprovalEvent.CONSUME): ApprovalState.CONSUMED,
    (ApprovalState.APPROVED, ApprovalEvent.EXPIRE): ApprovalState.EXPIRED,
    (ApprovalState.APPROVED, ApprovalEvent.WITHDRAW): ApprovalState.WITHDRAWN,
}


class ApprovalScope(StrEnum):
    ONCE = "once"
    SESSION = "session"
    PATTERN = "pattern"
    TIMEBOXED = "timeboxed"

    @property
    def exact(self) -> bool:
        """Return whether it covers only the call that was shown, with the files that were shown."""
        return self in (ApprovalScope.ONCE, ApprovalScope.SESSION)


class CallPlace(StrEnum):
    """The machine that a call runs on."""

    HERE = "here"
    WORKER = "worker"


class UnknownApproval(InvalidInput):
    code = "approval.unknown"
    hint = "`palyra approvals list` shows what waits"
    http_status = 404


class AlreadyDecided(InvalidInput):
    code = "approval.already_decided"
    hint = "an approval is decided once; make the call again to ask again"
    http_status = 409


class ApprovalExpired(InvalidInput):
    code = "approval.expired"
    hint = "make the call again to ask again"
    http_status = 409


class SelfApproval(Denied):
    code = "approval.self"
    hint = "somebody other than the requester must decide"


class ChangedCall(InvalidInput):
    code = "approval.changed_call"
    hint = "look at the request again: the digest you decided on is not the one that waits"
    http_status = 409


class ApprovalOutdated(InvalidInput):
    code = "approval.outdated"
    hint = (
        "have the call made again: it is judged as things are now, and asks again if it still has to; deny this"
        " request, so that its caller knows"
    )
    http_status = 409


class ApprovedFileChanged(InvalidInput):
    code = "approval.changed_file"
    hint = "make the call again: it asks again, with the files as they are now"
    http_status = 409


class DeniedBefore(Denied):
    code = "approval.denied_before"
    hint = (
        "do not repeat it: do something else, or ask the person why; the setting approvals.denied_again_seconds"
        " says how long a no lasts"
    )


class ScopeIncomplete(InvalidInput):
    code = "approval.scope_incomplete"
    hint = "session needs a request made in a session; pattern needs an argument pattern; only pattern takes one"


class TooManyPending(LimitExceeded):
    code = "approval.too_many_pending"
    hint = "wait until a person has decided some of them"


class BoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A program that a call runs, or a file that its words name, as it was when a person was asked.

    ``path`` is the word of the call. ``real`` is where that leads: relative in the workspace, absolute elsewhere, empty
    if nothing is there. A file too large to read has a ``stamp`` instead of a digest. It changes with every write.
    """

    path: str
    real: str
    bytes: int = 0
    sha256: str = ""
    stamp: str = ""
    # The call runs this file itself.
    program: bool = False


class SentFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a call on a worker sends there. ``paths`` are the parts of the workspace that hold them."""

    paths: tuple[str, ...]
    files: int
    bytes: int
    # Whether there are more than were counted. Such a call fails, because a worker takes only so many.
    more: bool = False

    def in_words(self) -> str:
        if not self.paths:
            return "sends no file there"
        what = "the whole workspace" if "." in self.paths else ", ".join(map(spell, self.paths))
        least = "more than " if self.more else ""
        return f"sends {what} there ({least}{self.files} file{'' if self.files == 1 else 's'}, {self.bytes} bytes)"


class InspectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a call as they are now: those that an approval is bound to, and those that leave this machine."""

    files: tuple[BoundFile, ...] = ()
    sends: SentFiles | None = None


class ApprovalBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The call that an approval is bound to. A change of any field makes it another call."""

    principal: str
    tool: str
    argument_digest: str
    bundle_digest: str
    workspace: str
    skill: str = ""
    # Empty in a request that an earlier version made.
    place: str = ""
    tier: str = ""
    obligations: dict[str, Any] = {}
    # The places of the paths that lead elsewhere over links.
    places: dict[str, str] = {}
    files: tuple[BoundFile, ...] = ()

    @property
    def digest(self) -> str:
        if self.place:
            return digest_of({"format": BINDING_FORMAT, **msgspec.to_builtins(self)})
        earlier = ("principal", "tool", "argument_digest", "bundle_digest", "workspace", "skill")
        fields = {name: getattr(self, name) for name in earlier}
        return digest_of({"format": _BINDING_FORMAT_WITHOUT_PLACE, **fields})

    @property
    def programs(self) -> tuple[BoundFile, ...]:
        return tuple(file for file in self.files if file.program)

    def for_scope(self, scope: ApprovalScope) -> Self:
        """Return what an approval of this scope binds: a wider one leaves the arguments and what they name free."""
        if scope.exact:
            return self
        programs = tuple(msgspec.structs.replace(file, path="") for file in self.programs)
        return msgspec.structs.replace(self, argument_digest="", files=programs)


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The values that every call of one tool is bound to now. ``skill`` is None if it is unknown."""

    bundle_digest: str
    workspace: str
    skill: str | None

    def changed_since(self, binding: ApprovalBinding) -> str:
        """Say why a request with this binding covers no call that is made now; return an empty text if it does."""
        if not binding.place:
            return "an earlier version of Palyra asked it, without the place and the files of the call"
        if binding.bundle_digest != self.bundle_digest:
            return "it was asked under other policies than those now in force"
        if binding.workspace != self.workspace:
            now = f"calls work in {self.workspace} now" if self.workspace else "its principal has no workspace now"
            return f"it was asked in the workspace {binding.workspace}, and {now}"
        if self.skill is not None and binding.skill != self.skill:
            return f"it was asked of another version of {binding.tool} than the one now in use"
        return ""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: ApprovalState
    binding: ApprovalBinding
    session: str
    arguments: dict[str, Any]
    touches: dict[str, Any]
    policies: tuple[str, ...]
    created_ms: int
    expires_ms: int
    scope: ApprovalScope | None = None
    pattern: dict[str, Any] | None = None
    decided_ms: int | None = None
    decided_by: str | None = None
    reason: str = ""
    consumed_by: str | None = None
    # What the call would send to a worker, counted when it was asked for.
    sends: SentFiles | None = None
    pattern_format: int = 1
    # The size of a decided request whose arguments are no longer kept; their digest is.
    dropped_bytes: int = 0

    @property
    def runs(self) -> str:
        """Say where the call runs, and what leaves this machine for it."""
        if devices := self.touches.get("devices"):
            return f"on the device {', '.join(devices)}"
        tier = "" if self.binding.tier in ("", "builtin") else f", in tier {self.binding.tier}"
        if self.binding.place == CallPlace.WORKER:
            return f"on a worker{tier}: {'' if self.sends is None else self.sends.in_words()}"
        return f"here{tier}" if self.binding.place else ""

    def after(self, event: ApprovalEvent) -> ApprovalState:
        try:
            return TRANSITIONS[self.state, event]
        except KeyError:
            raise AlreadyDecided(f"this approval is {self.state.value} and cannot {event.value}", id=self.id) from None

    def in_words(self) -> str:
        """Say which calls an approval of this scope allows."""
        return self.describe_yes(self.scope or ApprovalScope.ONCE, self.pattern, f"until {rfc3339(self.expires_ms)}")

    def describe_yes(self, scope: ApprovalScope, pattern: dict[str, Any] | None, until: str) -> str:
        """Say which calls an approval of this request with this scope would allow. ``until`` says how long."""
        who, tool, conditions = self.binding.principal, self.binding.tool, self._conditions(scope)
        match scope:
            case ApprovalScope.SESSION:
                where = f"in session {spell(self.session)} {until}"
                return f"{who} may make exactly this {tool} call any number of times {where}{conditions}"
            case ApprovalScope.PATTERN:
                words = ArgumentPattern.from_stored(pattern or {}).in_words(self.arguments)
                return f"{who} may call {tool} {words}, any number of times {until}{conditions}"
            case ApprovalScope.TIMEBOXED:
                return f"{who} may call {tool} with any arguments {until}{conditions}"
            case _:
                return f"{who} may make exactly this {tool} call once, {until}{conditions}"

    def _conditions(self, scope: ApprovalScope) -> str:
        """Say what else holds for the calls that it allows: their place, their program and their files."""
        conditions = ["on a worker"] if self.binding.place == CallPlace.WORKER else []
        programs = [spell(file.real or file.path) for file in self.binding.programs]
        if scope.exact:
            conditions += ["as long as its program and files do not change"] if self.binding.files else []
        elif programs:
            conditions.append(
                f"only with the program {programs[0]} as it is now, whatever the files hold that it reads"
            )
        return "".join(f", {condition}" for condition in conditions)

    def covers_by_pattern(self, arguments: dict[str, Any]) -> bool:
        raw = self.pattern or {}
        if self.pattern_format < PATTERN_FORMAT and any(
            isinstance(each, str) and "\\" in each for each in raw.values()
        ):
            # Read as an escape, a backslash could cover what nobody approved.
            return False
        pattern = ArgumentPattern.parse(raw)
        return pattern.matches(arguments, alone=pattern.names_all(self.arguments))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One person's answer to one request."""

    event: ApprovalEvent
    by: str
    scope: ApprovalScope = ApprovalScope.ONCE
    pattern: dict[str, Any] | None = None
    expires_ms: int | None = None
    reason: str = ""
    argument_digest: str | None = None
    # For an approval: the values that calls are bound to now. It has to cover them.
    in_force: InForce | None = None


def decide_approval(approval: Approval, verdict: Verdict, now_ms: int) -> Approval:
    """Return the approval after the verdict, or raise the refusal that applies."""
    if approval.state is ApprovalState.PENDING and now_ms >= approval.expires_ms:
        raise ApprovalExpired(f"the request expired at {rfc3339(approval.expires_ms)}", id=approval.id)
    state = approval.after(verdict.event)
    if verdict.event is not ApprovalEvent.WITHDRAW and verdict.by == approval.binding.principal:
        raise SelfApproval(f"{verdict.by} asked for this and cannot decide it", id=approval.id)
    if verdict.argument_digest is not None and verdict.argument_digest != approval.binding.argument_digest:
        raise ChangedCall("the request that waits has other arguments than the ones decided on", id=approval.id)
    if verdict.event is ApprovalEvent.APPROVE:
        if verdict.in_force is not None and (changed := verdict.in_force.changed_since(approval.binding)):
            raise ApprovalOutdated(f"an approval of this would cover nothing: {changed}", id=approval.id)
        _check_scope(approval, verdict)
    return msgspec.structs.replace(
        approval,
        state=state,
        scope=verdict.scope if verdict.event is ApprovalEvent.APPROVE else None,
        pattern=verdict.pattern,
        pattern_format=PATTERN_FORMAT,
        expires_ms=verdict.expires_ms or approval.expires_ms,
        decided_ms=now_ms,
        decided_by=verdict.by,
        reason=verdict.reason,
    )


def _check_scope(approval: Approval, verdict: Verdict) -> None:
    if verdict.scope is ApprovalScope.SESSION and not approval.session:
        raise ScopeIncomplete("this request was made outside any session")
    if (verdict.scope is ApprovalScope.PATTERN) != (verdict.pattern is not None):
        raise ScopeIncomplete("scope and pattern do not go together")
    if verdict.pattern is not None and not ArgumentPattern.parse(verdict.pattern).matches(approval.arguments):
        raise ScopeIncomplete("the pattern does not even cover the call that waits")


def match_scope(
    approval: Approval, binding: ApprovalBinding, arguments: dict[str, Any], session: str, now_ms: int
) -> ApprovalScope | None:
    """Return the scope under which this approval covers that call. Every scope binds the place and the program."""
    scope = approval.scope
    if approval.state is not ApprovalState.APPROVED or now_ms >= approval.expires_ms or scope is None:
        return None
    if approval.binding.for_scope(scope) != binding.for_scope(scope):
        return None
    match scope:
        case ApprovalScope.SESSION:
            fits = session == approval.session
        case ApprovalScope.PATTERN:
            fits = approval.covers_by_pattern(arguments)
        case _:
            fits = True
    return scope if fits else None


class ApprovalNeeded(NeedsApproval):
    code = "call.needs_approval"


def build_approval_error(approval: Approval) -> ApprovalNeeded:
    return ApprovalNeeded(
        f"{approval.binding.tool} needs a person's approval",
        hint=f"approve it with: palyra approvals approve {approval.id} - then make the same call again",
        approval_id=approval.id,
        expires_ms=approval.expires_ms,
        default="deny",
        policies=list(approval.policies),
    )
