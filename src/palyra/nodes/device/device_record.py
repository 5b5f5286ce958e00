"""What a device keeps of its pairing, as one document: key, certificate and trust change together or not at all."""

from typing import Final

import msgspec

from palyra.nodes.device.errors import DeviceFileBad
from palyra.secret import Secret

FORMAT: Final = "palyra-node-device/1"


class HeldCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a certificate without reading it again: when it is to be renewed, and when it ends."""

    generation: int
    renew_at_ms: int
    not_after_ms: int


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``pending_key_pem`` is the key of a request whose answer is not here yet: asked again with the same key, the
    daemon gives the same answer. Before the first certificate there is no ``certificate_pem``."""

    device_name: str
    servers: tuple[str, ...]
    device_id: str = ""
    key_pem: Secret | None = None
    certificate_pem: str = ""
    ca_bundle_pem: str = ""
    generation: int = 0
    pending_key_pem: Secret | None = None
    # What a pairing that was cut off needs to go on: opaque here, written and read by who pairs.
    pairing: dict[str, str] = {}

    @property
    def paired(self) -> bool:
        return bool(self.certificate_pem and self.key_pem is not None and self.device_id)


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    device_name: str
    servers: tuple[str, ...]
    device_id: str
    key_pem: str
    certificate_pem: str
    ca_bundle_pem: str
    generation: int
    pending_key_pem: str
    pairing: dict[str, str]


def write_record(record: DeviceRecord) -> bytes:
    document = _Document(
        format=FORMAT,
        device_name=record.device_name,
        servers=record.servers,
        # An id may be of a type of its own, which is not for JSON.
        device_id=str.__str__(record.device_id),
        # The file is this device's own, 0600, and the only place its key is in.
        key_pem="" if record.key_pem is None else record.key_pem.reveal(),
        certificate_pem=record.certificate_pem,
        ca_bundle_pem=record.ca_bundle_pem,
        generation=record.generation,
        pending_key_pem="" if record.pending_key_pem is None else record.pending_key_pem.reveal(),
        pairing=record.pairing,
    )
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def read_record(raw: bytes) -> DeviceRecord:
    try:
        document = msgspec.json.decode(raw, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The decoder's own words may quote a key.
        raise DeviceFileBad("the device's file is cut off or damaged") from None
    if document.format != FORMAT:
        raise DeviceFileBad(f"the device's file has the format {document.format[:64]!r}; this version reads {FORMAT}")
    return DeviceRecord(
        device_name=document.device_name,
        servers=document.servers,
        device_id=document.device_id,
        key_pem=Secret(document.key_pem) if document.key_pem else None,
        certificate_pem=document.certificate_pem,
        ca_bundle_pem=document.ca_bundle_pem,
        generation=document.generation,
        pending_key_pem=Secret(document.pending_key_pem) if document.pending_key_pem else None,
        pairing=document.pairing,
    )
