"""A publisher's new key: a statement that the key in force signs. Whoever has only the new key cannot make one."""

import base64
import binascii
from typing import Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import Tampered
from palyra.signing.dsse import Signer, open_envelope, parse_envelope, sign_envelope
from palyra.skills.signature import VerifierOf

PAYLOAD_TYPE: Final = "application/vnd.palyra.skill-key-rotation.v1+json"
ROTATION_FORMAT: Final = "palyra.skill.rotation.v1"
_KEY_BYTES: Final = 32


class MalformedRotation(Tampered):
    code = "skill.malformed_rotation"
    hint = "pass the publisher's statement exactly as it was issued; the key in force has to have signed it"


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys are base64 of the raw 32 bytes."""

    format: str
    publisher: str
    old_public_key: str
    new_public_key: str


class VerifiedRotation(msgspec.Struct, frozen=True, kw_only=True):
    publisher: str
    old_key_id: str
    new_key_id: str
    new_public_key: bytes


def make_rotation(publisher: str, old: Signer, new_public_key: bytes) -> bytes:
    rotation = Rotation(
        format=ROTATION_FORMAT,
        publisher=publisher,
        old_public_key=base64.b64encode(old.public_key()).decode("ascii"),
        new_public_key=base64.b64encode(new_public_key).decode("ascii"),
    )
    payload = canonical_json(msgspec.structs.asdict(rotation))
    return sign_envelope(PAYLOAD_TYPE, payload, [old]).to_json()


def verify_rotation(raw: bytes, verifier_of: VerifierOf) -> VerifiedRotation:
    """What the holder of the old key said. Whether that key is in force is for the registry to know."""
    claimed = _read(_decoded(parse_envelope(raw).payload))
    old = verifier_of(_key(claimed.old_public_key))
    payload = open_envelope(raw, PAYLOAD_TYPE, [old])
    if _read(payload) != claimed:
        raise MalformedRotation("the statement has two readings")
    new_key = _key(claimed.new_public_key)
    new = verifier_of(new_key)
    if new.key_id == old.key_id:
        raise MalformedRotation("the new key is the old one")
    return VerifiedRotation(
        publisher=claimed.publisher, old_key_id=old.key_id, new_key_id=new.key_id, new_public_key=new_key
    )


def _read(payload: bytes) -> Rotation:
    try:
        rotation = msgspec.json.decode(payload, type=Rotation)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedRotation("this is not a statement about a publisher's key") from None
    if rotation.format != ROTATION_FORMAT:
        raise MalformedRotation(f"the statement has the format {rotation.format[:40]!r}")
    return rotation


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise MalformedRotation("a part of the statement is not base64") from None


def _key(text: str) -> bytes:
    raw = _decoded(text)
    if len(raw) != _KEY_BYTES:
        raise MalformedRotation("a key has 32 bytes")
    return raw
