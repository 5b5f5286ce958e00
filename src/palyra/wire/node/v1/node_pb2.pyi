from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Capability(_message.Message):
    __slots__ = ("name", "description", "input_schema_json", "local_mediation", "idempotent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MEDIATION_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema_json: str
    local_mediation: bool
    idempotent: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[str] = ..., local_mediation: _Optional[bool] = ..., idempotent: _Optional[bool] = ...) -> None: ...

class RegisterNodeRequest(_message.Message):
    __slots__ = ("device_id", "protocol_version", "display_name", "platform", "software_version", "capabilities", "open_request_ids")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    OPEN_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    protocol_version: int
    display_name: str
    platform: str
    software_version: str
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    open_request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, device_id: _Optional[str] = ..., protocol_version: _Optional[int] = ..., display_name: _Optional[str] = ..., platform: _Optional[str] = ..., software_version: _Optional[str] = ..., capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ..., open_request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterNodeResponse(_message.Message):
    __slots__ = ("protocol_version", "heartbeat_interval_ms", "withheld_capabilities", "abandoned_request_ids", "max_result_bytes", "ca_bundle_pem")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CA_BUNDLE_PEM_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    heartbeat_interval_ms: int
    withheld_capabilities: _containers.RepeatedScalarFieldContainer[str]
    abandoned_request_ids: _containers.RepeatedScalarFieldContainer[str]
    max_result_bytes: int
    ca_bundle_pem: bytes
    def __init__(self, protocol_version: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., withheld_capabilities: _Optional[_Iterable[str]] = ..., abandoned_request_ids: _Optional[_Iterable[str]] = ..., max_result_bytes: _Optional[int] = ..., ca_bundle_pem: _Optional[bytes] = ...) -> None: ...

class NodeEvent(_message.Message):
    __slots__ = ("device_id", "sequence", "heartbeat", "accepted", "mediation", "capabilities_changed", "leaving")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    MEDIATION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_CHANGED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    sequence: int
    heartbeat: Heartbeat
    accepted: CapabilityAccepted
    mediation: CapabilityMediation
    capabilities_changed: CapabilitiesChanged
    leaving: Leaving
    def __init__(self, device_id: _Optional[str] = ..., sequence: _Optional[int] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., accepted: _Optional[_Union[CapabilityAccepted, _Mapping]] = ..., mediation: _Optional[_Union[CapabilityMediation, _Mapping]] = ..., capabilities_changed: _Optional[_Union[CapabilitiesChanged, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("running",)
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    running: int
    def __init__(self, running: _Optional[int] = ...) -> None: ...

class CapabilityAccepted(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class CapabilityMediation(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class CapabilitiesChanged(_message.Message):
    __slots__ = ("capabilities",)
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    def __init__(self, capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class NodeCommand(_message.Message):
    __slots__ = ("heartbeat_ack", "dispatch", "cancel", "certificate_news", "goodbye")
    HEARTBEAT_ACK_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NEWS_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    heartbeat_ack: HeartbeatAck
    dispatch: CapabilityDispatch
    cancel: CapabilityCancel
    certificate_news: CertificateNews
    goodbye: Goodbye
    def __init__(self, heartbeat_ack: _Optional[_Union[HeartbeatAck, _Mapping]] = ..., dispatch: _Optional[_Union[CapabilityDispatch, _Mapping]] = ..., cancel: _Optional[_Union[CapabilityCancel, _Mapping]] = ..., certificate_news: _Optional[_Union[CertificateNews, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class HeartbeatAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class CapabilityDispatch(_message.Message):
    __slots__ = ("request_id", "capability", "input_json", "timeout_ms", "max_result_bytes")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    INPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    capability: str
    input_json: bytes
    timeout_ms: int
    max_result_bytes: int
    def __init__(self, request_id: _Optional[str] = ..., capability: _Optional[str] = ..., input_json: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., max_result_bytes: _Optional[int] = ...) -> None: ...

class CapabilityCancel(_message.Message):
    __slots__ = ("request_id", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

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

class ReportCapabilityResultRequest(_message.Message):
    __slots__ = ("device_id", "request_id", "output_json", "failure")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    request_id: str
    output_json: bytes
    failure: CapabilityFailure
    def __init__(self, device_id: _Optional[str] = ..., request_id: _Optional[str] = ..., output_json: _Optional[bytes] = ..., failure: _Optional[_Union[CapabilityFailure, _Mapping]] = ...) -> None: ...

class CapabilityFailure(_message.Message):
    __slots__ = ("kind", "code", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    code: str
    message: str
    def __init__(self, kind: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ReportCapabilityResultResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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

class RevokeDevicePairingRequest(_message.Message):
    __slots__ = ("device_id", "reason")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    reason: str
    def __init__(self, device_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RevokeDevicePairingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecuteCapabilityRequest(_message.Message):
    __slots__ = ("device_id", "target_device_id", "capability", "input_json", "timeout_ms")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    INPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    target_device_id: str
    capability: str
    input_json: bytes
    timeout_ms: int
    def __init__(self, device_id: _Optional[str] = ..., target_device_id: _Optional[str] = ..., capability: _Optional[str] = ..., input_json: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ExecuteCapabilityResponse(_message.Message):
    __slots__ = ("call_id", "output_json")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    output_json: bytes
    def __init__(self, call_id: _Optional[str] = ..., output_json: _Optional[bytes] = ...) -> None: ...
