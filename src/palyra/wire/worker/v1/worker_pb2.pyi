from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_STREAM_UNSPECIFIED: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDOUT: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDERR: _ClassVar[OutputStream]
OUTPUT_STREAM_UNSPECIFIED: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_STDERR: OutputStream

class WorkerBatch(_message.Message):
    __slots__ = ("device_id", "sequence", "events")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    sequence: int
    events: _containers.RepeatedCompositeFieldContainer[WorkerEvent]
    def __init__(self, device_id: _Optional[str] = ..., sequence: _Optional[int] = ..., events: _Optional[_Iterable[_Union[WorkerEvent, _Mapping]]] = ...) -> None: ...

class WorkerEvent(_message.Message):
    __slots__ = ("hello", "attestation", "heartbeat", "accepted", "declined", "output", "settlement", "leaving", "disclaimer")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ATTESTATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    DISCLAIMER_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    attestation: SignedStatement
    heartbeat: Heartbeat
    accepted: LeaseAccepted
    declined: LeaseDeclined
    output: OutputChunk
    settlement: Settlement
    leaving: Leaving
    disclaimer: LeaseDisclaimer
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., attestation: _Optional[_Union[SignedStatement, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., accepted: _Optional[_Union[LeaseAccepted, _Mapping]] = ..., declined: _Optional[_Union[LeaseDeclined, _Mapping]] = ..., output: _Optional[_Union[OutputChunk, _Mapping]] = ..., settlement: _Optional[_Union[Settlement, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., disclaimer: _Optional[_Union[LeaseDisclaimer, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "display_name", "platform", "software_version", "boot_id", "slots", "open_lease_ids")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    OPEN_LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    display_name: str
    platform: str
    software_version: str
    boot_id: str
    slots: int
    open_lease_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol_version: _Optional[int] = ..., display_name: _Optional[str] = ..., platform: _Optional[str] = ..., software_version: _Optional[str] = ..., boot_id: _Optional[str] = ..., slots: _Optional[int] = ..., open_lease_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SignedStatement(_message.Message):
    __slots__ = ("payload", "signature")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: bytes
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("running", "workspaces", "slots")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WORKSPACES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    running: int
    workspaces: int
    slots: int
    def __init__(self, running: _Optional[int] = ..., workspaces: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class LeaseAccepted(_message.Message):
    __slots__ = ("lease_id", "fence")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class LeaseDeclined(_message.Message):
    __slots__ = ("lease_id", "fence", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    reason: str
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("lease_id", "fence", "stream", "offset", "data")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    stream: OutputStream
    offset: int
    data: bytes
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Settlement(_message.Message):
    __slots__ = ("lease_id", "statement", "result_json", "attestation_json", "error_json")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    ATTESTATION_JSON_FIELD_NUMBER: _ClassVar[int]
    ERROR_JSON_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    statement: SignedStatement
    result_json: bytes
    attestation_json: bytes
    error_json: bytes
    def __init__(self, lease_id: _Optional[str] = ..., statement: _Optional[_Union[SignedStatement, _Mapping]] = ..., result_json: _Optional[bytes] = ..., attestation_json: _Optional[bytes] = ..., error_json: _Optional[bytes] = ...) -> None: ...

class LeaseDisclaimer(_message.Message):
    __slots__ = ("lease_id", "statement")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    statement: SignedStatement
    def __init__(self, lease_id: _Optional[str] = ..., statement: _Optional[_Union[SignedStatement, _Mapping]] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class DaemonBatch(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[DaemonCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[DaemonCommand, _Mapping]]] = ...) -> None: ...

class DaemonCommand(_message.Message):
    __slots__ = ("welcome", "challenge", "attestation_answer", "heartbeat_ack", "lease", "cancel", "settlement_answer", "certificate_news", "goodbye", "owed")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    ATTESTATION_ANSWER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_ACK_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    SETTLEMENT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NEWS_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    challenge: Challenge
    attestation_answer: AttestationAnswer
    heartbeat_ack: HeartbeatAck
    lease: LeaseOffer
    cancel: LeaseCancel
    settlement_answer: SettlementAnswer
    certificate_news: CertificateNews
    goodbye: Goodbye
    owed: LeaseOwed
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., challenge: _Optional[_Union[Challenge, _Mapping]] = ..., attestation_answer: _Optional[_Union[AttestationAnswer, _Mapping]] = ..., heartbeat_ack: _Optional[_Union[HeartbeatAck, _Mapping]] = ..., lease: _Optional[_Union[LeaseOffer, _Mapping]] = ..., cancel: _Optional[_Union[LeaseCancel, _Mapping]] = ..., settlement_answer: _Optional[_Union[SettlementAnswer, _Mapping]] = ..., certificate_news: _Optional[_Union[CertificateNews, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., owed: _Optional[_Union[LeaseOwed, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "session", "heartbeat_interval_ms", "heartbeat_timeout_ms", "settle_grace_ms", "max_leases", "max_batch_bytes", "void_lease_ids", "ca_bundle_pem")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SETTLE_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    VOID_LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    CA_BUNDLE_PEM_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    session: int
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    settle_grace_ms: int
    max_leases: int
    max_batch_bytes: int
    void_lease_ids: _containers.RepeatedScalarFieldContainer[str]
    ca_bundle_pem: bytes
    def __init__(self, protocol_version: _Optional[int] = ..., session: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., heartbeat_timeout_ms: _Optional[int] = ..., settle_grace_ms: _Optional[int] = ..., max_leases: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., void_lease_ids: _Optional[_Iterable[str]] = ..., ca_bundle_pem: _Optional[bytes] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce", "valid_ms")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    VALID_MS_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    valid_ms: int
    def __init__(self, nonce: _Optional[str] = ..., valid_ms: _Optional[int] = ...) -> None: ...

class AttestationAnswer(_message.Message):
    __slots__ = ("code", "message", "next_within_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    next_within_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., next_within_ms: _Optional[int] = ...) -> None: ...

class HeartbeatAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("path", "digest_sha256", "size", "executable")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    path: str
    digest_sha256: str
    size: int
    executable: bool
    def __init__(self, path: _Optional[str] = ..., digest_sha256: _Optional[str] = ..., size: _Optional[int] = ..., executable: _Optional[bool] = ...) -> None: ...

class WorkspaceScope(_message.Message):
    __slots__ = ("root", "allowed_paths", "read_only", "folders")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_PATHS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    root: str
    allowed_paths: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    folders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, root: _Optional[str] = ..., allowed_paths: _Optional[_Iterable[str]] = ..., read_only: _Optional[bool] = ..., folders: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaseOffer(_message.Message):
    __slots__ = ("lease_id", "fence", "run_id", "call_id", "principal", "tool", "arguments_json", "argument_digest", "tier", "obligations_json", "scope", "inputs", "nonce", "timeout_ms", "max_output_bytes")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    OBLIGATIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    run_id: str
    call_id: str
    principal: str
    tool: str
    arguments_json: bytes
    argument_digest: str
    tier: str
    obligations_json: bytes
    scope: WorkspaceScope
    inputs: _containers.RepeatedCompositeFieldContainer[Artifact]
    nonce: str
    timeout_ms: int
    max_output_bytes: int
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., run_id: _Optional[str] = ..., call_id: _Optional[str] = ..., principal: _Optional[str] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[bytes] = ..., argument_digest: _Optional[str] = ..., tier: _Optional[str] = ..., obligations_json: _Optional[bytes] = ..., scope: _Optional[_Union[WorkspaceScope, _Mapping]] = ..., inputs: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., nonce: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., max_output_bytes: _Optional[int] = ...) -> None: ...

class LeaseCancel(_message.Message):
    __slots__ = ("lease_id", "fence", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    reason: str
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SettlementAnswer(_message.Message):
    __slots__ = ("lease_id", "code", "message")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    code: str
    message: str
    def __init__(self, lease_id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class LeaseOwed(_message.Message):
    __slots__ = ("lease_id", "fence", "nonce")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    nonce: str
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class CertificateNews(_message.Message):
    __slots__ = ("ca_bundle_pem", "renew_now")
    CA_BUNDLE_PEM_FIELD_NUMBER: _ClassVar[int]
    RENEW_NOW_FIELD_NUMBER: _ClassVar[int]
    ca_bundle_pem: bytes
    renew_now: bool
    def __init__(self, ca_bundle_pem: _Optional[bytes] = ..., renew_now: _Optional[bool] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class FindMissingArtifactsRequest(_message.Message):
    __slots__ = ("device_id", "lease_id", "fence", "digests_sha256")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    lease_id: str
    fence: int
    digests_sha256: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, device_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., digests_sha256: _Optional[_Iterable[str]] = ...) -> None: ...

class FindMissingArtifactsResponse(_message.Message):
    __slots__ = ("digests_sha256",)
    DIGESTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    digests_sha256: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests_sha256: _Optional[_Iterable[str]] = ...) -> None: ...

class UploadArtifactRequest(_message.Message):
    __slots__ = ("head", "chunk")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    head: UploadHead
    chunk: ArtifactChunk
    def __init__(self, head: _Optional[_Union[UploadHead, _Mapping]] = ..., chunk: _Optional[_Union[ArtifactChunk, _Mapping]] = ...) -> None: ...

class UploadHead(_message.Message):
    __slots__ = ("device_id", "lease_id", "fence", "digest_sha256", "size")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    lease_id: str
    fence: int
    digest_sha256: str
    size: int
    def __init__(self, device_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., digest_sha256: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class ArtifactChunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadArtifactResponse(_message.Message):
    __slots__ = ("digest_sha256",)
    DIGEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    digest_sha256: str
    def __init__(self, digest_sha256: _Optional[str] = ...) -> None: ...

class DownloadArtifactRequest(_message.Message):
    __slots__ = ("device_id", "lease_id", "fence", "digest_sha256", "offset")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    lease_id: str
    fence: int
    digest_sha256: str
    offset: int
    def __init__(self, device_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., digest_sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ViolationReport(_message.Message):
    __slots__ = ("device_id", "sequence", "worker_id", "lease_id", "code", "host", "port", "seen_ms")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    sequence: int
    worker_id: str
    lease_id: str
    code: str
    host: str
    port: int
    seen_ms: int
    def __init__(self, device_id: _Optional[str] = ..., sequence: _Optional[int] = ..., worker_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., code: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., seen_ms: _Optional[int] = ...) -> None: ...

class ViolationReceipt(_message.Message):
    __slots__ = ("sequence", "code")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    code: str
    def __init__(self, sequence: _Optional[int] = ..., code: _Optional[str] = ...) -> None: ...

class RenewCertificateRequest(_message.Message):
    __slots__ = ("device_id", "csr_der", "generation")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    CSR_DER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    csr_der: bytes
    generation: int
    def __init__(self, device_id: _Optional[str] = ..., csr_der: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...

class RenewCertificateResponse(_message.Message):
    __slots__ = ("certificate_pem", "ca_bundle_pem", "generation")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CA_BUNDLE_PEM_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    ca_bundle_pem: bytes
    generation: int
    def __init__(self, certificate_pem: _Optional[bytes] = ..., ca_bundle_pem: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...

class LeaveFleetRequest(_message.Message):
    __slots__ = ("device_id", "reason")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    reason: str
    def __init__(self, device_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveFleetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
