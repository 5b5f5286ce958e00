"""What the API's answers look like to a program.

Each view names the fields this version knows and keeps everything the server said in ``document``.
"""

from typing import Any

import msgspec

from palyra.secret import Secret


class View(msgspec.Struct, frozen=True, kw_only=True):
    document: dict[str, Any]


class DecisionView(msgspec.Struct, frozen=True, kw_only=True):
    outcome: str
    policies: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    bundle_digest: str = ""
    missing_grant: Any = None


class CallView(View, frozen=True, kw_only=True):
    """``status`` is succeeded, failed, denied, needs_approval, refused, running, cancelled, timed_out or abandoned."""

    call_id: str
    run_id: str
    tool: str
    principal: str
    status: str
    decision: DecisionView | None = None
    approval_id: str | None = None
    approval: Any = None
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] | None = None
    attestation: dict[str, Any] | None = None
    argument_digest: str = ""
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: float | None = None


class CallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a call. ``id`` is what to resume after."""

    id: str
    kind: str
    data: Any


class ToolView(View, frozen=True, kw_only=True):
    name: str
    title: str = ""
    description: str = ""
    tier: str = ""
    sensitive: bool = False
    capabilities: tuple[str, ...] = ()
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] = {}


class RunView(View, frozen=True, kw_only=True):
    """``budget`` names, per kind, the cap and what of it is reserved, used and left."""

    run_id: str
    principal: str = ""
    created_at: str | None = None
    budget: dict[str, Any] = {}


class ApprovalView(View, frozen=True, kw_only=True):
    """``touches`` is what the call would reach; ``meaning`` what a yes would let happen, in words."""

    id: str
    state: str
    principal: str = ""
    tool: str = ""
    arguments: Any = None
    argument_digest: str = ""
    bundle_digest: str = ""
    workspace: str = ""
    session: str | None = None
    run_id: str | None = None
    touches: Any = None
    policies: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    meaning: str | None = None
    scope: str | None = None
    pattern: dict[str, Any] | None = None
    created_at: str | None = None
    expires_at: str | None = None
    decided_at: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    consumed_by: str | None = None


class TokenView(View, frozen=True, kw_only=True):
    token_id: str
    principal: str = ""
    label: str | None = None
    scopes: tuple[str, ...] = ()
    run_id: str | None = None
    created_at: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """``token`` is shown this once; the server keeps only its digest."""

    view: TokenView
    token: Secret


class StatusView(View, frozen=True, kw_only=True):
    version: str = ""
