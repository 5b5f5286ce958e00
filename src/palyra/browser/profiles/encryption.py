"""The keys that seal profiles, and the sealed form of the registry and of a profile's state.

A file is a header and a ciphertext of AES-256-GCM. The header has the kind, the key, the revision and the nonce. It
is bound to the ciphertext, and so are the principal, the profile and the line of states, which are not in the file.
So a file that was changed, renamed, put in another's place or put back from yesterday does not open.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NoReturn

import msgspec

from palyra.browser.domain.profile import (
    MAX_PROFILES,
    MAX_SNAPSHOT_BYTES,
    BrowserProfileRecord,
    ProfileDamaged,
    ProfileKeyBad,
    ProfileKeyMissing,
    UnknownProfileFormat,
)
from palyra.limits import MIB
from palyra.secret import REDACTED

VARIABLE: Final = "PALYRA_BROWSERD_STATE_ENCRYPTION_KEY"
KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 16
# The active key and the one it replaces, with room for a rotation that was begun twice.
MAX_KEYS: Final = 4
_ID_DOMAIN: Final = b"palyra.browser.state-key-id/1\0"


class StateKey:
    """A key with an id. The id is a digest: it tells keys apart and reveals nothing."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ProfileKeyBad(f"a key has {KEY_BYTES} bytes, this has {len(key)}")
        self._key = key
        self.key_id = hashlib.sha256(_ID_DOMAIN + key).digest()[:KEY_ID_BYTES].hex()

    def reveal(self) -> bytes:
        return self._key

    def __repr__(self) -> str:
        return f"<StateKey {self.key_id} {REDACTED}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")


class StateKeys:
    def __init__(self, active: StateKey, *older: StateKey) -> None:
        if len(older) >= MAX_KEYS:
            raise ProfileKeyBad(f"at most {MAX_KEYS} keys are kept")
        self.active = active
        self.older = older
        self._known = {key.key_id: key for key in (*older, active)}

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._known

    def named(self, key_id: str) -> StateKey:
        try:
            return self._known[key_id]
        except KeyError:
            raise ProfileKeyMissing(f"the key {key_id} is not at hand", key_id=key_id) from None


def parse_keys(text: str, where: str) -> StateKeys:
    """Parse keys in base 64, separated by commas or line ends, the active one first. The error never shows the text."""
    parts = text.replace("\n", ",").split(",")
    keys = [StateKey(_decoded(part.strip(), where)) for part in parts if part.strip()]
    if not keys:
        raise ProfileKeyBad(f"{where} holds no key")
    return StateKeys(*keys)


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ProfileKeyBad(f"{where} does not hold a key in base 64") from None


# The ``cryptography`` package is slow to load: it is imported when the first profile is sealed or opened.


def encrypt(key: StateKey, purpose: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derive(key, purpose)).encrypt(nonce, plaintext, associated)


