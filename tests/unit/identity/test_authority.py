import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.identity.device import IdentityTampered
from palyra.identity.records import (
    TRANSITIONS,
    AuthorityEvent,
    AuthorityState,
    authority_id_of,
    open_key,
    seal_key,
)
from palyra.vault.envelope import AesGcm
from palyra.vault.key_source import KeyEncryptionKey

KEY = KeyEncryptionKey(b"k" * 32)
PRIVATE = b"private key in DER"


def sealed(trust_domain: str = "palyra-x", certificate: bytes = b"certificate", key: KeyEncryptionKey = KEY) -> bytes:
    return seal_key(
        AesGcm(), os.urandom, key, trust_domain=trust_domain, certificate_der=certificate, private_key=PRIVATE
    )


def opened(
    layer: bytes, trust_domain: str = "palyra-x", certificate: bytes = b"certificate", key: KeyEncryptionKey = KEY
) -> bytes:
    return open_key(AesGcm(), key, trust_domain=trust_domain, certificate_der=certificate, sealed_key=layer)


def test_what_was_sealed_opens_and_is_not_readable_before() -> None:
    layer = sealed()
    assert opened(layer) == PRIVATE and PRIVATE not in layer
    assert sealed() != layer, "a nonce is used once"


def test_a_key_opens_only_where_it_belongs() -> None:
    layer = sealed()
    for elsewhere in (
        {"trust_domain": "palyra-y"},
        {"certificate": b"another certificate"},
        {"key": KeyEncryptionKey(b"o" * 32)},
    ):
        with pytest.raises(IdentityTampered):
            opened(layer, **elsewhere)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_bit_may_be_changed(data: st.DataObject) -> None:
    layer = bytearray(sealed())
    place = data.draw(st.integers(0, len(layer) * 8 - 1))
    layer[place // 8] ^= 1 << place % 8
    with pytest.raises(IdentityTampered):
        opened(bytes(layer))


@settings(deadline=None)
@given(st.integers(0, 40))
def test_no_byte_may_be_missing(length: int) -> None:
    with pytest.raises(IdentityTampered):
        opened(sealed()[:length])


def test_every_pair_is_handled_or_refused() -> None:
    pairs = {(state, event) for state in AuthorityState for event in AuthorityEvent}
    assert set(TRANSITIONS) < pairs
    # Replaced before retired, and never back.
    assert TRANSITIONS[AuthorityState.CURRENT, AuthorityEvent.REPLACE] is AuthorityState.OUTGOING
    assert (AuthorityState.CURRENT, AuthorityEvent.RETIRE) not in TRANSITIONS
    assert not any(state is AuthorityState.RETIRED for state, _ in TRANSITIONS)


def test_an_authority_is_named_by_its_certificate() -> None:
    assert authority_id_of(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
