"""Sealed files open in their own place and nowhere else."""

import os

import msgspec
import pytest

from palyra.browser.domain.profile import ProfileDamaged, ProfileKeyMissing, UnknownProfileFormat
from palyra.browser.profiles.encryption import (
    HEADER_BYTES,
    MAGIC,
    Kind,
    Place,
    Registry,
    StateKey,
    StateKeys,
    bind,
    encrypt,
    read_header,
    seal,
    seal_registry,
    unseal,
    unseal_registry,
)
from palyra.errors import PalyraError

KEY = StateKey(bytes(32))
KEYS = StateKeys(KEY)
PLACE = Place(kind=Kind.STATE, revision=7, principal="user:a", profile_id="P", persistence_id="L")


def sealed(place: Place = PLACE) -> bytes:
    return seal(KEY, place, b"state", os.urandom)


def test_a_registry_from_before_there_was_a_lineage_is_read() -> None:
    registry, nonce = {"generation": 7, "profiles": [], "removing": []}, bytes(12)
    place = Place(kind=Kind.REGISTRY, revision=7)
    # As that version wrote it: the ninth byte is the format.
    header = bytes([*MAGIC, 1, Kind.REGISTRY]) + bytes.fromhex(KEY.key_id) + (7).to_bytes(8, "big") + nonce
    content = msgspec.json.encode(registry)
    raw = header + encrypt(KEY, place.purpose(), nonce, content, place.bound(header))
    assert unseal_registry(KEYS, raw) == Registry(generation=7)
    assert Registry(generation=7).mark == ""


def test_a_file_opens_in_its_place() -> None:
    assert unseal(KEYS, PLACE, sealed()) == b"state"
    assert unseal(StateKeys(StateKey(bytes([5]) * 32), KEY), PLACE, sealed()) == b"state"


@pytest.mark.parametrize(
    "change",
    [
        {"revision": 6},
        {"revision": 8},
        {"principal": "user:b"},
        {"profile_id": "Q"},
        {"persistence_id": "M"},
        {"kind": Kind.REGISTRY},
        {"profile_id": "PL", "persistence_id": ""},
    ],
)
def test_and_in_no_other(change: dict[str, object]) -> None:
    with pytest.raises(ProfileDamaged):
        unseal(KEYS, msgspec.structs.replace(PLACE, **change), sealed())


def test_a_header_that_lies_does_not_help() -> None:
    """The revision in the header changed to the one that is wanted."""
    raw = bytearray(sealed())
    raw[26:34] = (8).to_bytes(8, "big")
    assert read_header(bytes(raw)).revision == 8
    with pytest.raises(ProfileDamaged):
        unseal(KEYS, msgspec.structs.replace(PLACE, revision=8), bytes(raw))


def test_two_sealings_have_nothing_in_common() -> None:
    assert sealed()[HEADER_BYTES:] != sealed()[HEADER_BYTES:]


def test_every_bit_of_a_registry_counts() -> None:
    raw = seal_registry(KEY, Registry(generation=3), os.urandom)
    assert unseal_registry(KEYS, raw) == Registry(generation=3)
    for at in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[at // 8] ^= 1 << (at % 8)
        with pytest.raises((ProfileDamaged, ProfileKeyMissing, UnknownProfileFormat)):
            unseal_registry(KEYS, bytes(changed))
    for cut in range(len(raw)):
        with pytest.raises(PalyraError):
            unseal_registry(KEYS, raw[:cut])


def test_a_newer_format_and_a_foreign_key_are_told_apart_from_damage() -> None:
    newer = bytearray(sealed())
    newer[8] = 2
    with pytest.raises(UnknownProfileFormat):
        read_header(bytes(newer))
    with pytest.raises(ProfileKeyMissing):
        unseal(StateKeys(StateKey(bytes([5]) * 32)), PLACE, sealed())


def test_binding_is_unambiguous() -> None:
    assert len({bind("ab", "c"), bind("a", "bc"), bind("abc", ""), bind("abc")}) == 4
