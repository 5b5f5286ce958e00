import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.vault_harness import ref
from palyra.vault.envelope import AesGcm, Place, SealedVersion, Sealer, bind
from palyra.vault.key_source import KeyEncryptionKey, UnknownFormat, VaultTampered

counter = itertools.count(1)


def random(size: int) -> bytes:
    """Every draw is new, and known."""
    return next(counter).to_bytes(size, "big")


SEALER = Sealer(AesGcm(), random)
KEY, OTHER = KeyEncryptionKey(b"k" * 32), KeyEncryptionKey(b"o" * 32)
PLACE = Place(vault_id="v", ref=ref("global/k"), version=3)


def test_a_value_comes_back_and_stands_nowhere_in_its_record() -> None:
    sealed = SEALER.seal(KEY, PLACE, b"the value")
    assert SEALER.open(KEY, PLACE, sealed) == b"the value"
    assert b"the value" not in sealed.sealed + sealed.wrapped
    assert (sealed.sealed[0], sealed.wrapped[0], sealed.key_id) == (1, 1, KEY.key_id)


def test_every_version_has_a_data_key_and_nonces_of_its_own() -> None:
    one, two = SEALER.seal(KEY, PLACE, b"same"), SEALER.seal(KEY, PLACE, b"same")
    assert len({one.sealed, two.sealed, one.wrapped, two.wrapped}) == 4
    assert len({layer[1:13] for layer in (one.sealed, two.sealed, one.wrapped, two.wrapped)}) == 4


@pytest.mark.parametrize(
    "elsewhere",
    [
        Place(vault_id="w", ref=ref("global/k"), version=3),
        Place(vault_id="v", ref=ref("global/l"), version=3),
        Place(vault_id="v", ref=ref("channel:api/k"), version=3),
        Place(vault_id="v", ref=ref("global/k"), version=2),
    ],
)
def test_a_record_opens_in_its_own_place_only(elsewhere: Place) -> None:
    with pytest.raises(VaultTampered):
        SEALER.open(KEY, elsewhere, SEALER.seal(KEY, PLACE, b"x"))


def test_the_layers_of_two_records_cannot_be_mixed() -> None:
    one, two = SEALER.seal(KEY, PLACE, b"one"), SEALER.seal(KEY, PLACE, b"two")
    with pytest.raises(VaultTampered):
        SEALER.open(KEY, PLACE, SealedVersion(key_id=KEY.key_id, wrapped=one.wrapped, sealed=two.sealed))


def test_another_key_does_not_open_it_even_when_the_record_names_it() -> None:
    sealed = SEALER.seal(KEY, PLACE, b"x")
    with pytest.raises(VaultTampered):
        SEALER.open(OTHER, PLACE, sealed)
    with pytest.raises(VaultTampered):
        SEALER.open(OTHER, PLACE, SealedVersion(key_id=OTHER.key_id, wrapped=sealed.wrapped, sealed=sealed.sealed))


def test_rewrapping_changes_the_key_and_leaves_the_value_sealed() -> None:
    before = SEALER.seal(KEY, PLACE, b"x")
    wrapped = SEALER.rewrap(KEY, OTHER, PLACE, before.wrapped)
    after = SealedVersion(key_id=OTHER.key_id, wrapped=wrapped, sealed=before.sealed)
    assert SEALER.open(OTHER, PLACE, after) == b"x"
    with pytest.raises(VaultTampered):
        SEALER.rewrap(OTHER, KEY, PLACE, before.wrapped)


def test_an_index_key_is_bound_to_its_vault_and_key() -> None:
    wrapped = SEALER.wrap_index_key(KEY, "v", b"i" * 32)
    assert SEALER.unwrap_index_key(KEY, "v", wrapped) == b"i" * 32
    for key, vault_id in ((KEY, "w"), (OTHER, "v")):
        with pytest.raises(VaultTampered):
            SEALER.unwrap_index_key(key, vault_id, wrapped)
    with pytest.raises(VaultTampered):
        SEALER.open(KEY, PLACE, SealedVersion(key_id=KEY.key_id, wrapped=wrapped, sealed=wrapped))


def test_an_unknown_format_is_named_and_a_short_record_refused() -> None:
    sealed = SEALER.seal(KEY, PLACE, b"x")
    newer = SealedVersion(key_id=KEY.key_id, wrapped=b"\x02" + sealed.wrapped[1:], sealed=sealed.sealed)
    with pytest.raises(UnknownFormat):
        SEALER.open(KEY, PLACE, newer)
    for size in (0, 1, 28):
        with pytest.raises(VaultTampered):
            SEALER.open(KEY, PLACE, SealedVersion(key_id=KEY.key_id, wrapped=sealed.wrapped[:size], sealed=b""))


@given(st.lists(st.text(max_size=4), max_size=5), st.lists(st.text(max_size=4), max_size=5))
def test_two_lists_of_fields_never_bind_to_the_same_bytes(one: list[str], two: list[str]) -> None:
    assert (bind(*one) == bind(*two)) == (one == two)
