"""The cipher opens only what it sealed, with the same key, purpose and associated data."""

import hashlib
import hmac

import pytest

from palyra.browser.domain.profile import ProfileDamaged
from palyra.browser.profiles.encryption import StateKey, decrypt, encrypt

KEY, OTHER = StateKey(bytes(32)), StateKey(bytes([1]) * 32)
NONCE = bytes(12)


def test_what_was_sealed_opens() -> None:
    sealed = encrypt(KEY, b"purpose", NONCE, b"text", b"bound")
    assert b"text" not in sealed
    assert decrypt(KEY, b"purpose", NONCE, sealed, b"bound") == b"text"


def test_nothing_else_opens() -> None:
    sealed = encrypt(KEY, b"purpose", NONCE, b"text", b"bound")
    for key, purpose, nonce, text, bound in (
        (OTHER, b"purpose", NONCE, sealed, b"bound"),
        (KEY, b"another", NONCE, sealed, b"bound"),
        (KEY, b"purpose", bytes([1]) * 12, sealed, b"bound"),
        (KEY, b"purpose", NONCE, sealed[:-1], b"bound"),
        (KEY, b"purpose", NONCE, b"", b"bound"),
        (KEY, b"purpose", NONCE, sealed, b"other"),
    ):
        with pytest.raises(ProfileDamaged):
            decrypt(key, purpose, nonce, text, bound)


def test_the_key_is_derived_as_rfc_5869_says() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    extracted = hmac.digest(bytes(32), KEY.reveal(), hashlib.sha256)
    derived = hmac.digest(extracted, b"purpose\x01", hashlib.sha256)
    assert AESGCM(derived).decrypt(NONCE, encrypt(KEY, b"purpose", NONCE, b"text", b""), b"") == b"text"
