"""Publishers' keys: their trust, and rotation.

A publisher is a name with keys; a skill id belongs to the publisher who first had it approved. An operator lists a
publisher's key (``allowlisted``). With trust on first use the first approved skill of an unknown publisher pins its key
(``first_use``) for that skill id. A publisher replaces a key by a statement that the old key signs (``rotated``): the
holder of only the new key cannot make one. A revoked key stays refused, even if an operator lists it. After its first
record a publisher never gets trust on first use again, even if no key is left: then only an operator can trust it.
"""

import base64
import binascii
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import Denied, Tampered
from palyra.signing.dsse import Signer, open_envelope, parse_envelope, sign_envelope
from palyra.skills.package.manifest import SkillManifest, Version
from palyra.skills.trust.signature import VerifierOf

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
    """Verify a statement of the old key's holder. The registry knows whether that key is in force."""
    claimed = _read(_decode_base64(parse_envelope(raw).payload))
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


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise MalformedRotation("a part of the statement is not base64") from None


def _key(text: str) -> bytes:
    raw = _decode_base64(text)
    if len(raw) != _KEY_BYTES:
        raise MalformedRotation("a key has 32 bytes")
    return raw


_MAX_ROTATIONS: Final = 64


class KeySource(StrEnum):
    ALLOWLISTED = "allowlisted"
    FIRST_USE = "first_use"
    ROTATED = "rotated"


class KeyState(StrEnum):
    ACTIVE = "active"
    # Replaced by a rotation: what it signed before stays, it signs nothing new.
    RETIRED = "retired"
    REVOKED = "revoked"
    # Taken off the list by an operator. The record stays, so that no other key gets trust on first use in its place.
    REMOVED = "removed"


_IN_FORCE: Final = (KeyState.ACTIVE, KeyState.RETIRED)
_UNKNOWN: Final = "a key that is not theirs"
_HOW_KNOWN: Final = {
    KeyState.RETIRED: "a key they have replaced",
    KeyState.REVOKED: "a key that was revoked",
    KeyState.REMOVED: "a key that was taken off the list",
}


class PublisherKey(msgspec.Struct, frozen=True, kw_only=True):
    publisher: str
    key_id: str
    public_key: bytes
    source: KeySource
    state: KeyState = KeyState.ACTIVE
    # The key that vouched for this one, for a rotation.
    replaces: str = ""
    added_ms: int = 0
    added_by: str = ""
    ended_ms: int | None = None
    reason: str = ""


class SkillOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The publisher of a skill id. It stays when every version is removed, so that no rival can take the id."""

    skill_id: str
    publisher: str
    key_id: str
    newest_approved: str


class TrustLevel(StrEnum):
    """The way in which the signer of a version is known."""

    ALLOWLISTED = "allowlisted"
    PINNED = "pinned"
    # Nobody knows the publisher yet; approving the version pins the key.
    FIRST_USE = "first_use"


class UntrustedPublisher(Denied):
    code = "skill.untrusted_publisher"
    hint = "if you know that the key is theirs: `palyra skill trust add PUBLISHER KEY_FILE`"


class KeyNotThePublishers(Denied):
    code = "skill.key_mismatch"
    hint = "ask the publisher over another channel; a genuine change of keys comes as a rotation signed by the old key"


class KeyRevoked(Denied):
    code = "skill.key_revoked"
    hint = "the key's holder may be anybody: get a version signed with a new key"


class SkillIdTaken(Denied):
    code = "skill.id_taken"
    hint = "the id belongs to the publisher who first had it approved here; their rival needs another id"


class Downgrade(Denied):
    code = "skill.downgrade"
    hint = "to go back to a version that was in use, use `palyra skill rollback`"


class TrustQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the decision needs. ``keys`` are the publisher's, ``revoked`` every revoked key id."""

    manifest: SkillManifest
    key_id: str
    keys: Sequence[PublisherKey]
    revoked: frozenset[str]
    owner: SkillOwner | None
    # Whether the publisher is known without any of ``keys``: their records are unreadable, or only in the journal.
    on_record: bool = False
    trust_on_first_use: bool = False


def require_trust(question: TrustQuestion) -> TrustLevel:
    """Find how the signer is known. Raises if it is not, or if the skill is another publisher's."""
    manifest, key_id, owner = question.manifest, question.key_id, question.owner
    if key_id in question.revoked:
        raise KeyRevoked(f"{manifest.skill_id} {manifest.version} is signed with {key_id}, which was revoked")
    if owner is not None and owner.publisher != manifest.publisher:
        raise SkillIdTaken(
            f"{manifest.skill_id} belongs to {owner.publisher}, not to {manifest.publisher}", owner=owner.publisher
        )
    key = next((key for key in question.keys if key.key_id == key_id), None)
    if key is not None and key.state is KeyState.ACTIVE:
        return _known(question, key)
    if any(one.state in _IN_FORCE for one in question.keys):
        raise KeyNotThePublishers(
            f"{manifest.publisher} is known here, and this is signed with {_HOW_KNOWN[key.state] if key else _UNKNOWN}:"
            f" {key_id}"
        )
    if question.keys or question.on_record or owner is not None:
        # All their keys were taken off the list or revoked: that was a person's decision, not a first meeting.
        raise UntrustedPublisher(f"{manifest.publisher} is not trusted any more ({key_id})", key_id=key_id)
    if not question.trust_on_first_use or manifest.trust.requires_allowlisted_publisher:
        raise UntrustedPublisher(f"nobody here knows the publisher {manifest.publisher} ({key_id})", key_id=key_id)
    return TrustLevel.FIRST_USE


def _known(question: TrustQuestion, key: PublisherKey) -> TrustLevel:
    if key.source is KeySource.ALLOWLISTED:
        return TrustLevel.ALLOWLISTED
    if question.manifest.trust.requires_allowlisted_publisher:
        raise UntrustedPublisher(
            f"{question.manifest.publisher} wants its key to be listed by an operator", key_id=key.key_id
        )
    if question.owner is not None and question.owner.key_id not in _trace_lineage(question.keys, key):
        raise KeyNotThePublishers(
            f"{question.manifest.skill_id} is pinned to {question.owner.key_id}, and this is signed with {key.key_id}"
        )
    return TrustLevel.PINNED


def _trace_lineage(keys: Sequence[PublisherKey], key: PublisherKey) -> set[str]:
    """Return the key and those it replaced, one after the other, as far as they are on the list."""
    by_id = {one.key_id: one for one in keys if one.state is not KeyState.REMOVED}
    found: set[str] = set()
    step: PublisherKey | None = key
    while step is not None and step.key_id not in found and len(found) < _MAX_ROTATIONS:
        found.add(step.key_id)
        step = by_id.get(step.replaces)
    return found | ({key.replaces} if key.replaces else set())


def require_no_downgrade(manifest: SkillManifest, owner: SkillOwner | None) -> None:
    """Refuse a version below the newest that was ever approved here: it may have holes that were since closed."""
    if owner is None or not owner.newest_approved:
        return
    if Version.parse(manifest.version) < Version.parse(owner.newest_approved):
        raise Downgrade(
            f"{manifest.skill_id} {manifest.version} is older than {owner.newest_approved}, which was approved before",
            newest_approved=owner.newest_approved,
        )
