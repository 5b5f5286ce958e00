"""The API's answers as values.

Each view names the fields this version knows and keeps the server's whole object in ``document``.
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
    # The size and digest of a result that is no longer kept.
    result_dropped: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] | None = None
    attestation: dict[str, Any] | None = None
    argument_digest: str = ""
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: float | None = None


class ArgumentsView(View, frozen=True, kw_only=True):
    """The arguments of a call as canonical JSON. Known secrets among them were replaced, ``redacted`` times."""

    call_id: str
    tool: str
    principal: str
    argument_digest: str
    arguments_json: str
    redacted: int
    kept_at: str


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
    """``touches`` lists what the call would access; ``meaning`` says in words what an approval permits.

    ``runs`` says in words where it runs and what it sends there. ``files`` are the programs and files that the approval
    is bound to. ``outdated`` is the reason if the approval no longer covers anything."""

    id: str
    state: str
    principal: str = ""
    tool: str = ""
    arguments: Any = None
    dropped_bytes: int = 0
    argument_digest: str = ""
    bundle_digest: str = ""
    workspace: str = ""
    place: str = ""
    tier: str = ""
    runs: str = ""
    obligations: dict[str, Any] = {}
    files: tuple[dict[str, Any], ...] = ()
    sends: dict[str, Any] | None = None
    session: str | None = None
    run_id: str | None = None
    touches: Any = None
    policies: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    meaning: str | None = None
    outdated: str = ""
    scope: str | None = None
    pattern: dict[str, Any] | None = None
    created_at: str | None = None
    expires_at: str | None = None
    decided_at: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    consumed_by: str | None = None


class ApprovalsView(msgspec.Struct, frozen=True, kw_only=True):
    """One page; ``next`` is the cursor of the next one."""

    approvals: tuple[ApprovalView, ...]
    next: str | None = None


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


class SecretView(View, frozen=True, kw_only=True):
    """A secret without its value. ``version`` is in force; those from ``oldest_version`` on are kept."""

    ref: str
    scope: str = ""
    key: str = ""
    version: int = 0
    oldest_version: int = 0
    created_at: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None


class SecretsView(View, frozen=True, kw_only=True):
    """One page; give ``next`` as ``after`` for the next one. ``vault`` describes the key and its rotation."""

    secrets: tuple[dict[str, Any], ...]
    next: str | None = None
    vault: dict[str, Any] = {}


class RotationView(View, frozen=True, kw_only=True):
    key_id: str
    previous_key_id: str = ""
    key_source: str = ""
    rewrapped: int = 0
    resumed: bool = False


class IdentityView(View, frozen=True, kw_only=True):
    """``trust_domain`` is empty before the first use."""

    trust_domain: str = ""
    authorities: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []


class PairingCodeView(View, frozen=True, kw_only=True):
    """``nameplate`` is the public part of the code. ``addresses`` comes with a new code."""

    id: str
    nameplate: str = ""
    method: str = ""
    kind: str = ""
    state: str = ""
    guesses_left: int = 0
    created_at: str | None = None
    expires_at: str | None = None
    pairing_id: str | None = None
    addresses: tuple[str, ...] = ()
    ca_hash: str = ""


class NewPairingCode(msgspec.Struct, frozen=True, kw_only=True):
    view: PairingCodeView
    code: Secret


class PairingView(View, frozen=True, kw_only=True):
    """A person compares ``comparison_code`` with the one that the device shows.

    ``refused_claims`` counts other keys that proved the same code."""

    id: str
    state: str = ""
    device_id: str = ""
    kind: str = ""
    name: str = ""
    platform: str = ""
    software_version: str = ""
    key_fingerprint: str = ""
    comparison_code: str = ""
    address: str = ""
    refused_claims: int = 0
    created_at: str | None = None
    expires_at: str | None = None
    decided_at: str | None = None
    decided_by: str | None = None
    reason: str = ""


class SkillView(View, frozen=True, kw_only=True):
    """One skill with its versions, newest first. ``history`` comes with a single skill only."""

    skill_id: str
    publisher: str = ""
    name: str = ""
    active_version: str | None = None
    newest_approved: str | None = None
    versions: tuple[dict[str, Any], ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    kept_folder: str = ""


class SkillVersionView(View, frozen=True, kw_only=True):
    """One version of a skill.

    The fields of a review (``difference``, ``findings``, ``capabilities``, ``gets_less``) may be empty."""

    skill_id: str
    version: str
    digest: str
    state: str = ""
    publisher: str = ""
    key_id: str = ""
    trust: str | None = None
    tools: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    gets_less: tuple[dict[str, Any], ...] = ()
    difference: dict[str, Any] = {}
    findings: tuple[dict[str, Any], ...] = ()


class ErasedDataView(View, frozen=True, kw_only=True):
    """The amount of data that a skill had stored."""

    values: int
    bytes: int


class PublisherKeyView(View, frozen=True, kw_only=True):
    publisher: str
    key_id: str
    source: str = ""
    state: str = ""


class PublishersView(View, frozen=True, kw_only=True):
    """``unreadable`` lists keys with a damaged record. They do not count until they are cleared."""

    keys: tuple[dict[str, Any], ...] = ()
    unreadable: tuple[dict[str, Any], ...] = ()
    revoked: tuple[dict[str, Any], ...] = ()


class NodeView(View, frozen=True, kw_only=True):
    """``state`` is online, offline or revoked. ``requests`` comes with a single device only."""

    device_id: str
    name: str = ""
    platform: str = ""
    software_version: str = ""
    state: str = ""
    contested: bool = False
    paired_at: str | None = None
    connected_since: str | None = None
    capabilities: tuple[dict[str, Any], ...] = ()
    withheld: tuple[str, ...] = ()
    revoked_at: str | None = None
    revoked_reason: str | None = None
    requests: tuple[dict[str, Any], ...] = ()


class WorkerView(View, frozen=True, kw_only=True):
    """``leases`` comes with a single worker only."""

    worker_id: str
    name: str = ""
    state: str = ""
    since: str = ""
    reason: str = ""
    connected: bool = False
    heard_at: str | None = None
    slots: int = 0
    open_leases: int = 0
    owes_cleanup: int = 0
    leases_granted: int = 0
    egress_id: str = ""
    attestation: dict[str, Any] | None = None
    leases: tuple[dict[str, Any], ...] = ()


class LeaseView(View, frozen=True, kw_only=True):
    """``output`` is the end of the call's output, while it runs."""

    lease_id: str
    worker_id: str = ""
    fence: int = 0
    state: str = ""
    run_id: str = ""
    call_id: str = ""
    principal: str = ""
    tool: str = ""
    attempt: int = 1
    granted_at: str = ""
    deadline_at: str = ""
    ended_at: str | None = None
    outcome: str | None = None
    reason: str = ""
    output: dict[str, str] = {}


