"""Approvals in the table: one pending request per call, one decision, one use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.journal_harness import JournalHarness
from palyra.pipeline.domain.approval import (
    AlreadyDecided,
    Approval,
    ApprovalBinding,
    ApprovalEvent,
    ApprovalScope,
    ApprovalState,
    UnknownApproval,
    Verdict,
)
from palyra.pipeline.domain.spec import Arguments
from palyra.pipeline.store import approval_tables
from palyra.store.port import Transaction
from palyra.store.sqlite.store import SqliteStore

BINDING = ApprovalBinding(
    principal="agent:bot", tool="fs.write", argument_digest="a" * 64, bundle_digest="b" * 64, workspace="/w"
)
ARGUMENTS = Arguments(value={"path": "a"}, canonical=b'{"path":"a"}', digest="a" * 64)
IDS = [f"01ARZ3NDEKTSV4RRFFQ69G5FA{end}" for end in "VWXYZ"]


@pytest.fixture
def harness(tmp_path: Path) -> JournalHarness:
    return JournalHarness(tmp_path)


@pytest.fixture
def store(harness: JournalHarness) -> Iterator[SqliteStore]:
    opened = harness.open(schema=approval_tables.SCHEMA)
    yield opened
    opened.close()


def request(harness: JournalHarness, number: int = 0, **changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": IDS[number],
        "state": ApprovalState.PENDING,
        "binding": BINDING,
        "session": "",
        "arguments": ARGUMENTS.value,
        "touches": {},
        "policies": ("p",),
        "created_ms": harness.clock.now,
        "expires_ms": harness.clock.now + 60_000,
    }
    return Approval(**{**fields, **changes})


def ask(store: SqliteStore, approval: Approval) -> Approval:
    def work(tx: Transaction) -> Approval:
        if pending := approval_tables.find_pending(tx, approval):
            return pending
        approval_tables.request_approval(tx, approval, actor="x", run="r", call="c")
        return approval

    return store.transact_blocking(work)


def decide(store: SqliteStore, approval_id: str, **verdict: Any) -> Approval:
    given = Verdict(**{"event": ApprovalEvent.APPROVE, "by": "user:alice", **verdict})
    return store.transact_blocking(lambda tx: approval_tables.decide(tx, approval_id, given, actor="user:alice"))


def cover(store: SqliteStore, binding: ApprovalBinding = BINDING, session: str = "") -> Approval | None:
    return store.transact_blocking(lambda tx: approval_tables.find_cover(tx, binding, ARGUMENTS, session))


def kinds(store: SqliteStore) -> list[str]:
    return [event.kind for event in store.events_since(0, 100)]


def test_the_same_call_asks_once(harness: JournalHarness, store: SqliteStore) -> None:
    assert ask(store, request(harness)).id == ask(store, request(harness, 1)).id == IDS[0]
    assert kinds(store) == ["approval.requested"]
    assert ask(store, request(harness, 1, session="other")).id == IDS[1], "a session is part of the question"


def test_a_request_that_is_over_is_asked_anew(harness: JournalHarness, store: SqliteStore) -> None:
    ask(store, request(harness))
    harness.clock.now += 60_001
    assert ask(store, request(harness, 1)).id == IDS[1]


def test_a_once_is_used_up_and_the_second_use_is_refused(harness: JournalHarness, store: SqliteStore) -> None:
    ask(store, request(harness))
    decide(store, IDS[0])
    found = cover(store)
    assert found is not None
    store.transact_blocking(lambda tx: approval_tables.consume(tx, found, actor="x", run="r", call="c1"))
    assert approval_tables.read_approval(store, IDS[0]).consumed_by == "c1"
    assert cover(store) is None
    with pytest.raises(AlreadyDecided):
        store.transact_blocking(lambda tx: approval_tables.consume(tx, found, actor="x", run="r", call="c2"))
    assert kinds(store) == ["approval.requested", "approval.approved", "approval.consumed"]


def test_a_standing_yes_is_taken_before_one_that_would_be_used_up(harness: JournalHarness, store: SqliteStore) -> None:
    ask(store, request(harness))
    decide(store, IDS[0])
    ask(store, request(harness, 1))
    decide(store, IDS[1], scope=ApprovalScope.TIMEBOXED)
    found = cover(store)
    assert found is not None and found.id == IDS[1]
    store.transact_blocking(lambda tx: approval_tables.consume(tx, found, actor="x", run="r", call="c"))
    assert approval_tables.read_approval(store, IDS[1]).state is ApprovalState.APPROVED
    assert kinds(store)[-1] == "approval.used"


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize(
    "changed",
    [
        {"principal": "agent:eve"},
        {"tool": "fs.patch"},
        {"bundle_digest": "c" * 64},
        {"workspace": "/other"},
        {"skill": "s"},
        {"argument_digest": "d" * 64},
    ],
)
def test_nothing_else_is_covered(harness: JournalHarness, store: SqliteStore, changed: dict[str, str]) -> None:
    ask(store, request(harness))
    decide(store, IDS[0])
    assert cover(store, msgspec.structs.replace(BINDING, **changed)) is None


def test_deciding_is_once_and_leaves_no_entry_the_second_time(harness: JournalHarness, store: SqliteStore) -> None:
    ask(store, request(harness))
    decide(store, IDS[0], event=ApprovalEvent.DENY, reason="not today")
    with pytest.raises(AlreadyDecided):
        decide(store, IDS[0])
    assert kinds(store) == ["approval.requested", "approval.denied"]
    assert approval_tables.read_approval(store, IDS[0]).reason == "not today"


def test_what_is_due_expires_pending_and_approved_alike(harness: JournalHarness, store: SqliteStore) -> None:
    ask(store, request(harness))
    ask(store, request(harness, 1, session="s"))
    decide(store, IDS[1], scope=ApprovalScope.TIMEBOXED)
    due = approval_tables.read_next_expiry_ms(store)
    assert due is not None
    harness.clock.now = due
    expired = store.transact_blocking(lambda tx: approval_tables.expire_due(tx, actor="palyrad"))
    assert {approval.id for approval in expired} == set(IDS[:2])
    assert approval_tables.read_next_expiry_ms(store) is None and cover(store) is None


def test_lists_are_newest_first_and_by_state(harness: JournalHarness, store: SqliteStore) -> None:
    for number, session in enumerate("abc"):
        ask(store, request(harness, number, session=session))
    decide(store, IDS[1])
    assert [one.id for one in approval_tables.list_approvals(store, None)] == IDS[2::-1]
    assert [one.id for one in approval_tables.list_approvals(store, ApprovalState.APPROVED)] == [IDS[1]]


def test_an_unknown_one_has_a_code_on_both_ways(store: SqliteStore) -> None:
    with pytest.raises(UnknownApproval):
        approval_tables.read_approval(store, IDS[0])
    with pytest.raises(UnknownApproval):
        decide(store, IDS[0])
