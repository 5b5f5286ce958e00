"""The data of answers about calls, runs, approvals, tokens, secrets and the daemon."""

from typing import Any, NotRequired, TypedDict

from palyra.api.described import PrincipalText, Time, UlidText
from palyra.identity.api_token import TokenScope
from palyra.tools.approval import ApprovalScope, ApprovalState
from palyra.tools.budget import BudgetKind
from palyra.tools.call import CallState
from palyra.tools.spec import ToolTier
from palyra.vault.record import VaultStatus


class ErrorView(TypedDict):
    """``code`` is stable; ``details`` are for programs."""

    code: str
    message: str
    hint: str
    details: NotRequired[dict[str, Any]]


class CallData(TypedDict):
    call_id: UlidText
    run_id: UlidText
    tool: str
    principal: PrincipalText
    status: CallState
    decision: dict[str, Any] | None
    result: Any
    receipt: list[dict[str, Any]]
    attestation: dict[str, Any] | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    duration_ms: int | None
    argument_digest: str
    worker_attestation: NotRequired[dict[str, Any]]
    approval_id: NotRequired[UlidText]
    error: NotRequired[ErrorView]


class ToolData(TypedDict):
    name: str
    title: str
    description: str
    tier: ToolTier
    capabilities: list[str]
    sensitive: bool
    idempotent: bool
    max_input_bytes: int


class ToolWithSchemas(ToolData):
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class ToolList(TypedDict):
    tools: list[ToolData]


class AccountData(TypedDict):
    cap: int
    reserved: int
    used: int
    left: int


class RunData(TypedDict):
    run_id: UlidText
    principal: PrincipalText
    created_at: Time
    budget: dict[BudgetKind, AccountData]


class ApprovalData(TypedDict):
    """``touches`` is what the call would reach; ``meaning`` what a yes would let happen, in words; ``outdated`` why it
    covers nothing now, where that is so."""

    id: UlidText
    state: ApprovalState
    principal: PrincipalText
    tool: str
    arguments: Any
    argument_digest: str
    bundle_digest: str
    workspace: str
    session: str
    touches: dict[str, Any]
    policies: list[str]
    scope: ApprovalScope | None
    pattern: dict[str, Any] | None
    meaning: str | None
    outdated: str
    created_at: Time
    expires_at: Time
    default: str
    decided_at: Time | None
    decided_by: str | None
    reason: str
    consumed_by: str | None


class ApprovalList(TypedDict):
    approvals: list[ApprovalData]
    next: UlidText | None


class TokenData(TypedDict):
    token_id: UlidText
    principal: PrincipalText
    scopes: list[TokenScope]
    label: str
    run_id: UlidText | None
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class NewTokenData(TokenData):
    """``token`` is shown this once."""

    token: str


class TokenList(TypedDict):
    tokens: list[TokenData]


class SecretData(TypedDict):
    """Never the value."""

    ref: str
    scope: str
    key: str
    version: int
    oldest_version: int
    created_at: Time
    updated_at: Time
    updated_by: str


class SecretList(TypedDict):
    secrets: list[SecretData]
    next: str | None
    vault: VaultStatus


class RevealedSecret(TypedDict):
    ref: str
    value: str


class StatusData(TypedDict):
    version: str
    instance: str
    policy: dict[str, Any]
    journal: dict[str, Any]
    workspace: str
    running_calls: int
    pending_approvals: int
    nodes: dict[str, Any]
    workers: dict[str, Any]
    browser: dict[str, Any]


class HealthData(TypedDict):
    status: str


class ReadyData(HealthData):
    """``missing`` says what keeps the daemon from taking calls."""

    missing: list[str]
