"""AES-256-GCM by the ``cryptography`` package, imported when the first secret is sealed or opened."""

from palyra.vault.errors import VaultTampered


class AesGcm:
    def seal(self, key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(key).encrypt(nonce, plaintext, associated)

    def open(self, key: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(key).decrypt(nonce, ciphertext, associated)
        except InvalidTag:
            # The cause says no more than this does.
            raise VaultTampered("a stored record does not open: it was changed or belongs elsewhere") from None
