"""Approvals in SQL: found by what they are bound to, moved by compare-and-set on their state."""

from collections.abc import Sequence

import msgspec

from palyra.ids import ApprovalId
from palyra.limits import KIB, MAX_PENDING_APPROVALS_PER_PRINCIPAL
from palyra.pipeline.domain.approval import (
    AlreadyDecided,
    Approval,
    ApprovalBinding,
    ApprovalEvent,
    ApprovalScope,
    ApprovalState,
    TooManyPending,
    UnknownApproval,
    Verdict,
    decide_approval,
    match_scope,
)
from palyra.pipeline.domain.spec import Arguments
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS approvals (
        approval_id TEXT PRIMARY KEY, state TEXT NOT NULL, principal TEXT NOT NULL, tool TEXT NOT NULL,
        binding TEXT NOT NULL, session TEXT NOT NULL, expires_ms INTEGER NOT NULL, record BLOB NOT NULL
        ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS approvals_open ON approvals (state, principal, tool)",
    "CREATE INDEX IF NOT EXISTS approvals_due ON approvals (state, expires_ms)",
    "CREATE INDEX IF NOT EXISTS approvals_by_state ON approvals (state, approval_id)",
    "CREATE INDEX IF NOT EXISTS approvals_of_principal ON approvals (principal, approval_id)",
)
# One page of a person's list; the rest is reached by its cursor.
MAX_LISTED_APPROVALS = 500
# A decided request that is larger counts as kept data, and may lose its arguments.
LARGE_APPROVAL_BYTES = 4 * KIB
# A call may still run under these.
OPEN_STATES = (ApprovalState.PENDING, ApprovalState.APPROVED)

_decode = msgspec.json.Decoder(Approval)


def find_pending(tx: Transaction, request: Approval) -> Approval | None:
    """Return the pending request for exactly this call."""
    rows = tx.execute(
        "SELECT record FROM approvals WHERE state = 'pending' AND principal = ? AND tool = ? AND binding = ?"
        " AND session = ? AND expires_ms > ?",
        (request.binding.principal, request.binding.tool, request.binding.digest, request.session, tx.now_ms),
    )
    return _decode.decode(rows[0][0]) if rows else None


def find_denial(tx: Transaction, binding: ApprovalBinding, since_ms: int) -> Approval | None:
    """Return a person's last no to exactly this call, if it came after that time."""
    rows = tx.execute(
        "SELECT record FROM approvals WHERE state = 'denied' AND principal = ? AND tool = ? AND binding = ?"
        " ORDER BY approval_id DESC LIMIT 1",
        (binding.principal, binding.tool, binding.digest),
    )
    found = _decode.decode(rows[0][0]) if rows else None
    return found if found is not None and (found.decided_ms or 0) > since_ms else None


def request_approval(tx: Transaction, approval: Approval, *, actor: str, run: str, call: str) -> None:
    ((pending,),) = tx.execute(
        "SELECT COUNT(*) FROM approvals WHERE state = 'pending' AND principal = ?", (approval.binding.principal,)
    )
    if pending >= MAX_PENDING_APPROVALS_PER_PRINCIPAL:
        raise TooManyPending(
            f"{approval.binding.principal} already has {pending} requests waiting for a person", pending=pending
        )
    tx.execute(
        "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            approval.id,
            approval.state.value,
            approval.binding.principal,
            approval.binding.tool,
            approval.binding.digest,
            approval.session,
            approval.expires_ms,
            msgspec.json.encode(approval),
        ),
    )
    _append_event(tx, "approval.requested", approval, actor, run=run, call=call)


def find_cover(tx: Transaction, binding: ApprovalBinding, arguments: Arguments, session: str) -> Approval | None:
    """Return an approval that covers this call. Standing ones come before one that would be used up."""
    rows = tx.execute(
        "SELECT record FROM approvals WHERE state = 'approved' AND principal = ? AND tool = ? AND expires_ms > ?"
        " ORDER BY approval_id",
        (binding.principal, binding.tool, tx.now_ms),
    )
    found = [
        approval
        for approval in (_decode.decode(row[0]) for row in rows)
        if match_scope(approval, binding, arguments.value, session, tx.now_ms) is not None
    ]
    return min(found, key=lambda approval: approval.scope is ApprovalScope.ONCE, default=None)


def consume(tx: Transaction, approval: Approval, *, actor: str, run: str, call: str) -> None:
    """Use up a ``once``, or note the use of any other scope."""
    if approval.scope is ApprovalScope.ONCE:
        state = approval.after(ApprovalEvent.CONSUME)
        used = msgspec.structs.replace(approval, state=state, consumed_by=call)
        _replace(tx, approval.state, used)
        _append_event(tx, "approval.consumed", used, actor, run=run, call=call)
    else:
        _append_event(tx, "approval.used", approval, actor, run=run, call=call)


def decide(tx: Transaction, approval_id: str, verdict: Verdict, *, actor: str) -> Approval:
    rows = tx.execute("SELECT record FROM approvals WHERE approval_id = ?", (approval_id,))
    if not rows:
        raise UnknownApproval(f"there is no approval {approval_id}")
    before = _decode.decode(rows[0][0])
    after = decide_approval(before, verdict, tx.now_ms)
    _replace(tx, before.state, after)
    _append_event(tx, f"approval.{after.state.value}", after, actor)
    return after


