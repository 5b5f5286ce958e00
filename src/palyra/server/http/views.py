"""The data of answers, as types: ``/openapi.json`` shows them."""

from typing import Any, NotRequired, TypedDict

from palyra.devicelink.pairing.code import PairingMethod
from palyra.identity.api_tokens import TokenScope
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import CodeState, PairingState
from palyra.pipeline.domain.approval import ApprovalScope, ApprovalState, BoundFile, SentFiles
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.domain.spec import ToolTier
from palyra.server.http.route_schema import PrincipalText, Sha256, Time, UlidText
from palyra.skills.registry.lifecycle import SkillState
from palyra.skills.trust.capability_difference import CapabilityDifference, GetsLess
from palyra.skills.trust.findings import Finding
from palyra.vault.reference import VaultStatus


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
    result_dropped: NotRequired[dict[str, Any]]
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
    """``runs``, ``meaning`` and ``outdated`` are words: where it runs, what an approval allows and why not."""

    id: UlidText
    state: ApprovalState
    principal: PrincipalText
    tool: str
    arguments: Any
    dropped_bytes: int
    argument_digest: str
    bundle_digest: str
    workspace: str
    place: str
    tier: str
    runs: str
    obligations: dict[str, Any]
    files: tuple[BoundFile, ...]
    sends: SentFiles | None
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
    """A secret without its value."""

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
    """``workspace`` is the folder of the caller's calls. Operators see the default, and every one of ``workspaces``."""

    version: str
    instance: str
    policy: dict[str, Any]
    journal: dict[str, Any]
    workspace: str
    workspaces: NotRequired[list[dict[str, Any]]]
    running_calls: int
    pending_approvals: int
    nodes: dict[str, Any]
    workers: dict[str, Any]
    browser: dict[str, Any]


class HealthData(TypedDict):
    status: str


class ReadyData(HealthData):
    """``missing`` lists the reasons why the daemon takes no calls."""

    missing: list[str]


class AuthorityData(TypedDict):
    authority_id: str
    state: str
    created_at: Time
    ends_at: Time
    needed_until: Time | None


class DeviceIdentityData(TypedDict):
    device_id: str
    kind: DeviceKind
    state: str
    reason: str
    generation: int
    used_generation: int
    fingerprint: str
    created_at: Time
    changed_at: Time
    certificate_ends_at: Time


class IdentityData(TypedDict):
    """``trust_domain`` is empty before the first use."""

    trust_domain: str
    authorities: list[AuthorityData]
    devices: list[DeviceIdentityData]


class CodeData(TypedDict):
    """A pairing code without its text."""

    id: str
    nameplate: str
    method: PairingMethod
    kind: DeviceKind
    state: CodeState
    guesses_left: int
    created_by: str
    created_at: Time
    expires_at: Time
    pairing_id: str | None


class NewCodeData(CodeData):
    """``code`` is shown this once."""

    code: str
    addresses: list[str]
    ca_hash: str


class CodeList(TypedDict):
    codes: list[CodeData]


class PairingData(TypedDict):
    id: str
    state: PairingState
    device_id: str
    kind: DeviceKind
    name: str
    platform: str
    software_version: str
    key_fingerprint: str
    comparison_code: str
    address: str
    method: PairingMethod
    refused_claims: int
    created_at: Time
    expires_at: Time | None
    decided_at: Time | None
    decided_by: str | None
    reason: str


class PairingList(TypedDict):
    pairings: list[PairingData]


class NodeData(TypedDict):
    device_id: str
    name: str
    platform: str
    software_version: str
    state: str
    paired_at: Time
    connected_since: Time | None
    certificate_generation: int | None
    contested: bool
    capabilities: list[dict[str, Any]]
    withheld: list[str]
    revoked_at: NotRequired[Time]
    revoked_reason: NotRequired[str]
    requests: NotRequired[list[dict[str, Any]]]


class NodeList(TypedDict):
    nodes: list[NodeData]