class McpServerView(View, frozen=True, kw_only=True):
    """An upstream MCP server. ``refused`` maps tools that cannot be offered to the reason."""

    name: str
    command: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    isolation: str = ""
    workspace: str = ""
    kept_folder: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    refused: dict[str, str] | None = None


class BrowserSessionView(View, frozen=True, kw_only=True):
    """A closed session has only ``closed``, ``saved`` and ``problem_code``."""

    session_id: str
    principal: str = ""
    run_id: str = ""
    state: str = ""
    label: str = ""
    created_ms: int = 0
    ends_ms: int = 0
    hosts: tuple[str, ...] = ()
    tabs: tuple[dict[str, Any], ...] = ()
    operator: str = ""
    fences: tuple[dict[str, Any], ...] = ()
    closed: bool = False
    saved: bool = False
    problem_code: str = ""


class BrowserDownloadView(View, frozen=True, kw_only=True):
    """``state`` is ready, incomplete, quarantined or refused."""

    id: str
    name: str = ""
    size: int = 0
    digest: str = ""
    state: str = ""
    reasons: tuple[str, ...] = ()
    released_by: str = ""


class BrowserProfileView(View, frozen=True, kw_only=True):
    profile_id: str
    principal: str = ""
    name: str = ""
    private: bool = False
    revision: int = 0
    size: int = 0
    damaged: str = ""
    session_id: str = ""


class AcceptedProfilesView(View, frozen=True, kw_only=True):
    """Numbers of changes: the last known one, the last of the older copy, and the present one."""

    last_known: int = msgspec.field(default=0, name="heard")
    found: int = 0
    generation: int = 0


class StatusView(View, frozen=True, kw_only=True):
    version: str = ""