def withdraw_outdated(tx: Transaction, approval_id: str, *, actor: str) -> None:
    """Withdraw a request that was made under former policies. A decided or expired one stays."""
    rows = tx.execute(
        "SELECT record FROM approvals WHERE approval_id = ? AND state = 'pending' AND expires_ms > ?",
        (approval_id, tx.now_ms),
    )
    for row in rows:
        requester = _decode.decode(row[0]).binding.principal
        verdict = Verdict(event=ApprovalEvent.WITHDRAW, by=requester, reason="other policies came into force")
        decide(tx, approval_id, verdict, actor=actor)


def expire_due(tx: Transaction, *, actor: str) -> list[Approval]:
    rows = tx.execute(
        "SELECT record FROM approvals WHERE state IN ('pending', 'approved') AND expires_ms <= ? LIMIT ?",
        (tx.now_ms, MAX_LISTED_APPROVALS),
    )
    expired = []
    for row in rows:
        before = _decode.decode(row[0])
        after = msgspec.structs.replace(before, state=before.after(ApprovalEvent.EXPIRE))
        _replace(tx, before.state, after)
        _append_event(tx, "approval.expired", after, actor)
        expired.append(after)
    return expired


def read_next_expiry_ms(store: Store) -> int | None:
    rows = store.read("SELECT MIN(expires_ms) FROM approvals WHERE state IN ('pending', 'approved')")
    due: int | None = rows[0][0]
    return due


def read_approval(store: Store, approval_id: str) -> Approval:
    rows = store.read("SELECT record FROM approvals WHERE approval_id = ?", (approval_id,))
    if not rows:
        raise UnknownApproval(f"there is no approval {approval_id}")
    return _decode.decode(rows[0][0])


def find_approvals(store: Store, approval_ids: Sequence[str]) -> dict[str, Approval]:
    """Return the existing ones by their ids."""
    marks = ", ".join("?" * len(approval_ids))
    rows = store.read(f"SELECT record FROM approvals WHERE approval_id IN ({marks})", approval_ids)  # noqa: S608 - question marks
    return {approval.id: approval for approval in (_decode.decode(row[0]) for row in rows)}


def list_approvals(
    store: Store,
    state: ApprovalState | None,
    *,
    principal: str | None = None,
    before: ApprovalId | None = None,
    after: ApprovalId | None = None,
    oldest_first: bool = False,
    limit: int = MAX_LISTED_APPROVALS,
) -> list[Approval]:
    """Return a page of approvals. ``before`` or, with the oldest first, ``after`` ends the page before this one."""
    asked = {
        "state = ?": None if state is None else state.value,
        "principal = ?": principal,
        "approval_id < ?": None if before is None else str(before),
        "approval_id > ?": None if after is None else str(after),
    }
    chosen = {clause: value for clause, value in asked.items() if value is not None}
    where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
    order = "ASC" if oldest_first else "DESC"
    rows = store.read(
        f"SELECT record FROM approvals{where} ORDER BY approval_id {order} LIMIT ?",  # noqa: S608 - clauses of ours
        (*chosen.values(), min(limit, MAX_LISTED_APPROVALS)),
    )
    return [_decode.decode(row[0]) for row in rows]


def list_recent_approvals(store: Store, principal: str, tool: str, *, limit: int) -> list[Approval]:
    """Return a person's last approvals for this principal and tool, the newest first."""
    found = [
        _decode.decode(row[0])
        for state in (ApprovalState.APPROVED, ApprovalState.CONSUMED)
        for row in store.read(
            "SELECT record FROM approvals WHERE state = ? AND principal = ? AND tool = ?"
            " ORDER BY approval_id DESC LIMIT ?",
            (state.value, principal, tool, limit),
        )
    ]
    return sorted(found, key=lambda approval: approval.id, reverse=True)[:limit]


def count_pending_by_principal(store: Store) -> dict[str, int]:
    """Return how many requests of each principal wait. The one whose request waits longest comes first."""
    return dict(
        store.read(
            "SELECT principal, COUNT(*) FROM approvals WHERE state = 'pending' GROUP BY principal"
            " ORDER BY MIN(approval_id)"
        )
    )


def count_pending(store: Store) -> int:
    count: int = store.read("SELECT COUNT(*) FROM approvals WHERE state = 'pending'")[0][0]
    return count


def _replace(tx: Transaction, expected: ApprovalState, approval: Approval) -> None:
    record = msgspec.json.encode(approval)
    tx.execute(
        "UPDATE approvals SET state = ?, expires_ms = ?, record = ? WHERE approval_id = ? AND state = ?",
        (approval.state.value, approval.expires_ms, record, approval.id, expected.value),
    )
    if tx.changed() != 1:
        raise AlreadyDecided("somebody else decided this approval first", id=approval.id)
    if approval.state not in OPEN_STATES and len(record) > LARGE_APPROVAL_BYTES:
        kept = (approval.binding.principal, approval.id, len(record), approval.binding.argument_digest)
        tx.execute("INSERT OR IGNORE INTO kept_results VALUES (?, ?, ?, ?)", kept)


def _append_event(tx: Transaction, kind: str, approval: Approval, actor: str, *, run: str = "", call: str = "") -> None:
    tx.append(
        NewEvent(
            kind=kind,
            actor=actor,
            principal=approval.binding.principal,
            run=run,
            call=call,
            payload={
                "approval_id": approval.id,
                "tool": approval.binding.tool,
                "argument_digest": approval.binding.argument_digest,
                "runs": approval.runs,
                "files": msgspec.to_builtins(approval.binding.files),
                "scope": None if approval.scope is None else approval.scope.value,
                "meaning": approval.in_words(),
                "decided_by": approval.decided_by,
                "reason": approval.reason,
                "expires_ms": approval.expires_ms,
            },
        )
    )
