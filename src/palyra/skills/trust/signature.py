"""The signature of an archive: Ed25519 over a listing of every entry, in a DSSE envelope.

The listing gives each name and each content its length first, so no two archives share one. The signed statement also
names the skill, its version, its publisher and the key, so that a signature cannot be moved to another skill and a
person can read what was signed. A signature that verifies shows only that the holder of the key made it;
``publisher_keys`` decides whether the key is trusted.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import Tampered
from palyra.signing.dsse import Signer, Verifier, open_envelope, parse_envelope, sign_envelope
from palyra.skills.package.artifact import SkillArtifact

PAYLOAD_TYPE: Final = "application/vnd.palyra.skill.v1+json"
STATEMENT_FORMAT: Final = "palyra.skill.statement.v1"
_LISTING_FORMAT: Final = b"palyra.skill.listing.v1"
_KEY_BYTES: Final = 32

VerifierOf = Callable[[bytes], Verifier]
"""Makes a verifier of a raw public key."""


class Unsigned(Tampered):
    code = "skill.unsigned"
    hint = "sign it with `palyra skill sign`: an archive without a signature is never installed"


class SignatureMismatch(Tampered):
    code = "skill.signature_mismatch"
    hint = "the archive was changed after it was signed, or carries the signature of another one"


class SkillStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed statement. ``public_key`` is base64 of the raw 32 bytes."""

    format: str
    skill_id: str
    version: str
    publisher: str
    listing_sha256: str
    public_key: str


class VerifiedSignature(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    public_key: bytes


def listing_digest(artifact: SkillArtifact) -> str:
    """Compute SHA-256 over each entry's name and content digest, every part after its length."""
    listing = hashlib.sha256()
    entries = list(artifact.signed_entries())
    for part in (_LISTING_FORMAT, struct.pack(">Q", len(entries))):
        listing.update(struct.pack(">Q", len(part)) + part)
    for name, data in entries:
        raw = name.encode("ascii")
        listing.update(struct.pack(">Q", len(raw)) + raw)
        listing.update(struct.pack(">Q", len(data)) + hashlib.sha256(data).digest())
    return listing.hexdigest()


def sign_artifact(artifact: SkillArtifact, signer: Signer) -> SkillArtifact:
    """Sign the archive. A signature that it already had is replaced."""
    statement = _statement(artifact, signer.public_key())
    envelope = sign_envelope(PAYLOAD_TYPE, canonical_json(msgspec.structs.asdict(statement)), [signer])
    return artifact.with_signature(envelope.to_json())


def verify_signature(artifact: SkillArtifact, verifier_of: VerifierOf) -> VerifiedSignature:
    """Return the key that signed exactly this archive, or raise."""
    raw = artifact.signature
    if raw is None:
        raise Unsigned("the archive has no signature.json")
    envelope = parse_envelope(raw)
    if len(envelope.signatures) != 1:
        raise SignatureMismatch(f"the archive has {len(envelope.signatures)} signatures; exactly one is expected")
    if envelope.to_json() != raw:
        # Bytes that are not covered by the signature: room for something unsigned, and a second spelling.
        raise SignatureMismatch("signature.json is not in its one spelling")
    claimed = _read_statement(_payload(envelope.payload))
    verifier = verifier_of(_public_key(claimed))
    if envelope.signatures[0].keyid != verifier.key_id:
        raise SignatureMismatch("the signature names another key than the statement")
    public_key = _public_key(claimed)
    payload = open_envelope(raw, PAYLOAD_TYPE, [verifier])
    expected = _statement(artifact, public_key)
    if payload != canonical_json(msgspec.structs.asdict(expected)):
        raise SignatureMismatch(_difference(claimed, expected))
    return VerifiedSignature(key_id=verifier.key_id, public_key=public_key)


def _statement(artifact: SkillArtifact, public_key: bytes) -> SkillStatement:
    manifest = artifact.manifest
    return SkillStatement(
        format=STATEMENT_FORMAT,
        skill_id=manifest.skill_id,
        version=manifest.version,
        publisher=manifest.publisher,
        listing_sha256=listing_digest(artifact),
        public_key=base64.b64encode(public_key).decode("ascii"),
    )


def _payload(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise SignatureMismatch("the signed statement is not base64") from None


def _read_statement(payload: bytes) -> SkillStatement:
    try:
        statement = msgspec.json.decode(payload, type=SkillStatement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignatureMismatch("the signed statement is not one about a skill") from None
    if statement.format != STATEMENT_FORMAT:
        raise SignatureMismatch(f"the signed statement has the format {statement.format[:40]!r}")
    return statement


def _public_key(statement: SkillStatement) -> bytes:
    raw = _payload(statement.public_key)
    if len(raw) != _KEY_BYTES:
        raise SignatureMismatch("the signed statement holds no Ed25519 key")
    return raw


def _difference(claimed: SkillStatement, expected: SkillStatement) -> str:
    for field in ("skill_id", "version", "publisher"):
        if getattr(claimed, field) != getattr(expected, field):
            return f"it was signed for the {field} {getattr(claimed, field)[:80]!r}"
    return "an entry was changed, added or removed after it was signed"
