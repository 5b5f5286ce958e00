"""The messages of pairing on the wire: JSON with a version, bytes in base 64. Unknown fields are refused."""

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from palyra.devicelink.limits import MAX_CSR_BYTES, MAX_PAIRING_WAIT_MS
from palyra.devicelink.pairing.code import NAMEPLATE_DIGITS, SALT_BYTES, DeviceFacts, PairingMethod
from palyra.devicelink.pairing.proof import CONFIRMATION_BYTES, MESSAGE_BYTES, MalformedProof
from palyra.identity.device import DeviceKind
from palyra.strict_json import NotStrictJson, parse_strict

VERSION: Final = 1
BEGIN: Final = "/pair/v1/begin"
FINISH: Final = "/pair/v1/finish"
WAIT: Final = "/pair/v1/wait"
COLLECT_BYTES: Final = 32
MAX_ID_CHARS: Final = 64

_Message = Annotated[bytes, Meta(min_length=MESSAGE_BYTES, max_length=MESSAGE_BYTES)]
_Confirmation = Annotated[bytes, Meta(min_length=CONFIRMATION_BYTES, max_length=CONFIRMATION_BYTES)]
_Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Version = Annotated[int, Meta(ge=VERSION, le=VERSION)]

M = TypeVar("M", bound=msgspec.Struct)


class Begin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: _Version
    nameplate: Annotated[str, Meta(pattern=f"^[0-9]{{{NAMEPLATE_DIGITS}}}$")]
    kind: DeviceKind


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: _Version
    session: _Id
    method: PairingMethod
    salt: Annotated[bytes, Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
    message: _Message
    # The authority that issued the certificate of this connection.
    ca_der: Annotated[bytes, Meta(min_length=1, max_length=MAX_CSR_BYTES)]


class Finish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: _Id
    message: _Message
    confirmation: _Confirmation
    csr_der: Annotated[bytes, Meta(min_length=1, max_length=MAX_CSR_BYTES)]
    facts: DeviceFacts
    leaf_hash: _Hash


class Finished(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    confirmation: _Confirmation
    pairing_id: _Id
    device_id: _Id


class Wait(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pairing_id: _Id
    collect: Annotated[bytes, Meta(min_length=COLLECT_BYTES, max_length=COLLECT_BYTES)]
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_PAIRING_WAIT_MS)] = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``state`` is pending_approval, completed, rejected or expired; the rest comes with completed."""

    state: Annotated[str, Meta(max_length=MAX_ID_CHARS)]
    device_id: Annotated[str, Meta(max_length=MAX_ID_CHARS)] = ""
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    certificate_pem: bytes = b""
    ca_bundle_pem: bytes = b""
    generation: int = 0
    # Of the listener for paired devices, at the address that pairing went to.
    node_port: Annotated[int, Meta(ge=0, le=65_535)] = 0


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def decode(raw: bytes, type_: type[M]) -> M:
    """Decode strictly: no duplicate keys, no unknown fields, all values within their bounds."""
    try:
        return msgspec.convert(parse_strict(raw), type_)
    except (NotStrictJson, msgspec.ValidationError) as error:
        # The message may quote the other side's text: the error's type is enough.
        raise MalformedProof(f"not a message of pairing: {type(error).__name__}") from error
