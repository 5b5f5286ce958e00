"""AES-256-GCM and HKDF-SHA256 by the ``cryptography`` package, imported when the first profile is sealed or opened."""

from palyra.browser.profile_errors import ProfileDamaged
from palyra.browser.profile_key import KEY_BYTES, StateKey


class AesGcmHkdf:
    def seal(self, key: StateKey, purpose: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(_derived(key, purpose)).encrypt(nonce, plaintext, associated)

    def open(self, key: StateKey, purpose: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(_derived(key, purpose)).decrypt(nonce, ciphertext, associated)
        except InvalidTag:
            # The cause says no more than this does.
            raise ProfileDamaged("the file does not open: it was changed, or it belongs elsewhere") from None


def _derived(key: StateKey, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(key.reveal())
