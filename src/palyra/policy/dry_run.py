"""Tests of policies by operators, and replays of recorded requests under other policies.

An expectation is a request with the outcome it must have. A file is TOML or JSON with the same shape:

    version = 1

    [[expect]]
    name = "the bot may read files"
    principal = "agent:bot"
    tool = "fs.read"
    outcome = "needs_approval"
    policies = ["baseline.sensitive-needs-approval"]
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from palyra.errors import InvalidInput
from palyra.ids import Principal
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.request import (
    APPROVED,
    GATEWAY,
    TOOL_EXECUTE,
    Entity,
    EntityDirectory,
    EntityRef,
    PolicyRequest,
    UnreadableRequest,
    policy_request_from_json,
    tool_request,
)
from palyra.secret import REDACTED

EXPECTATION_VERSION: Final = 1
_TABLE = re.compile(r"^\s*\[\[\s*expect\s*\]\]", re.MULTILINE)


class BadExpectation(InvalidInput):
    code = "policy.expectation_invalid"
    hint = "an expectation has principal, outcome, and tool (or action and resource); see `palyra policy test --help`"


class ToolFacts(msgspec.Struct, frozen=True, kw_only=True):
    capabilities: frozenset[str] = frozenset()
    sensitive: bool = False
    tier: str = "builtin"


ToolLookup = Callable[[str], ToolFacts | None]


class ResourceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    id: str
    attrs: dict[str, Any] = {}


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tool_facts`` describes a tool the catalogue does not have. ``context`` overrides single context values."""

    principal: str
    outcome: Outcome
    name: str = ""
    action: str = TOOL_EXECUTE
    tool: str = ""
    tool_facts: ToolFacts | None = None
    resource: ResourceSpec | None = None
    channel: str = "cli"
    approved: bool = False
    context: dict[str, Any] = {}
    policies: tuple[str, ...] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    expect: tuple[Expectation, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    name: str
    expected: str
    actual: str
    policies: tuple[str, ...]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}: expected {self.expected}, got {self.actual}"


