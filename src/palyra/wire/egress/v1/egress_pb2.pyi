from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowLeasesRequest(_message.Message):
    __slots__ = ("device_id",)
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    def __init__(self, device_id: _Optional[str] = ...) -> None: ...

class LeaseOrders(_message.Message):
    __slots__ = ("whole", "still_open", "granted", "ended", "ca_bundle_pem")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    STILL_OPEN_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CA_BUNDLE_PEM_FIELD_NUMBER: _ClassVar[int]
    whole: bool
    still_open: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    granted: _containers.RepeatedCompositeFieldContainer[LeaseGrant]
    ended: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    ca_bundle_pem: bytes
    def __init__(self, whole: _Optional[bool] = ..., still_open: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., granted: _Optional[_Iterable[_Union[LeaseGrant, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., ca_bundle_pem: _Optional[bytes] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("lease_id", "fence")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    lease_id: str
    fence: int
    def __init__(self, lease_id: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class LeaseGrant(_message.Message):
    __slots__ = ("worker_id", "lease_id", "fence", "run_id", "call_id", "principal", "tool", "hosts", "max_bytes", "max_tunnels", "timeout_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TUNNELS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    lease_id: str
    fence: int
    run_id: str
    call_id: str
    principal: str
    tool: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    max_bytes: int
    max_tunnels: int
    timeout_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., lease_id: _Optional[str] = ..., fence: _Optional[int] = ..., run_id: _Optional[str] = ..., call_id: _Optional[str] = ..., principal: _Optional[str] = ..., tool: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., max_bytes: _Optional[int] = ..., max_tunnels: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...
