import itertools
from typing import Any

import msgspec
import pytest

from palyra.pipeline.domain.approval import (
    TRANSITIONS,
    AlreadyDecided,
    Approval,
    ApprovalBinding,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalOutdated,
    ApprovalScope,
    ApprovalState,
    BoundFile,
    ChangedCall,
    InForce,
    ScopeIncomplete,
    SelfApproval,
    Verdict,
    decide_approval,
    match_scope,
)

BINDING = ApprovalBinding(
    principal="agent:bot",
    tool="fs.write",
    argument_digest="a" * 64,
    bundle_digest="b" * 64,
    workspace="/w",
    place="here",
    tier="builtin",
)
ARGUMENTS = {"path": "docs/a.md", "content": "x"}


def an_approval(**changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "state": ApprovalState.PENDING,
        "binding": BINDING,
        "session": "s1",
        "arguments": ARGUMENTS,
        "touches": {},
        "policies": ("p",),
        "created_ms": 0,
        "expires_ms": 1000,
    }
    return Approval(**{**fields, **changes})


def approve(**changes: Any) -> Verdict:
    return Verdict(**{"event": ApprovalEvent.APPROVE, "by": "user:alice", **changes})


@pytest.mark.promise("P-approval-ends")
@pytest.mark.parametrize(("state", "event"), list(itertools.product(ApprovalState, ApprovalEvent)))
def test_every_pair_is_handled_or_refused(state: ApprovalState, event: ApprovalEvent) -> None:
    approval = an_approval(state=state)
    if (state, event) in TRANSITIONS:
        assert approval.after(event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(AlreadyDecided):
            approval.after(event)


@pytest.mark.promise("P-approval-ends")
def test_nothing_leads_out_of_an_end() -> None:
    ends = {ApprovalState.DENIED, ApprovalState.EXPIRED, ApprovalState.CONSUMED, ApprovalState.WITHDRAWN}
    assert not ends & {state for state, _ in TRANSITIONS}


def test_the_requester_cannot_decide() -> None:
    for event in (ApprovalEvent.APPROVE, ApprovalEvent.DENY):
        with pytest.raises(SelfApproval):
            decide_approval(an_approval(), Verdict(event=event, by="agent:bot"), 10)


def test_the_requester_may_withdraw() -> None:
    withdrawn = decide_approval(an_approval(), Verdict(event=ApprovalEvent.WITHDRAW, by="agent:bot"), 10)
    assert withdrawn.state is ApprovalState.WITHDRAWN


def test_deciding_late_twice_or_on_other_arguments_is_refused() -> None:
    with pytest.raises(ApprovalExpired):
        decide_approval(an_approval(), approve(), 1000)
    with pytest.raises(AlreadyDecided):
        decide_approval(decide_approval(an_approval(), approve(), 10), approve(), 11)
    with pytest.raises(ChangedCall):
        decide_approval(an_approval(), approve(argument_digest="c" * 64), 10)


@pytest.mark.parametrize(
    "verdict",
    [
        approve(scope=ApprovalScope.PATTERN),
        approve(scope=ApprovalScope.ONCE, pattern={"path": "*"}),
        approve(scope=ApprovalScope.PATTERN, pattern={"path": "src/**"}),
    ],
)
def test_a_scope_must_fit_the_request(verdict: Verdict) -> None:
    with pytest.raises(ScopeIncomplete):
        decide_approval(an_approval(), verdict, 10)


def test_session_scope_needs_a_session() -> None:
    with pytest.raises(ScopeIncomplete):
        decide_approval(an_approval(session=""), approve(scope=ApprovalScope.SESSION), 10)


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize(
    "change",
    [
        {"principal": "agent:other"},
        {"tool": "fs.patch"},
        {"bundle_digest": "c" * 64},
        {"workspace": "/elsewhere"},
        {"skill": "x@1"},
    ],
)
@pytest.mark.parametrize("scope", list(ApprovalScope))
def test_every_scope_binds_all_but_the_arguments(scope: ApprovalScope, change: dict[str, str]) -> None:
    pattern = {"path": "docs/*"} if scope is ApprovalScope.PATTERN else None
    approved = decide_approval(an_approval(), approve(scope=scope, pattern=pattern), 10)
    assert match_scope(approved, BINDING, ARGUMENTS, "s1", 20) is scope
    assert match_scope(approved, msgspec.structs.replace(BINDING, **change), ARGUMENTS, "s1", 20) is None


@pytest.mark.promise("P-approval-exact")
def test_what_each_scope_covers() -> None:
    other = msgspec.structs.replace(BINDING, argument_digest="d" * 64)
    once = decide_approval(an_approval(), approve(), 10)
    assert match_scope(once, other, ARGUMENTS, "s1", 20) is None
    session = decide_approval(an_approval(), approve(scope=ApprovalScope.SESSION), 10)
    assert match_scope(session, BINDING, ARGUMENTS, "s2", 20) is None
    assert match_scope(session, other, ARGUMENTS, "s1", 20) is None
    pattern = decide_approval(an_approval(), approve(scope=ApprovalScope.PATTERN, pattern={"path": "docs/*"}), 10)
    assert match_scope(pattern, other, {"path": "docs/b.md", "content": "y"}, "", 20) is ApprovalScope.PATTERN
    assert match_scope(pattern, other, {"path": "src/b.md", "content": "y"}, "", 20) is None
    timeboxed = decide_approval(an_approval(), approve(scope=ApprovalScope.TIMEBOXED, expires_ms=50), 10)
    assert match_scope(timeboxed, other, {}, "", 49) is ApprovalScope.TIMEBOXED
    assert match_scope(timeboxed, other, {}, "", 50) is None


def test_only_an_approved_request_covers() -> None:
    for state in set(ApprovalState) - {ApprovalState.APPROVED}:
        approval = an_approval(state=state, scope=ApprovalScope.TIMEBOXED)
        assert match_scope(approval, BINDING, ARGUMENTS, "s1", 20) is None


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize(
    ("stored", "value"), [("a\\*b", "a*b"), ("a\\*b", "a\\xb"), ("a\\\\b", "a\\b"), ("a\\b", "a\\b"), ("a\\", "a\\")]
)
def test_a_pattern_from_before_there_were_escapes_covers_nothing_if_it_has_a_backslash(stored: str, value: str) -> None:
    approved = an_approval(state=ApprovalState.APPROVED, scope=ApprovalScope.PATTERN, pattern={"path": stored})
    other = msgspec.structs.replace(BINDING, argument_digest="c" * 64)
    assert match_scope(approved, other, {"path": value}, "", 20) is None
    # It is still listed, in words.
    assert "where path" in approved.in_words()
    plain = an_approval(state=ApprovalState.APPROVED, scope=ApprovalScope.PATTERN, pattern={"path": "docs/*"})
    assert match_scope(plain, other, {"path": "docs/b", "content": "y"}, "", 20) is ApprovalScope.PATTERN


@pytest.mark.promise("P-approval-exact")
def test_a_pattern_that_names_every_argument_covers_no_further_one() -> None:
    pattern = {"path": "docs/*", "content": "*"}
    approved = decide_approval(an_approval(), approve(scope=ApprovalScope.PATTERN, pattern=pattern), 10)
    other = msgspec.structs.replace(BINDING, argument_digest="c" * 64)
    assert match_scope(approved, other, {"path": "docs/b", "content": "y"}, "", 20) is ApprovalScope.PATTERN
    assert match_scope(approved, other, {"path": "docs/b", "content": "y", "mode": "append"}, "", 20) is None
    assert match_scope(approved, other, {"path": "docs/b"}, "", 20) is None
    assert "and it has no other argument" in approved.in_words()


def test_the_meaning_of_a_pattern_names_what_stays_free() -> None:
    approved = decide_approval(an_approval(), approve(scope=ApprovalScope.PATTERN, pattern={"path": "docs/*"}), 10)
    assert "path matches docs/*" in approved.in_words()
    assert "whatever its other arguments" in approved.in_words()


@pytest.mark.promise("P-approval-exact")
def test_the_binding_digest_depends_on_every_field() -> None:
    digests = {msgspec.structs.replace(BINDING, **{name: "changed"}).digest for name in BINDING.__struct_fields__} | {
        BINDING.digest
    }
    assert len(digests) == len(BINDING.__struct_fields__) + 1


def test_a_request_of_an_earlier_version_keeps_its_digest_and_covers_no_call() -> None:
    names = ("principal", "tool", "argument_digest", "bundle_digest", "workspace", "skill")
    stored = msgspec.json.encode({name: getattr(BINDING, name) for name in names})
    earlier = msgspec.json.decode(stored, type=ApprovalBinding)
    assert earlier.digest == "31f7b6a181d04df83323b8e4a3e2cd8093a5648d327527201d8cb7bb71a1797c"
    in_force = InForce(bundle_digest=earlier.bundle_digest, workspace=earlier.workspace, skill=None)
    assert "earlier version" in in_force.changed_since(earlier)
    approved = an_approval(binding=earlier, state=ApprovalState.APPROVED, scope=ApprovalScope.TIMEBOXED)
    assert match_scope(approved, BINDING, ARGUMENTS, "s1", 1) is None


PROGRAM = BoundFile(path="make", real="/usr/bin/make", sha256="1" * 64, program=True)
SCRIPT = BoundFile(path="build.sh", real="build.sh", sha256="2" * 64)


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize("scope", ApprovalScope)
@pytest.mark.parametrize(
    "changed",
    [
        {"place": "worker"},
        {"tier": "b"},
        {"obligations": {"read_only": True}},
        {"files": ()},
        {"files": (msgspec.structs.replace(PROGRAM, sha256="3" * 64), SCRIPT)},
        {"files": (msgspec.structs.replace(PROGRAM, real="bin/make"), SCRIPT)},
    ],
)
def test_every_scope_binds_the_place_and_the_program(scope: ApprovalScope, changed: dict[str, Any]) -> None:
    bound = msgspec.structs.replace(BINDING, files=(PROGRAM, SCRIPT))
    pattern = {"path": "docs/**"} if scope is ApprovalScope.PATTERN else None
    approved = an_approval(binding=bound, state=ApprovalState.APPROVED, scope=scope, pattern=pattern)
    assert match_scope(approved, bound, ARGUMENTS, "s1", 1) is scope
    assert match_scope(approved, msgspec.structs.replace(bound, **changed), ARGUMENTS, "s1", 1) is None


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize("scope", ApprovalScope)
def test_an_exact_approval_binds_each_named_file_and_a_wider_one_says_that_it_does_not(scope: ApprovalScope) -> None:
    bound = msgspec.structs.replace(BINDING, files=(PROGRAM, SCRIPT))
    pattern = {"path": "docs/**"} if scope is ApprovalScope.PATTERN else None
    approved = an_approval(binding=bound, state=ApprovalState.APPROVED, scope=scope, pattern=pattern)
    changed = msgspec.structs.replace(bound, files=(PROGRAM, msgspec.structs.replace(SCRIPT, sha256="4" * 64)))
    covered = match_scope(approved, changed, ARGUMENTS, "s1", 1) is scope
    assert covered is not scope.exact
    said = approved.in_words()
    assert ("do not change" in said) if scope.exact else ("/usr/bin/make as it is now, whatever the files hold" in said)


@pytest.mark.promise("P-approval-ends")
@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"bundle_digest": "c" * 64}, "under other policies"),
        ({"workspace": "/elsewhere"}, "in the workspace /w"),
        ({"skill": "d" * 64}, "another version of fs.write"),
    ],
)
def test_a_yes_that_would_cover_nothing_is_not_given(changed: dict[str, str], because: str) -> None:
    now = InForce(**{"bundle_digest": BINDING.bundle_digest, "workspace": "/w", "skill": "", **changed})
    with pytest.raises(ApprovalOutdated, match=because) as caught:
        decide_approval(an_approval(), approve(in_force=now), 10)
    assert caught.value.code == "approval.outdated"
    denied = decide_approval(an_approval(), approve(event=ApprovalEvent.DENY, in_force=now), 10)
    assert denied.state is ApprovalState.DENIED, "a no is a no whatever has changed"
    with pytest.raises(AlreadyDecided):
        decide_approval(denied, approve(in_force=now), 10)


def test_a_yes_holds_where_nothing_changed_and_where_the_version_is_not_known() -> None:
    for skill in ("", None):
        now = InForce(bundle_digest=BINDING.bundle_digest, workspace="/w", skill=skill)
        assert decide_approval(an_approval(), approve(in_force=now), 10).state is ApprovalState.APPROVED