class PlacedExpectation(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    expectation: Expectation

    @property
    def title(self) -> str:
        wanted = self.expectation
        return wanted.name or f"{wanted.principal} {wanted.action} {wanted.tool or _resource_title(wanted)}".rstrip()


def parse_expectations(name: str, text: str) -> tuple[PlacedExpectation, ...]:
    """Parse the expectations of a file, each with its first line (1 in JSON, which is not read by line)."""
    is_json = name.endswith(".json")
    try:
        raw = msgspec.json.decode(text) if is_json else tomllib.loads(text)
        parsed = msgspec.convert(raw, _File)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadExpectation(f"{name}: {error}") from error
    if parsed.version != EXPECTATION_VERSION:
        raise BadExpectation(f"{name}: version {parsed.version} is not {EXPECTATION_VERSION}")
    places = [] if is_json else [text.count("\n", 0, found.end()) + 1 for found in _TABLE.finditer(text)]
    lines = places if len(places) == len(parsed.expect) else [1] * len(parsed.expect)
    return tuple(
        PlacedExpectation(file=name, line=line, expectation=expectation)
        for line, expectation in zip(lines, parsed.expect, strict=True)
    )


def request_of(placed: PlacedExpectation, directory: EntityDirectory, lookup: ToolLookup) -> PolicyRequest:
    wanted = placed.expectation
    principal = directory.principal(Principal.parse(wanted.principal))
    channel = directory.channel(wanted.channel)
    if wanted.tool:
        resource = _tool(placed, directory, lookup)
    elif wanted.resource is not None:
        described = wanted.resource
        resource = directory.placed(Entity(uid=EntityRef(described.type, described.id), attrs=described.attrs))
    else:
        resource = GATEWAY
    if wanted.action == TOOL_EXECUTE:
        request = tool_request(
            principal, resource, channel, approved=wanted.approved, workspace="", run="", argument_bytes=0
        )
    else:
        request = PolicyRequest(
            principal=principal,
            action=wanted.action,
            resource=resource,
            context={APPROVED: wanted.approved, "channel": channel.uid},
            entities=(channel,),
        )
    return request.with_context(**wanted.context) if wanted.context else request


def run_expectations(
    expectations: tuple[PlacedExpectation, ...], engine: PolicyPort, directory: EntityDirectory, lookup: ToolLookup
) -> Iterator[Failure]:
    for placed in expectations:
        decision = engine.decide(request_of(placed, directory, lookup))
        if failure := _compare(placed, decision):
            yield failure


def _compare(placed: PlacedExpectation, decision: Decision) -> Failure | None:
    wanted = placed.expectation
    named = wanted.policies
    if decision.outcome is wanted.outcome and (named is None or set(named) == set(decision.policies)):
        return None
    return Failure(
        file=placed.file,
        line=placed.line,
        name=placed.title,
        expected=_describe(wanted.outcome, named),
        actual=_describe(decision.outcome, decision.policies),
        policies=decision.policies,
        reasons=decision.reasons,
    )


def _describe(outcome: Outcome, policies: tuple[str, ...] | None) -> str:
    if policies is None:
        return outcome.value
    return f"{outcome.value} by {', '.join(sorted(policies))}" if policies else f"{outcome.value} by no policy"


def _tool(placed: PlacedExpectation, directory: EntityDirectory, lookup: ToolLookup) -> Entity:
    wanted = placed.expectation
    facts = wanted.tool_facts or lookup(wanted.tool)
    if facts is None:
        raise BadExpectation(
            f"{placed.file}:{placed.line}: {wanted.tool!r} is not a tool Palyra knows",
            hint="describe it with tool_facts = {capabilities = [...], sensitive = true}",
        )
    return directory.tool(wanted.tool, facts.capabilities, facts.sensitive, facts.tier)


def _resource_title(wanted: Expectation) -> str:
    return str(EntityRef(wanted.resource.type, wanted.resource.id)) if wanted.resource else ""


# The journal's mark of a string that it did not keep whole: such a request cannot be decided again.
_SHORTENED = re.compile(r"\[clipped: [0-9]+ characters, sha256 [0-9a-f]{64}\]\Z|" + re.escape(REDACTED))


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One ``call.decided`` event. ``request`` is its ``policy_request``, as JSON values."""

    seq: int
    call_id: str
    outcome: str
    request: Any
    policies: tuple[str, ...] = ()


class VerdictChanged(msgspec.Struct, frozen=True, kw_only=True, tag="changed", tag_field="kind"):
    seq: int
    call_id: str
    principal: str
    action: str
    resource: str
    old: str
    new: Outcome
    old_policies: tuple[str, ...]
    new_policies: tuple[str, ...]
    reasons: tuple[str, ...]


class NotReplayable(msgspec.Struct, frozen=True, kw_only=True, tag="not_replayable", tag_field="kind"):
    """A record that cannot be decided again. It is listed, because silence would read as "unchanged"."""

    seq: int
    call_id: str
    old: str
    why: str


ReplayFinding: TypeAlias = VerdictChanged | NotReplayable


def replay(records: Iterable[RecordedDecision], engine: PolicyPort) -> Iterator[ReplayFinding]:
    """Yield every verdict that changes, in the order of the records.

    The request's entities are those recorded, memberships of sets included, so that only the policies are compared.
    """
    for record in records:
        try:
            if _is_shortened(record.request):
                raise UnreadableRequest("a part of the request was redacted or shortened when it was recorded")
            request = policy_request_from_json(record.request)
        except UnreadableRequest as error:
            yield NotReplayable(seq=record.seq, call_id=record.call_id, old=record.outcome, why=error.message)
            continue
        decision = engine.decide(request)
        if decision.outcome.value != record.outcome:
            yield VerdictChanged(
                seq=record.seq,
                call_id=record.call_id,
                principal=str(request.principal.uid),
                action=request.action,
                resource=str(request.resource.uid),
                old=record.outcome,
                new=decision.outcome,
                old_policies=record.policies,
                new_policies=decision.policies,
                reasons=decision.reasons,
            )


def _is_shortened(value: Any) -> bool:
    match value:
        case str():
            return _SHORTENED.search(value) is not None
        case dict():
            return any(_is_shortened(key) or _is_shortened(item) for key, item in value.items())
        case list():
            return any(map(_is_shortened, value))
        case _:
            return False
