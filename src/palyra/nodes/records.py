"""What is kept about devices: codes, requests to pair, paired nodes, and what they were asked to do.

Every record is a frozen value with its id in ``id``; ids are ULIDs, so sorted by id is sorted by age. Unknown fields
are refused when a record is read: a newer program's state is not half understood.
"""

from enum import StrEnum
from typing import ClassVar

import msgspec

from palyra.identity.device import DeviceKind
from palyra.ids import Ulid
from palyra.nodes import dispatch, pairing
from palyra.nodes.dispatch import RequestState
from palyra.nodes.pairing import PairingState


class CodeId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "code id"


class PairingId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "pairing id"


class RequestId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "request id"


class PairingMethod(StrEnum):
    PIN = "pin"
    QR = "qr"


class CodeState(StrEnum):
    LIVE = "live"
    # A device proved it; only that device's key may prove it again, after a lost reply.
    USED = "used"
    BURNED = "burned"
    WITHDRAWN = "withdrawn"


class StretchedCode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A code's secret after scrypt: all that the daemon keeps of it. It proves the code, but does not show it."""

    salt: bytes
    n: int
    r: int
    p: int
    hash: bytes

    def __repr__(self) -> str:
        return "StretchedCode([redacted])"


class DevicePairingCodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    # Three digits that find the record; no secret. Unique among the codes in force.
    nameplate: str
    method: PairingMethod
    kind: DeviceKind
    stretched: StretchedCode
    created_ms: int
    expires_ms: int
    created_by: str
    state: CodeState = CodeState.LIVE
    wrong_guesses: int = 0
    # The request that used it.
    pairing_id: str = ""

    def in_force(self, now_ms: int) -> bool:
        """It can still be proved: by anybody while live, by its own device once used."""
        return self.state in (CodeState.LIVE, CodeState.USED) and now_ms < self.expires_ms

    def ended(self, now_ms: int) -> bool:
        return not self.in_force(now_ms)


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device says about itself. Nothing is decided by it; people read it."""

    name: str
    platform: str = ""
    software_version: str = ""


class DevicePairingRequestRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    device_id: str
    kind: DeviceKind
    code_id: str
    method: PairingMethod
    state: PairingState
    facts: DeviceFacts
    csr_der: bytes
    # SHA-256 of the public key (SubjectPublicKeyInfo) in the CSR, in hex: who may ask again.
    key_fingerprint: str
    # Six digits that the device shows too.
    comparison_code: str
    # SHA-256 of what lets the device, and nobody else, fetch the answer.
    collect_sha256: bytes
    address: str
    created_ms: int
    expires_ms: int
    decided_ms: int | None = None
    decided_by: str = ""
    reason: str = ""
    # How often another key proved the same code after it was used: somebody else knows it.
    refused_claims: int = 0

    def open(self) -> bool:
        return self.state in pairing.OPEN


class DeviceCapabilityView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing a device says it can do. ``withheld`` is the operator's, and outlives what the device reports."""

    name: str
    description: str = ""
    input_schema_json: str = ""
    local_mediation: bool = False
    idempotent: bool = False
    withheld: bool = False


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paired device. Its id is the device id; whether it is revoked is identity's to say."""

    id: str
    kind: DeviceKind
    name: str
    platform: str
    software_version: str
    paired_ms: int
    pairing_id: str
    capabilities: tuple[DeviceCapabilityView, ...] = ()
    # Names withheld by an operator, whether or not the device offers them at the moment.
    withheld: tuple[str, ...] = ()
    registered_ms: int | None = None
    revoked_ms: int | None = None
    revoked_reason: str = ""


class CapabilityRequestRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request to one device. The input is here for as long as it may have to be sent, also by another process."""

    id: str
    device_id: str
    capability: str
    state: RequestState
    principal: str
    call_id: str
    input_digest: str
    idempotent: bool
    created_ms: int
    deadline_ms: int
    dispatched_ms: int | None = None
    finished_ms: int | None = None
    output_digest: str = ""
    error_code: str = ""
    # Of the daemon process that waits for the result.
    instance_id: str = ""
    # Canonical JSON; empty once the request has ended.
    input_json: str = ""
    # When the device said that it has begun: from then on only it knows how far it got.
    accepted_ms: int | None = None

    def open(self) -> bool:
        return self.state in dispatch.OPEN