def decrypt(key: StateKey, purpose: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes:
    """Raise ``ProfileDamaged`` when anything differs from what was encrypted."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_derive(key, purpose)).decrypt(nonce, ciphertext, associated)
    except InvalidTag:
        # The cause says no more than this does.
        raise ProfileDamaged("the file does not open: it was changed, or it belongs elsewhere") from None


def _derive(key: StateKey, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(key.reveal())


MAGIC: Final = b"PALYRABP"
STATE_FORMAT: Final = 1
# The first had no lineage.
REGISTRY_FORMAT: Final = 2
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
PURPOSE: Final = "palyra.browser.profile/1"
_HEADER: Final = struct.Struct(">8sBB16sQ12s")
HEADER_BYTES: Final = _HEADER.size
# The registry of the most profiles there may be.
MAX_REGISTRY_BYTES: Final = 4 * MIB
# A sealed state with its tabs and permissions.
MAX_FILE_BYTES: Final = MAX_SNAPSHOT_BYTES + 4 * MIB

# More changes than palyrad can miss: it receives each at once while it runs.
MAX_LINEAGE: Final = 1_024
MARK_BYTES: Final = 8

RandomBytes = Callable[[int], bytes]


class Kind(IntEnum):
    REGISTRY = 1
    STATE = 2


_FORMATS_READ: Final = {Kind.REGISTRY: (1, REGISTRY_FORMAT), Kind.STATE: (STATE_FORMAT,)}
_FORMAT_WRITTEN: Final = {Kind.REGISTRY: REGISTRY_FORMAT, Kind.STATE: STATE_FORMAT}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a file, and the profile that it belongs to."""

    kind: Kind
    revision: int
    principal: str = ""
    profile_id: str = ""
    persistence_id: str = ""

    def purpose(self) -> bytes:
        """Return the purpose of the file's key: each profile, and each of its lines, has a key of its own."""
        return bind(PURPOSE, "key", str(int(self.kind)), self.profile_id, self.persistence_id)

    def bound(self, header: bytes) -> bytes:
        return header + bind(PURPOSE, self.principal, self.profile_id, self.persistence_id, str(self.revision))


class Header(msgspec.Struct, frozen=True, kw_only=True):
    kind: int
    key_id: str
    revision: int
    nonce: bytes


class Registry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``generation`` grows with every change. ``removing`` names unwanted files that may still exist.

    ``lineage`` has a random mark for each of the last changes, the newest last. An older copy that is changed
    often enough reaches any number. It cannot have a mark that was made after it was copied.
    """

    generation: int
    profiles: tuple[BrowserProfileRecord, ...] = ()
    removing: tuple[str, ...] = ()
    lineage: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        return self.lineage[-1] if self.lineage else ""


def place_of(record: BrowserProfileRecord, revision: int) -> Place:
    return Place(
        kind=Kind.STATE,
        revision=revision,
        principal=record.principal,
        profile_id=record.profile_id,
        persistence_id=record.persistence_id,
    )


def seal(key: StateKey, place: Place, plaintext: bytes, random: RandomBytes) -> bytes:
    nonce = random(NONCE_BYTES)
    header = _HEADER.pack(
        MAGIC, _FORMAT_WRITTEN[place.kind], place.kind, bytes.fromhex(key.key_id), place.revision, nonce
    )
    return header + encrypt(key, place.purpose(), nonce, plaintext, place.bound(header))


def unseal(keys: StateKeys, place: Place, raw: bytes) -> bytes:
    """Raise ``ProfileKeyMissing`` for a file under an unknown key, which may be a changed file too."""
    header = read_header(raw)
    key = keys.named(header.key_id)
    if header.kind != place.kind or header.revision != place.revision:
        raise ProfileDamaged("the file is another one than its name says")
    return decrypt(key, place.purpose(), header.nonce, raw[HEADER_BYTES:], place.bound(raw[:HEADER_BYTES]))


def read_header(raw: bytes) -> Header:
    """Read the unauthenticated header: do not trust it before the file opened."""
    if len(raw) < HEADER_BYTES + TAG_BYTES:
        raise ProfileDamaged("the file is cut short")
    magic, format_, kind, key_id, revision, nonce = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise ProfileDamaged("this is not a file of a profile")
    read = _FORMATS_READ.get(kind, ())
    if read and format_ not in read:
        raise UnknownProfileFormat(f"the file has the format {format_}, and this version reads {max(read)}")
    return Header(kind=kind, key_id=key_id.hex(), revision=revision, nonce=nonce)


def seal_registry(key: StateKey, registry: Registry, random: RandomBytes) -> bytes:
    place = Place(kind=Kind.REGISTRY, revision=registry.generation)
    return seal(key, place, msgspec.json.encode(registry), random)


def unseal_registry(keys: StateKeys, raw: bytes) -> Registry:
    place = Place(kind=Kind.REGISTRY, revision=read_header(raw).revision)
    try:
        registry = msgspec.json.decode(unseal(keys, place, raw), type=Registry)
    except msgspec.MsgspecError as error:
        raise ProfileDamaged("the registry is authentic and not one that this version wrote") from error
    if registry.generation != place.revision or len(registry.profiles) > MAX_PROFILES:
        raise ProfileDamaged("the registry contradicts itself")
    return registry


def bind(*fields: str) -> bytes:
    """Join the fields with length prefixes, so that no two lists of fields have the same bytes."""
    return b"".join(len(raw).to_bytes(4, "big") + raw for raw in (field.encode() for field in fields))
