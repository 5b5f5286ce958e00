"""What the ledger keeps of a call, and the form in which every door shows it."""

from typing import Any

import msgspec

from palyra.clock import rfc3339
from palyra.errors import ExitCode, PalyraError
from palyra.journal.event import NewEvent
from palyra.tools.call import CallState


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    run_id: str
    tool: str
    principal: str
    actor: str
    channel: str
    session: str = ""
    state: CallState
    argument_digest: str = ""
    decision: dict[str, Any] | None = None
    approval_id: str | None = None
    created_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    attestation: dict[str, Any] | None = None
    # What the worker that ran the call signed, where one did.
    worker_attestation: dict[str, Any] | None = None

    def view(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "call_id": self.call_id,
            "run_id": self.run_id,
            "tool": self.tool,
            "principal": self.principal,
            "status": self.state.value,
            "decision": self.decision,
            "result": self.result,
            "receipt": self.receipt,
            "attestation": self.attestation,
            "created_at": rfc3339(self.created_ms),
            "started_at": None if self.started_ms is None else rfc3339(self.started_ms),
            "ended_at": None if self.ended_ms is None else rfc3339(self.ended_ms),
            "duration_ms": None
            if self.started_ms is None or self.ended_ms is None
            else max(0, self.ended_ms - self.started_ms),
            "argument_digest": self.argument_digest,
        }
        if self.worker_attestation is not None:
            shown["worker_attestation"] = self.worker_attestation
        if self.approval_id is not None:
            shown["approval_id"] = self.approval_id
        if self.error is not None:
            shown["error"] = self.error
        return shown

    def exit_code(self) -> ExitCode:
        return self._error_class().exit_code if self.error else ExitCode.DONE

    def http_status(self) -> int:
        return self._error_class().http_status if self.error else 200

    def _error_class(self) -> type[PalyraError]:
        code = (self.error or {}).get("code", "")
        return PalyraError.registry.get(code, PalyraError)


def call_entry(record: CallRecord, kind: str, *, by: str | None = None, **payload: Any) -> NewEvent:
    """An entry of the journal about this call."""
    return NewEvent(
        kind=kind,
        actor=by or record.actor,
        principal=record.principal,
        run=record.run_id,
        call=record.call_id,
        payload=payload,
    )