class WorkerAttestationData(TypedDict):
    image_digest_sha256: str
    build_digest_sha256: str
    artifact_digest_sha256: str
    key_id: str
    attested_at: Time
    expires_at: Time
    capabilities: list[str]


class LeaseData(TypedDict):
    lease_id: str
    worker_id: str
    fence: int
    state: str
    run_id: str
    call_id: str
    principal: str
    tool: str
    attempt: int
    granted_at: Time
    deadline_at: Time
    ended_at: Time | None
    outcome: str | None
    reason: str


class LeaseWithOutput(LeaseData):
    output: dict[str, str]


class LeaseList(TypedDict):
    leases: list[LeaseData]


class WorkerData(TypedDict):
    worker_id: str
    name: str
    state: str
    since: Time
    reason: str
    connected: bool
    heard_at: Time
    slots: int
    open_leases: int
    owes_cleanup: int
    leases_granted: int
    registered_at: Time
    egress_id: str
    attestation: WorkerAttestationData | None


class WorkerWithLeases(WorkerData):
    leases: list[LeaseData]


class WorkerList(TypedDict):
    workers: list[WorkerData]


class SkillVersionData(TypedDict):
    skill_id: str
    version: str
    digest: Sha256
    state: SkillState
    publisher: str
    key_id: str
    trust: str
    size: int
    errors: int
    warnings: int
    ingested_at: Time
    ingested_by: str
    updated_at: Time
    approved_at: Time | None
    approved_by: str
    reason: str


class ReviewData(TypedDict):
    """A review. ``gets_less``: what of ``capabilities`` the settings do not grant; one line if skills are off."""

    manifest: dict[str, Any]
    tools: list[str]
    capabilities: list[str]
    gets_less: list[GetsLess]
    difference: CapabilityDifference
    findings: list[Finding]


class ApprovedVersion(SkillVersionData):
    gets_less: list[GetsLess]


class ReviewedVersion(SkillVersionData, ReviewData):
    pass


class KeptVersion(ReviewedVersion):
    """``problem`` says how its archive on disk has changed, or is null."""

    configuration: dict[str, Any]
    problem: str | None


class AuditData(TypedDict):
    """``trust`` is null if the signer is not trusted."""

    skill_id: str
    version: str
    publisher: str
    digest: Sha256
    key_id: str
    trust: str | None
    findings: list[Finding]
    difference: CapabilityDifference


class SkillData(TypedDict):
    skill_id: str
    name: str
    publisher: str
    active_version: str | None
    versions: list[SkillVersionData]


class SkillList(TypedDict):
    skills: list[SkillData]
    removed_left_out: int


class SkillHistoryEntry(TypedDict):
    seq: int
    time: Time
    kind: str
    version: str
    digest: str
    actor: str
    reason: str


class SkillDetails(TypedDict):
    skill_id: str
    publisher: str
    newest_approved: str | None
    versions: list[KeptVersion]
    history: list[SkillHistoryEntry]
    kept_folder: NotRequired[str]


class RemovedVersions(TypedDict):
    removed: list[SkillVersionData]


class ErasedData(TypedDict):
    values: int
    bytes: int


class ConfigurationData(TypedDict):
    configuration: dict[str, Any]


class PublisherKeyData(TypedDict):
    publisher: str
    key_id: str
    source: str
    state: str
    replaces: str
    added_at: Time
    added_by: str
    ended_at: Time | None
    reason: str


class RevokedKeyData(TypedDict):
    key_id: str
    revoked_at: Time
    revoked_by: str
    reason: str


class UnreadableKeyData(TypedDict):
    """A damaged record of a key, which is not trusted."""

    publisher: str
    key_id: str
    problem: str
    remedy: str


class PublisherList(TypedDict):
    keys: list[PublisherKeyData]
    unreadable: list[UnreadableKeyData]
    revoked: list[RevokedKeyData]


class KeyRevocation(TypedDict):
    key_id: str
    disabled: list[SkillVersionData]
