"""The data of answers about devices: their identity, their pairing, nodes, workers and leases."""

from typing import Any, NotRequired, TypedDict

from palyra.api.described import Time
from palyra.identity.device import DeviceKind
from palyra.nodes.pairing import PairingState
from palyra.nodes.records import CodeState, PairingMethod


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
    """Nothing of the code itself."""

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
